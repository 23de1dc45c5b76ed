"""Evicts pods through the Eviction API, each of them once, even if the process is killed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from typing import Literal

import msgspec

from proreus.base import logs
from proreus.base.errors import ApiError, Conflict, NotFound, TooManyRequests
from proreus.client.http.responses import read_json
from proreus.client.http.session import ApiClient
from proreus.controller.controller_metrics import ControllerMetrics
from proreus.controller.evictions.eviction_record import EvictionRecord, RecordedEviction
from proreus.objects.kinds import PODS

log = logs.logger(__name__)

_PLAN_SECONDS = 300.0
"""A plan that is older was made for another cluster: it is dropped, and made again perhaps."""

_State = Literal["done", "refused"]

Choose = Callable[[list[RecordedEviction]], Iterable[RecordedEviction]]
"""Returns the evictions to make now, given the record; none that is in the record of the period."""


class PodEvictor:
    """Carries out evictions, one plan after the other; ``remember_seconds``: for how long an
    eviction that is done stays in the record."""

    def __init__(
        self,
        client: ApiClient,
        record: EvictionRecord,
        metrics: ControllerMetrics,
        remember_seconds: float,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._client = client
        self._record = record
        self._metrics = metrics
        self._remember_seconds = remember_seconds
        self._now = now
        self._one_plan = asyncio.Lock()

    async def finish(self) -> None:
        """Carry out the planned evictions of any process; raise ``ApiError``."""
        async with self._one_plan:
            await self._finish(await self._record.read())

    async def evict(self, choose: Choose) -> None:
        """Finish the last plan, then evict the pods that are chosen; raises ``ApiError``.

        While evictions are refused, others are chosen in their place.
        """
        async with self._one_plan:
            recorded = await self._finish(await self._record.read())
            while chosen := list(choose(recorded)):
                oldest = self._now() - self._remember_seconds
                planned = [*(one for one in recorded if one.at > oldest), *chosen]
                await self._record.write(planned)
                recorded = await self._finish(planned)

    async def _finish(self, recorded: list[RecordedEviction]) -> list[RecordedEviction]:
        """Carry out a plan and record it; return the record without outdated plans."""
        if all(one.state != "planned" for one in recorded):
            return recorded
        after: list[RecordedEviction] = []
        for one in recorded:
            if one.state != "planned":
                after.append(one)
            elif (state := await self._evict(one)) is not None:
                after.append(msgspec.structs.replace(one, state=state))
        await self._record.write(after)
        return after

    async def _evict(self, planned: RecordedEviction) -> _State | None:
        """Evict a pod unless it is gone or going; return the state that follows.

        Return None if the plan is too old.
        """
        results = self._metrics.evictions_total
        namespace, _, name = planned.pod.partition("/")
        path = PODS.path(namespace, name)
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
            # Another pod of that name, of a StatefulSet, is not the one that was meant.
            "deleteOptions": {"preconditions": {"uid": planned.uid}},
        }
        try:
            if await self._is_going(path, planned.uid):
                results.labels("gone").inc()
                return "done"
            if self._now() - planned.at > _PLAN_SECONDS:
                return None
            body = msgspec.json.encode(eviction)
            await self._client.request("POST", f"{path}/eviction", body)
        except (NotFound, Conflict):
            results.labels("gone").inc()
            return "done"
        except TooManyRequests as error:
            log.info("An eviction is refused", pod=planned.pod, err=error.message)
            results.labels("refused").inc()
            return "refused"
        except ApiError as error:
            if not error.status:
                # No answer: it stays planned, and the next cycle sees whether it happened.
                results.labels("error").inc()
                raise
            # Such as 500 for a pod of two PodDisruptionBudgets: that pod stays, others go on. After
            # a timeout of the apiserver it may be going all the same.
            log.warning("An eviction failed", pod=planned.pod, err=error.message)
            results.labels("error").inc()
            return "done" if await self._is_going(path, planned.uid) else "refused"
        log.info("Evicted a pod", pod=planned.pod, node=planned.node, workload=planned.workload)
        results.labels("evicted").inc()
        return "done"

    async def _is_going(self, path: str, uid: str) -> bool:
        """Return whether a pod is gone, terminating, or another by now; raises ``ApiError``."""
        try:
            meta = read_json(await self._client.request("GET", path))["metadata"]
        except NotFound:
            return True
        return meta["uid"] != uid or "deletionTimestamp" in meta
