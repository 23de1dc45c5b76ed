"""Writes the condition of groups that tells whether they were scheduled.

One write a group at a time: two at once might arrive in the wrong order, and a scheduled group
would keep the condition False for ever.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

from msgspec import Struct

from proreus.base.clock import Clock, rfc3339
from proreus.base.errors import ApiError
from proreus.base.logs import logger
from proreus.base.repeated_failures import LineLimit, RefusalPause
from proreus.engine.cache.pod_group_states import PodGroupStates
from proreus.engine.cycles.failure import SCHEDULER_ERROR, UNSCHEDULABLE
from proreus.engine.environment import Environment
from proreus.framework.assume_cache import parse_resource_version, resource_version_of
from proreus.framework.handle import ApiWriter
from proreus.framework.status import Status
from proreus.objects.meta import Resource
from proreus.objects.scheduling import CompositePodGroup, Condition, PodGroup

log = logger(__name__)

_Group = PodGroup | CompositePodGroup

_SCHEDULED = "Scheduled"


class _Outcome(NamedTuple):
    """``reason`` and ``message`` of a condition."""

    reason: str
    message: str = ""

    @property
    def scheduled(self) -> bool:
        return self.reason == _SCHEDULED


class _WrittenCondition(Struct, frozen=True):
    """The condition written last to a group, and the resource version after that write."""

    uid: str
    version: int
    condition: Condition

    def is_newer_than(self, group: _Group | None) -> bool:
        """Return whether the informer's version of the group is older than this write."""
        return (
            group is not None
            and group.metadata.uid == self.uid
            and resource_version_of(group) < self.version
        )


@dataclass(eq=False)
class PodGroupStatusWriter:
    """Writes the conditions of one kind of groups in the background.

    ``groups``: the informer's store. ``condition_type`` and ``resource``: as the emulated version
    of Kubernetes has them. ``states``: remembers which groups were reported as scheduled; None:
    their conditions alone tell.
    """

    groups: Mapping[str, _Group]
    api: ApiWriter
    clock: Clock
    spawn: Callable[[Coroutine[Any, Any, None]], object]
    condition_type: str
    resource: Resource[Any]
    states: PodGroupStates | None = None

    @classmethod
    def of(cls, environment: Environment, resource: Resource[Any], condition_type: str) -> Self:
        """Return a writer that finds and writes groups in an environment."""
        return cls(
            environment.stores.store(resource),
            environment.api,
            environment.clock,
            environment.spawn,
            condition_type,
            resource,
        )

    def __post_init__(self) -> None:
        """Begin without writes."""
        self._waiting: dict[str, _Outcome] = {}
        """The outcome to write after the current write: the latest one, but success stays."""
        self._writing: set[str] = set()
        self._written: dict[str, _WrittenCondition] = {}
        """Writes that the informer has not seen yet: until then they are the current condition."""
        self._refusals: RefusalPause[str] = RefusalPause(self.clock.monotonic)
        """By UID of the group."""
        self._failures_logged = LineLimit(now=self.clock.monotonic)

    def write(self, key: str, status: Status | None, *, invalid: bool = False) -> None:
        """Record the result of an attempt for a group (None if scheduled). True stays True.

        ``invalid``: the groups cannot be scheduled as they are.
        """
        if key not in self.groups:
            text = f"Failed to get {self.resource.kind} for status update"
            log.error(text, err="not found", podGroup=key)
            return
        # A success that waits to be written must not be lost to a later failure of single pods.
        if key not in self._waiting or not self._waiting[key].scheduled:
            self._waiting[key] = self._outcome(status, invalid=invalid)
        if key not in self._writing:
            self._writing.add(key)
            self.spawn(self._write_all(key))

    async def _write_all(self, key: str) -> None:
        try:
            while key in self._waiting:
                outcome = self._waiting.pop(key)
                group = self.groups.get(key)
                condition = None if group is None else self._condition(key, group, outcome)
                if group is not None and condition is not None:
                    await self._patch(group, condition)
        finally:
            self._writing.discard(key)
            self._waiting.pop(key, None)

    def _outcome(self, status: Status | None, *, invalid: bool) -> _Outcome:
        if status is None:
            return _Outcome(_SCHEDULED)
        if status.rejected:
            return _Outcome(UNSCHEDULABLE, status.message)
        return _Outcome(
            f"{self.resource.kind}Error" if invalid else SCHEDULER_ERROR, status.message
        )

    def _condition(self, key: str, group: _Group, outcome: _Outcome) -> Condition | None:
        """Return the new condition; None when there is nothing to change."""
        state = None if self.states is None else self.states.get(key)
        if state is not None and state.reported_uid == group.metadata.uid != "":
            return None
        reason, message = outcome
        value = "True" if outcome.scheduled else "False"
        old = self._current_condition(key, group)
        generation = group.metadata.generation
        since: str | None = rfc3339(self.clock.now())
        if old is not None:
            # A group that was scheduled once stays so, whatever happens to pods added later.
            if old.status == "True" != value:
                return None
            known = (old.status, old.reason, old.message, old.observed_generation)
            if known == (value, reason, message, generation):
                return None
            if old.status == value and old.last_transition_time:
                since = old.last_transition_time
        return Condition(self.condition_type, value, reason, message, generation, since)

    def _current_condition(self, key: str, group: _Group) -> Condition | None:
        """Return the current condition of a group: our last write, or the informer's."""
        self._written = {
            k: t for k, t in self._written.items() if t.is_newer_than(self.groups.get(k))
        }
        written = self._written.get(key)
        return group.condition(self.condition_type) if written is None else written.condition

    async def _patch(self, group: _Group, condition: Condition) -> None:
        meta = group.metadata
        body: dict[str, Any] = {
            "type": condition.type,
            "status": condition.status,
            "reason": condition.reason,
            "message": condition.message,
            "lastTransitionTime": condition.last_transition_time,
        }
        if condition.observed_generation:
            body["observedGeneration"] = condition.observed_generation
        patch = {"status": {"conditions": [body]}}
        key = f"{meta.namespace}/{meta.name}"
        # Every attempt that fails asks for it again, several a second in a busy cluster; a success
        # is written once.
        if condition.status != "True" and self._refusals.is_backing_off(meta.uid):
            return
        try:
            patched = await self.api.patch_status(self.resource, meta.namespace, meta.name, patch)
        except ApiError as error:
            repeated = self._refusals.write_failed(meta.uid, error.status)
            if not repeated and self._failures_logged.allows():
                text = f"Failed to update {self.resource.kind} status"
                log.error(text, err=error, podGroup=key)
        else:
            self._refusals.succeeded(meta.uid)
            state = None if self.states is None else self.states.get(key)
            if state is not None and condition.status == "True":
                state.reported_uid = meta.uid
            version = parse_resource_version(patched["metadata"].get("resourceVersion", ""))
            self._written[key] = _WrittenCondition(meta.uid, version, condition)
