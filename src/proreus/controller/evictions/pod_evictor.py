"""Evicts pods through the Eviction API, each of them once, whatever happens to the process."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable

import msgspec

from proreus import logs
from proreus.client.responses import read_json
from proreus.client.session import ApiClient
from proreus.controller.controller_metrics import ControllerMetrics
from proreus.controller.evictions.eviction_record import EvictionRecord, RecordedEviction
from proreus.errors import ApiError, Conflict, NotFound, TooManyRequests
from proreus.objects.kinds import PODS

log = logs.logger(__name__)

_PLAN_SECONDS = 300.0
"""A plan that is older was made for another cluster: it is dropped, and made again perhaps."""

Choose = Callable[[list[RecordedEviction]], Iterable[RecordedEviction]]
"""Returns the evictions to make now, of those that are recorded."""


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
        """Carry out what was planned, by whichever process; raises ``ApiError``."""
        async with self._one_plan:
            await self._finish(await self._record.read())

    async def evict(self, choose: Choose) -> None:
        """Finish what was planned, then plan and evict what is chosen; raises ``ApiError``."""
        async with self._one_plan:
            recorded = await self._finish(await self._record.read())
            chosen = list(choose(recorded))
            if chosen:
                oldest = self._now() - self._remember_seconds
                planned = [*(one for one in recorded if one.at > oldest), *chosen]
                await self._record.write(planned)
                await self._finish(planned)

    async def _finish(self, recorded: list[RecordedEviction]) -> list[RecordedEviction]:
        if all(one.state == "done" for one in recorded):
            return recorded
        after: list[RecordedEviction] = []
        for one in recorded:
            if one.state == "planned" and not await self._evict(one):
                continue
            after.append(msgspec.structs.replace(one, state="done"))
        await self._record.write(after)
        return after

    async def _evict(self, planned: RecordedEviction) -> bool:
        """Evict a pod unless it is gone or going; return False if it stays where it is."""
        namespace, _, name = planned.pod.partition("/")
        path = PODS.path(namespace, name)
        results = self._metrics.evictions_total
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
            # Another pod of that name, of a StatefulSet, is not the one that was meant.
            "deleteOptions": {"preconditions": {"uid": planned.uid}},
        }
        try:
            meta = read_json(await self._client.request("GET", path))["metadata"]
            if meta["uid"] != planned.uid or meta.get("deletionTimestamp"):
                results.labels("gone").inc()
                return True
            if self._now() - planned.at > _PLAN_SECONDS:
                return False
            body = msgspec.json.encode(eviction)
            await self._client.request("POST", f"{path}/eviction", body)
        except (NotFound, Conflict):
            results.labels("gone").inc()
            return True
        except TooManyRequests as error:
            log.info("An eviction is refused", pod=planned.pod, err=error.message)
            results.labels("refused").inc()
            return False
        except ApiError:
            # It stays planned; whether it happened is for the next cycle to see.
            results.labels("error").inc()
            raise
        log.info("Evicted a pod", pod=planned.pod, node=planned.node, workload=planned.workload)
        results.labels("evicted").inc()
        return True
