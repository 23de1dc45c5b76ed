"""Compares repeatedly: finds differences, waits, looks again, reports and heals the rest.

    request (SIGUSR2) ─┐
    every few minutes ─┴► compare ─► suspects ─► 5 s ─► still there? ─► counted, logged, healed

What differs at one moment may be an event that has not arrived yet; only a difference that is still
there after ``SETTLE_SECONDS`` counts. Stores are healed before what was derived from them.
"""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import InitVar, dataclass
from functools import partial
from time import perf_counter
from typing import Any

from msgspec import Struct

from proreus.base.errors import ApiError, CacheCorrupted
from proreus.base.logs import logger
from proreus.base.metrics import SchedulerMetrics
from proreus.client.watching.store_comparer import MAX_SUSPECTS, Correction, StoreComparer
from proreus.engine.cache.cache import Cache
from proreus.engine.debugger.cache_comparer import ABANDONED, CacheComparer, Difference
from proreus.engine.queue.scheduling_queue import SchedulingQueue
from proreus.framework.attempt_budget import Stopwatch
from proreus.framework.node_info import NodeInfo

log = logger(__name__)

SETTLE_SECONDS = 5.0
SLICE_SECONDS = 0.003
PAUSE_SECONDS = 0.01
STORE = "store"
_NAMED = 10
"""How many objects a line in the log names."""
_PODS_A_LINE = 100


class _Round(Struct):
    """The suspects of one comparison, and whether all of it could be made."""

    suspects: list[tuple[StoreComparer[Any], str, Any]]
    local: list[Difference]
    complete: bool = True


class TimeSlices:
    """Pauses work of low priority, so that the event loop does everything else in between."""

    def __init__(self, stopwatch: Stopwatch = perf_counter) -> None:
        self._stopwatch = stopwatch
        self._began = stopwatch()

    async def checkpoint(self) -> None:
        """Let the event loop turn, and pause, if ``SLICE_SECONDS`` have passed since the last time.

        To be awaited often: one step between two calls is what a slice may exceed its length by.
        """
        if self._stopwatch() - self._began >= SLICE_SECONDS:
            await asyncio.sleep(PAUSE_SECONDS)
            self._began = self._stopwatch()

    def restart(self) -> None:
        """Begin a new slice: the caller has just awaited something else."""
        self._began = self._stopwatch()


