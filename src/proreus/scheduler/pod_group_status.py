"""What a PodGroup is told of its scheduling: the condition ``PodGroupScheduled``."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from proreus.clock import Clock
from proreus.errors import ApiError
from proreus.framework.handle import ApiWriter
from proreus.framework.status import Status
from proreus.logs import logger
from proreus.objects.scheduling import POD_GROUP_SCHEDULED, POD_GROUPS, PodGroup
from proreus.scheduler.failure import SCHEDULER_ERROR, UNSCHEDULABLE, rfc3339

log = logger(__name__)


class PodGroupStatusWriter:
    """Writes conditions in the background. ``groups``: what the watch knows of them."""

    def __init__(
        self,
        groups: Mapping[str, PodGroup],
        api: ApiWriter,
        clock: Clock,
        spawn: Callable[[Coroutine[Any, Any, None]], object],
    ) -> None:
        self._groups = groups
        self._api = api
        self._clock = clock
        self._spawn = spawn

    def write(self, key: str, status: Status | None) -> None:
        """Note how an attempt for a group ended (None: well). What is True stays so."""
        group = self._groups.get(key)
        if group is None:
            log.error("Failed to get PodGroup for status update", err="not found", podGroup=key)
            return
        condition = self._condition(group, status)
        if condition is not None:
            self._spawn(self._patch(group, {"status": {"conditions": [condition]}}))

    def _condition(self, group: PodGroup, status: Status | None) -> dict[str, Any] | None:
        """Return the new condition; None when there is nothing to change."""
        value, reason, message = "True", "Scheduled", ""
        if status is not None:
            value, message = "False", status.message
            reason = UNSCHEDULABLE if status.rejected else SCHEDULER_ERROR
        old = group.condition(POD_GROUP_SCHEDULED)
        generation = group.metadata.generation
        since = rfc3339(self._clock.now())
        if old is not None:
            if old.status == "True" != value:
                return None
            known = (old.status, old.reason, old.message, old.observed_generation)
            if known == (value, reason, message, generation):
                return None
            if old.status == value and old.last_transition_time:
                since = old.last_transition_time
        condition: dict[str, Any] = {
            "type": POD_GROUP_SCHEDULED,
            "status": value,
            "reason": reason,
            "message": message,
            "lastTransitionTime": since,
        }
        if generation:
            condition["observedGeneration"] = generation
        return condition

    async def _patch(self, group: PodGroup, patch: dict[str, Any]) -> None:
        meta = group.metadata
        try:
            await self._api.patch_status(POD_GROUPS, meta.namespace, meta.name, patch)
        except ApiError as error:
            key = f"{meta.namespace}/{meta.name}"
            log.error("Failed to update PodGroup status", err=error, podGroup=key)
