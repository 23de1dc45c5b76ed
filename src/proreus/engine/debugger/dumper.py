"""Writes nodes and queue into the log (kube-scheduler's ``CacheDumper``)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from proreus.base.logs import logger
from proreus.engine.cache.cache import Cache
from proreus.engine.queue.scheduling_queue import SchedulingQueue
from proreus.framework.node_info import NodeInfo

log = logger(__name__)

_PODS_A_LINE = 100


class CacheDumper:
    """Dumps one scheduler's cache and queue."""

    def __init__(self, cache: Cache, queue: SchedulingQueue) -> None:
        self._cache = cache
        self._queue = queue

    async def dump(self, checkpoint: Callable[[], Awaitable[None]]) -> None:
        """Log a line for each node, then the pods of each queue.

        ``checkpoint`` is awaited between lines.
        """
        for name in [info.name for info in self._cache.table]:
            info = self._cache.node_info(name)
            if info is not None:
                self._dump_node(info)
            await checkpoint()
        pods_of = {
            "active": self._queue.active_pods,
            "backoff": self._queue.backoff_pods,
            "unschedulable": self._queue.unschedulable_pods,
            "gated": self._queue.gated_pods,
        }
        for queue, pods in pods_of.items():
            await self._dump_pods(queue, [queued.key for queued in pods()], checkpoint)
        await self._dump_pods("in flight", list(self._queue.in_flight_keys()), checkpoint)
        nominator = self._queue.nominator
        for node in nominator.nominated_nodes():
            keys = [pod.key for pod in nominator.nominated_pods(node)]
            log.info("Dump of nominated pods", node=node, pods=keys)
            await checkpoint()

    def _dump_node(self, info: NodeInfo) -> None:
        assumed = self._cache.is_assumed
        log.info(
            "Dump of cached node",
            node=info.name,
            row=info.row,
            requested=dict(info.requested),
            allocatable=dict(info.allocatable),
            pods=[f"{p.key}{' (assumed)' if assumed(p.uid) else ''}" for p in info.pods.values()],
        )

    async def _dump_pods(
        self, queue: str, keys: list[str], checkpoint: Callable[[], Awaitable[None]]
    ) -> None:
        log.info("Dump of scheduling queue", queue=queue, count=len(keys))
        for start in range(0, len(keys), _PODS_A_LINE):
            pods = keys[start : start + _PODS_A_LINE]
            log.info("Dump of scheduling queue", queue=queue, pods=pods)
            await checkpoint()