@dataclass(kw_only=True, eq=False)
class CacheDebugger:
    """Compares, heals and dumps the scheduler's state (kube-scheduler's ``CacheDebugger``).

    ``stores``: returns the comparers of all informers, that of pods among them. ``cache`` and
    ``queue``: to be dumped. ``between_cycles``: calls a function now, or as soon as the current
    scheduling cycle has ended.
    """

    comparer: CacheComparer
    stores: Callable[[], Iterable[StoreComparer[Any]]]
    cache: Cache
    queue: SchedulingQueue
    between_cycles: Callable[[Callable[[], None]], None]
    metrics: SchedulerMetrics
    stopwatch: InitVar[Stopwatch]
    rng: random.Random

    def __post_init__(self, stopwatch: Stopwatch) -> None:
        """Begin the first slice of time."""
        self._slices = TimeSlices(stopwatch)
        self._requested = asyncio.Event()

    def request(self) -> None:
        """Compare and dump as soon as possible; to be called on SIGUSR2."""
        self._requested.set()

    async def run(self, interval_seconds: float, leads: Callable[[], bool]) -> None:
        """Compare on request, and every ``interval_seconds`` (0 for never) while ``leads()``."""
        while True:
            # Not all replicas at the same moment, should several believe that they lead.
            seconds = interval_seconds * self.rng.uniform(0.9, 1.1) or None
            try:
                async with asyncio.timeout(seconds):
                    await self._requested.wait()
            except TimeoutError:
                if leads():
                    await self._compare_safely()
                continue
            self._requested.clear()
            await self._compare_safely(dump=True)

    async def _compare_safely(self, dump: bool = False) -> None:
        try:
            await self.compare()
            if dump:
                await self._dump()
        except CacheCorrupted:
            raise
        except Exception as error:
            # A check must not end what it checks.
            self.metrics.cache_comparisons_total.labels("failure").inc()
            log.error("Comparing the cache failed", err=error, trace=True)

    async def compare(self) -> list[str]:
        """Compare everything; return a description of each difference that was healed."""
        self._slices.restart()
        found = await self._suspects()
        healed: dict[str, list[str]] = defaultdict(list)
        if found.suspects or found.local:
            await asyncio.sleep(SETTLE_SECONDS)
            try:
                await self._heal_stores(found, healed[STORE])
                await self._heal_local(found, healed)
            finally:
                for structure, objects in healed.items():
                    if objects:
                        self._report(structure, objects)
        result = "success" if found.complete else "failure"
        self.metrics.cache_comparisons_total.labels(result).inc()
        descriptions = [one for objects in healed.values() for one in objects]
        log.v(2).info("Compared the cache", result=result, corrected=len(descriptions))
        return descriptions

    # ---- find ----------------------------------------------------------------------------------

    async def _suspects(self) -> _Round:
        """Compare everything for the first time."""
        found = _Round([], [])
        for store in self.stores():
            try:
                suspects = await store.suspects(self._slices.checkpoint)
            except ApiError as error:
                found.complete = False
                log.warning("Cannot compare with the apiserver", kind=store.kind, err=error)
                continue
            # The rest is found by the next comparison.
            left = MAX_SUSPECTS - len(found.suspects)
            found.suspects += [(store, key, seen) for key, seen in list(suspects.items())[:left]]
        found.local = await self.comparer.differences(self._slices.checkpoint)
        return found

    async def _is_unbound(self, difference: Difference) -> bool:
        """Return whether the apiserver, too, has an assumed pod without a node."""
        # A binding whose event is late looks the same from here. To forget that pod would give
        # its resources away a second time.
        for store in self.stores():
            if store.kind == difference.kind:
                try:
                    return await store.agrees(difference.key)
                except ApiError:
                    return False
        return False

    # ---- heal ----------------------------------------------------------------------------------

    async def _heal_stores(self, found: _Round, healed: list[str]) -> None:
        """Deliver the events that are still missing, one by one."""
        for store, key, seen in found.suspects:
            try:
                correction = await store.confirm(key, seen)
            except ApiError as error:
                found.complete = False
                log.warning("Cannot compare with the apiserver", kind=store.kind, err=error)
                break
            self._slices.restart()
            if correction is not None:
                await self._change_between_cycles(partial(_correct, store, correction, healed))

    async def _heal_local(self, found: _Round, healed: dict[str, list[str]]) -> None:
        """Heal the objects that still differ from the stores, one by one."""
        for difference in found.local:
            await self._slices.checkpoint()
            if self.comparer.persists(difference) and (
                difference.fault != ABANDONED or await self._is_unbound(difference)
            ):
                list_of = healed[difference.structure]
                await self._change_between_cycles(partial(self._heal_one, difference, list_of))

    async def _change_between_cycles(self, change: Callable[[], None]) -> None:
        # A cycle that awaits an extender relies on rows that do not change meanwhile.
        done = asyncio.get_running_loop().create_future()

        def call() -> None:
            if done.cancelled():
                return
            try:
                change()
            except Exception as error:
                done.set_exception(error)
            else:
                done.set_result(None)

        self.between_cycles(call)
        await done
        await self._slices.checkpoint()

    def _heal_one(self, difference: Difference, healed: list[str]) -> None:
        # A cycle may have ended meanwhile.
        if not self.comparer.persists(difference):
            return
        try:
            self.comparer.heal(difference)
        except CacheCorrupted:
            raise
        except Exception as error:
            log.error("Cannot correct a difference", err=error, trace=True, object=str(difference))
        else:
            healed.append(str(difference))

    def _report(self, structure: str, objects: list[str]) -> None:
        self.metrics.cache_differences_total.labels(structure).inc(len(objects))
        more = len(objects) - _NAMED
        log.error(
            "The scheduler's state differed from the apiserver's and was corrected",
            structure=structure,
            count=len(objects),
            objects=[*objects[:_NAMED], *([f"{more} more"] if more > 0 else [])],
        )

    # ---- dump ----------------------------------------------------------------------------------

    async def _dump(self) -> None:
        """Log a line for each node, then the pods of each queue (``CacheDumper``)."""
        cache, queue = self.cache, self.queue
        for name in [info.name for info in cache.table]:
            info = cache.node_info(name)
            if info is not None:
                self._dump_node(info)
            await self._slices.checkpoint()
        pods_of = {
            "active": queue.active_pods,
            "backoff": queue.backoff_pods,
            "unschedulable": queue.unschedulable_pods,
            "gated": queue.gated_pods,
        }
        for name, pods in pods_of.items():
            await self._dump_pods(name, [queued.key for queued in pods()])
        await self._dump_pods("in flight", list(queue.in_flight_keys()))
        for node in queue.nominator.nominated_nodes():
            keys = [pod.key for pod in queue.nominator.nominated_pods(node)]
            log.info("Dump of nominated pods", node=node, pods=keys)
            await self._slices.checkpoint()

    def _dump_node(self, info: NodeInfo) -> None:
        assumed = self.cache.is_assumed
        log.info(
            "Dump of cached node",
            node=info.name,
            row=info.row,
            requested=dict(info.requested),
            allocatable=dict(info.allocatable),
            pods=[f"{p.key}{' (assumed)' if assumed(p.uid) else ''}" for p in info.pods.values()],
        )

    async def _dump_pods(self, queue: str, keys: list[str]) -> None:
        log.info("Dump of scheduling queue", queue=queue, count=len(keys))
        for start in range(0, len(keys), _PODS_A_LINE):
            pods = keys[start : start + _PODS_A_LINE]
            log.info("Dump of scheduling queue", queue=queue, pods=pods)
            await self._slices.checkpoint()


def _correct(store: StoreComparer[Any], correction: Correction[Any], healed: list[str]) -> None:
    if store.heal(correction):
        healed.append(f"{store.kind} {correction.key} {correction.fault}")
