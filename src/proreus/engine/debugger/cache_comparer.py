"""Compares cache, columns and queue with the informers' stores.

Handlers are called in the same turn of the event loop in which a store changes, so between two
turns everything must agree, except for pods that are being scheduled or bound. One object is
compared at a time: a caller may let the loop turn between any two.

    node    in the store  <=> row of the table; same version; every cell follows from node and pods
    pod     on a node     <=> in the cache, on that node, same version
            ours, pending <=> in the queue, same version; or popped, assumed, or being deleted
            ours, resize deferred <=> in the queue as well
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from msgspec import Struct

from proreus.client.watching.store_comparer import GONE, MISSING, OUTDATED
from proreus.engine.cache.cache import MISPLACED, Cache
from proreus.engine.cluster_events import as_assigned
from proreus.engine.event_handlers import NodeHandlers, PodHandlers
from proreus.engine.groups.sources import GroupedPodHandlers
from proreus.engine.queue.scheduling_queue import SchedulingQueue
from proreus.framework.events import NODE_ADD
from proreus.framework.pod_info import PodInfo
from proreus.objects.meta import version_of
from proreus.objects.node import Node
from proreus.objects.pod import Pod

CACHE, COLUMNS, QUEUE = "cache", "columns", "queue"

ABANDONED = "is assumed although nothing binds it"


class Difference(Struct, frozen=True):
    """A fault of one object in one structure; compared by value."""

    structure: str
    kind: str
    key: str
    uid: str
    fault: str

    def __str__(self) -> str:
        return f"{self.kind} {self.key} {self.fault}"


_Comparison = Callable[[str], Difference | None]


@dataclass(kw_only=True, eq=False)
class CacheComparer:
    """Finds differences, and heals them by calling the ordinary handlers.

    ``nodes``, ``pods``: the informers' stores. ``is_under_way``: whether the pod of a UID was
    popped and its attempt or binding has not ended.
    """

    cache: Cache
    queue: SchedulingQueue
    nodes: Mapping[str, Node]
    pods: Mapping[str, Pod]
    is_under_way: Callable[[str], bool]
    node_handlers: NodeHandlers
    pod_handlers: PodHandlers | GroupedPodHandlers

    # ---- find ----------------------------------------------------------------------------------

    async def differences(self, checkpoint: Callable[[], Awaitable[None]]) -> list[Difference]:
        """Compare everything once; ``checkpoint`` is awaited between any two objects."""
        found: dict[Difference, None] = {}
        comparisons: tuple[tuple[_Comparison, Callable[[], list[str]]], ...] = (
            (self._compare_node, self._all_nodes),
            (self._compare_stored_pod, lambda: list(self.pods)),
            (self._compare_cached_pod, self.cache.uids),
            (self._compare_queued_pod, self.queue.keys),
        )
        for compare, names in comparisons:
            for name in names():
                difference = compare(name)
                if difference is not None:
                    found[difference] = None
                await checkpoint()
        return list(found)

    def persists(self, difference: Difference) -> bool:
        """Return whether a difference is still there."""
        if difference.kind == "Node":
            return self._compare_node(difference.key) == difference
        return difference in (
            self._compare_stored_pod(difference.key),
            self._compare_cached_pod(difference.uid),
            self._compare_queued_pod(difference.key),
        )

    def _all_nodes(self) -> list[str]:
        infos = (info.name for info in self.cache.table)
        return list(dict.fromkeys((*self.nodes, *self.cache.table.rows, *infos)))

    def _compare_node(self, name: str) -> Difference | None:
        stored, info = self.nodes.get(name), self.cache.node_info(name)
        cached = None if info is None else info.node
        # A row that may be another node's comes first: anything else would be written there.
        column = self.cache.node_difference(name)
        fault = "" if column == MISPLACED else _fault_of_node(cached, stored)
        structure = CACHE if fault else COLUMNS
        if column and not fault:
            fault = f"has a wrong {column}"
        uid = "" if stored is None else stored.metadata.uid
        return Difference(structure, "Node", name, uid, fault) if fault else None

    def _compare_stored_pod(self, key: str) -> Difference | None:
        pod = self.pods.get(key)
        if pod is None:
            return None
        if pod.spec.node_name:
            structure, fault = CACHE, self._fault_of_assigned(pod)
            if not fault and self.pod_handlers.is_queued_on_node(pod):
                structure, fault = QUEUE, self._fault_of_queued(key, pod)
            elif not fault and self._is_queued(key, pod):
                structure, fault = QUEUE, "is queued although it has a node"
        else:
            structure, fault = self._fault_of_pending(key, pod)
        return Difference(structure, "Pod", key, pod.metadata.uid, fault) if fault else None

    def _fault_of_assigned(self, pod: Pod) -> str:
        uid = pod.metadata.uid
        cached = self.cache.get_pod(uid)
        if cached is None:
            return MISSING
        if self.cache.is_assumed(uid):
            return "is assumed although it is bound"
        if self.cache.node_of(uid) != pod.spec.node_name:
            return "is on another node"
        return "" if version_of(cached.pod) == version_of(pod) else OUTDATED

    def _fault_of_pending(self, key: str, pod: Pod) -> tuple[str, str]:
        uid = pod.metadata.uid
        if self.cache.is_assumed(uid):
            return CACHE, "" if self.is_under_way(uid) else ABANDONED
        if self.cache.get_pod(uid) is not None:
            return CACHE, "is on a node although it is not bound"
        ours = self.pod_handlers.responsible_for_pod(pod)
        return QUEUE, self._fault_of_queued(key, pod) if ours else ""

    def _fault_of_queued(self, key: str, pod: Pod) -> str:
        uid = pod.metadata.uid
        # Pods that are being deleted are dropped when they are popped; those in flight are read
        # anew from the store when their attempt fails.
        if pod.metadata.deletion_timestamp or self.is_under_way(uid):
            return ""
        queued = self.queue.get(key)
        if queued is None or queued.uid != uid:
            return MISSING
        return "" if version_of(queued.pod) == version_of(pod) else OUTDATED

    def _is_queued(self, key: str, pod: Pod) -> bool:
        queued = self.queue.get(key)
        return queued is not None and queued.uid == pod.metadata.uid

    def _compare_cached_pod(self, uid: str) -> Difference | None:
        cached = self.cache.get_pod(uid)
        if cached is None:
            return None
        info = self.cache.node_info(self.cache.node_of(uid))
        if info is None or uid not in info.pods:
            return Difference(COLUMNS, "Pod", cached.key, uid, "is not on its node")
        stored = self.pods.get(cached.key)
        gone = stored is None or stored.metadata.uid != uid
        # The binding cycle of a pod that is deleted meanwhile ends by itself, and cleans up.
        if gone and not self.is_under_way(uid):
            return Difference(CACHE, "Pod", cached.key, uid, GONE)
        return None

    def _compare_queued_pod(self, key: str) -> Difference | None:
        queued = self.queue.get(key)
        if queued is None:
            return None
        stored = self.pods.get(key)
        if stored is None or stored.metadata.uid != queued.uid:
            return Difference(QUEUE, "Pod", key, queued.uid, GONE)
        return None

    # ---- heal ----------------------------------------------------------------------------------

    def heal(self, difference: Difference) -> None:
        """Repair a difference: the stored object is fed to the handlers again.

        To be called between scheduling cycles.
        """
        if difference.kind == "Node":
            self._heal_node(difference)
        elif difference.structure == COLUMNS:
            self.cache.rebuild_node(self.cache.node_of(difference.uid))
        else:
            self._heal_pod(difference)

    def _heal_node(self, difference: Difference) -> None:
        name = difference.key
        stored, info = self.nodes.get(name), self.cache.node_info(name)
        cached = None if info is None else info.node
        if difference.structure == COLUMNS:
            self.cache.rebuild_node(name)
            # Pods may have been rejected because of the wrong cells.
            self.queue.move_all_to_active_or_backoff(NODE_ADD, None, stored)
        elif stored is None:
            if cached is not None:
                self.node_handlers.on_delete(cached, True)
        elif cached is None:
            self.node_handlers.on_add(stored)
        else:
            self.node_handlers.on_update(cached, stored)

    def _heal_pod(self, difference: Difference) -> None:
        key, uid = difference.key, difference.uid
        stored, held = self.pods.get(key), self._held(key, uid)
        if difference.fault == OUTDATED and stored is not None and held is not None:
            self.pod_handlers.on_update(held.pod, stored)
            return
        if held is not None:
            node_name = self.cache.node_of(uid)
            pod = as_assigned(held.pod, node_name) if node_name else held.pod
            self.pod_handlers.on_delete(pod, True)
        # Of another uid, it has differences of its own, if it has any.
        if stored is not None and stored.metadata.uid == uid and self._held(key, uid) is None:
            self.pod_handlers.on_add(stored)

    def _held(self, key: str, uid: str) -> PodInfo | None:
        """Return the pod as the cache has it, or else as the queue has it."""
        cached, queued = self.cache.get_pod(uid), self.queue.get(key)
        if cached is not None:
            return cached
        return queued.info if queued is not None and queued.uid == uid else None


def _fault_of_node(cached: Node | None, stored: Node | None) -> str:
    if stored is None:
        return "" if cached is None else GONE
    if cached is None:
        return MISSING
    return "" if version_of(cached) == version_of(stored) else OUTDATED
