"""What we believe about nodes and pods: what the apiserver told us, and what we assume.

A decided pod is *assumed* on its node at once, so that the next decision counts with it; the watch
event of its binding confirms it. A state machine without I/O: its clock is an argument, its
columns (``table``) are kept in step with every call.

Invariants: every pod is in exactly one ``NodeInfo``; a node entry without a Node object (a
*ghost*) is in no row and exists only while pods are on it; ``assumed`` pods are in ``_pods``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from msgspec.structs import replace

from proreus.cache.node_tree import NodeTree
from proreus.cache.pod_group_states import PodGroupStates
from proreus.clock import Clock
from proreus.errors import CacheCorrupted
from proreus.framework.cluster_table import ClusterTable
from proreus.framework.node_info import NodeInfo
from proreus.framework.pod_info import PodInfo
from proreus.framework.verdicts import Rows
from proreus.objects.node import Node
from proreus.objects.pod import Pod


class CacheError(Exception):
    """An operation that does not go with what the cache holds."""


@dataclass(slots=True)
class _Entry:
    info: PodInfo
    node_name: str
    assumed: bool
    expires: float | None = None


class Cache:
    """Nodes, the pods on them, and which of those are only assumed.

    ``assumed_ttl_seconds``: how long an assumed pod whose binding was acknowledged may wait for
    its confirmation. None, the default, is for ever, as in kube-scheduler 1.36. ``pod_groups``:
    whether to keep book of PodGroups (gate GenericWorkload); pods without a node are to be told to
    ``pod_group_states`` by whoever hears of them.
    """

    def __init__(
        self, clock: Clock, assumed_ttl_seconds: float | None = None, pod_groups: bool = False
    ) -> None:
        self.table = ClusterTable()
        self.pod_group_states = PodGroupStates()
        self._groups = self.pod_group_states if pod_groups else None
        self._clock = clock
        self._assumed_ttl = assumed_ttl_seconds
        self._tree = NodeTree()
        self._pods: dict[str, _Entry] = {}
        self._assumed: set[str] = set()
        self._nodes_without_object: dict[str, NodeInfo] = {}

    # ---- pods ----------------------------------------------------------------------------------

    def assume(self, pod: PodInfo, node_name: str) -> None:
        """Count a pod in on its chosen node; raises ``CacheError`` when it is here already."""
        if pod.uid in self._pods:
            raise CacheError(f"pod {_name(pod)} is in the cache, so can't be assumed")
        self._put(pod, node_name, assumed=True)
        if self._groups is not None:
            self._groups.assume(pod, node_name)

    def update_assumed(self, pod: PodInfo) -> None:
        """Exchange an assumed pod for a version that asks for something else; do not, if gone."""
        entry = self._pods.get(pod.uid)
        if entry is not None and entry.assumed:
            self._drop(pod.uid)
            self._put(pod, entry.node_name, assumed=True)

    def forget(self, pod: PodInfo, node_name: str) -> None:
        """Take an assumption back; raises ``CacheError`` when the pod is not assumed there."""
        entry = self._pods.get(pod.uid)
        if entry is None:
            return
        if entry.node_name != node_name:
            raise CacheError(
                f"pod {_name(pod)} was assumed on {node_name} but assigned to {entry.node_name}"
            )
        if not entry.assumed:
            raise CacheError(f"pod {_name(pod)} wasn't assumed so cannot be forgotten")
        self._drop(pod.uid)
        if self._groups is not None:
            self._groups.forget(pod)

    def finish_binding(self, uid: str) -> None:
        """Start the time limit of an assumed pod, where there is one: its binding was accepted."""
        entry = self._pods.get(uid)
        if entry is not None and entry.assumed and self._assumed_ttl is not None:
            entry.expires = self._clock.now() + self._assumed_ttl

    def expire_assumed(self) -> list[tuple[PodInfo, str]]:
        """Drop assumed pods whose confirmation is overdue; return them and their nodes' names."""
        now = self._clock.now()
        overdue = [
            uid
            for uid in self._assumed
            if (expires := self._pods[uid].expires) is not None and expires <= now
        ]
        entries = [self._pods[uid] for uid in overdue]
        for uid in overdue:
            pod = self._drop(uid)
            if self._groups is not None:
                self._groups.forget(pod)
        return [(entry.info, entry.node_name) for entry in entries]

    def add_pod(self, pod: PodInfo) -> None:
        """Take over an assigned pod from the apiserver; confirms it where it was assumed."""
        node_name = pod.pod.spec.node_name
        entry = self._pods.get(pod.uid)
        if entry is None:
            self._put(pod, node_name, assumed=False)
        elif entry.assumed:
            if entry.node_name == node_name and _differs_only_by_binding(entry.info, pod):
                self._confirm(entry, pod)
            else:
                self._drop(pod.uid)
                self._put(pod, node_name, assumed=False)
        else:
            raise CacheError(f"pod {_name(pod)} was already in added state")
        if self._groups is not None:
            self._groups.assign(pod)

    def update_pod(self, new: PodInfo) -> None:
        """Take over a change of an assigned pod; raises ``CacheError`` when it is not known."""
        entry = self._pods.get(new.uid)
        if entry is None or entry.assumed:
            raise CacheError(
                f"pod {_name(new)} is not added to scheduler cache, so can't be updated"
            )
        if entry.node_name != new.pod.spec.node_name:
            raise CacheCorrupted(
                f"pod {_name(new)} moved from node {entry.node_name} to {new.pod.spec.node_name}: "
                "the scheduler cache is corrupted and the scheduler must start anew"
            )
        self._drop(new.uid)
        self._put(new, new.pod.spec.node_name, assumed=False)
        if self._groups is not None:
            self._groups.assign(new)

    def remove_pod(self, pod: Pod) -> None:
        """Forget a pod that is gone; raises ``CacheError`` when it is not known."""
        uid, node_name = pod.metadata.uid, pod.spec.node_name
        entry = self._pods.get(uid)
        if entry is None:
            raise CacheError(f"pod {uid} is not found in scheduler cache, so cannot be removed")
        if node_name and entry.node_name != node_name:
            raise CacheCorrupted(
                f"pod {uid} was removed from node {node_name} but is cached on {entry.node_name}: "
                "the scheduler cache is corrupted and the scheduler must start anew"
            )
        self._drop(uid)
        if self._groups is not None:
            self._groups.remove(pod)

    def is_assumed(self, uid: str) -> bool:
        """Tell whether a pod is assumed and not confirmed yet."""
        return uid in self._assumed

    def get_pod(self, uid: str) -> PodInfo | None:
        """Return the cached version of a pod."""
        entry = self._pods.get(uid)
        return None if entry is None else entry.info

    def node_of(self, uid: str) -> str:
        """Return the name of the node that a pod is on; "" when it is not here."""
        entry = self._pods.get(uid)
        return "" if entry is None else entry.node_name

    @property
    def pod_count(self) -> int:
        """Number of pods, assumed ones included."""
        return len(self._pods)

    @property
    def assumed_count(self) -> int:
        """Number of assumed pods."""
        return len(self._assumed)

    @property
    def node_count(self) -> int:
        """Number of nodes, ghosts included."""
        return self.table.size + len(self._nodes_without_object)

    # ---- nodes ---------------------------------------------------------------------------------

    def add_node(self, node: Node) -> None:
        """Take over a node; pods that were on it before it was known come along."""
        name = node.metadata.name
        if name in self.table:
            self.update_node(node)
            return
        info = self._nodes_without_object.pop(name, None) or NodeInfo(name)
        info.set_node(node)
        self.table.add_node(info)
        self._tree.add(node)

    def update_node(self, node: Node) -> None:
        """Take over a change of a node."""
        info = self._info(node.metadata.name)
        if info is None or info.node is None:
            self.add_node(node)
            return
        self._tree.update(info.node, node)
        info.set_node(node)
        self.table.update_node(info)

    def refresh_node(self, node: Node) -> None:
        """Take over a version of a node that differs in nothing that columns hold."""
        info = self._info(node.metadata.name)
        if info is None or info.node is None:
            self.add_node(node)
        else:
            info.node = node

    def remove_node(self, name: str) -> None:
        """Take a node away; while pods are on it, they are remembered without it."""
        info = self._info(name)
        if info is None or info.node is None:
            raise CacheError(f"node {name} is not found")
        self._tree.remove(info.node)
        self.table.remove_node(info)
        info.node = None
        if info.pods:
            self._nodes_without_object[name] = info

    def node_order(self) -> Rows:
        """Return all rows in kube-scheduler's order: round robin over zones."""
        return self._tree.order(self.table)

    # ---- the rest ------------------------------------------------------------------------------

    def validate(self) -> None:
        """Derive everything redundant anew; raises ``AssertionError`` where it is out of step."""
        self.table.validate()
        self._tree.validate(self.table)
        self.pod_group_states.validate()
        placed = {
            uid: info.name
            for info in (*self.table, *self._nodes_without_object.values())
            for uid in info.pods
        }
        assert placed == {uid: entry.node_name for uid, entry in self._pods.items()}
        assert self._assumed == {uid for uid, entry in self._pods.items() if entry.assumed}
        assert all(info.node is None and info.pods for info in self._nodes_without_object.values())

    def pods(self) -> Iterable[PodInfo]:
        """Yield all pods, assumed ones included."""
        return (entry.info for entry in self._pods.values())

    def _info(self, node_name: str) -> NodeInfo | None:
        row = self.table.rows.get(node_name)
        return self._nodes_without_object.get(node_name) if row is None else self.table.infos[row]

    def _put(self, pod: PodInfo, node_name: str, assumed: bool) -> None:
        self._pods[pod.uid] = _Entry(pod, node_name, assumed)
        if assumed:
            self._assumed.add(pod.uid)
        row = self.table.rows.get(node_name)
        if row is not None:
            self.table.add_pod(row, pod)
            return
        info = self._nodes_without_object.get(node_name)
        if info is None:
            info = self._nodes_without_object[node_name] = NodeInfo(node_name)
        info.add_pod(pod)

    def _drop(self, uid: str) -> PodInfo:
        entry = self._pods.pop(uid)
        self._assumed.discard(uid)
        row = self.table.rows.get(entry.node_name)
        if row is not None:
            return self.table.remove_pod(row, uid)
        info = self._nodes_without_object[entry.node_name]
        pod = info.remove_pod(uid)
        if not info.pods:
            del self._nodes_without_object[entry.node_name]
        return pod

    def _confirm(self, entry: _Entry, pod: PodInfo) -> None:
        """Exchange the object only: no answer of a plugin changes, so the row is not noted."""
        entry.info, entry.assumed, entry.expires = pod, False, None
        self._assumed.discard(pod.uid)
        info = self._info(entry.node_name)
        assert info is not None
        for pods in (info.pods, info.pods_with_affinity, info.pods_with_required_anti_affinity):
            if pod.uid in pods:
                pods[pod.uid] = pod


def _differs_only_by_binding(old: PodInfo, new: PodInfo) -> bool:
    """Tell whether a pod was merely bound between two versions: whoever looks at the pods of a
    node, be it a plugin that was brought along, learns the same from both."""
    before, after = old.pod, new.pod
    meta, known = after.metadata, before.metadata
    spec = replace(before.spec, node_name=after.spec.node_name)
    status = replace(
        before.status,
        conditions=after.status.conditions,
        nominated_node_name=after.status.nominated_node_name,
    )
    return (
        spec == after.spec
        and status == after.status
        and known.labels == meta.labels
        and known.annotations == meta.annotations
        and known.deletion_timestamp == meta.deletion_timestamp
    )


def _name(pod: PodInfo) -> str:
    return f"{pod.uid}({pod.key})"
