"""Nodes and pods as the apiserver reports them, and the pods that are assumed on nodes.

    (unknown) ── assume ──► assumed ── add_pod ──► added ── remove_pod ──► (unknown)
        ▲                   │  │ ▲                 ▲ │ ▲
        └─ forget, expire ──┘  └─┘ update_assumed  │ └─┘ update_pod
    (unknown) ── add_pod ──────────────────────────┘

An assumed pod counts on its node at once, so that the next scheduling cycle sees it; the watch
event of its binding confirms it. kube-scheduler's ``cacheImpl``, without a snapshot: the columns
(``table``) change with every call, and each change records its row, which is what invalidates
shared results. A state machine without I/O; its clock is an argument.

Invariants: every pod is in exactly one ``NodeInfo``; a ``NodeInfo`` without a Node object has no
row and exists only while pods are on it; ``_assumed`` has the UIDs of assumed pods in ``_pods``.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct
from msgspec.structs import replace

from proreus.base.clock import Clock
from proreus.base.errors import CacheCorrupted
from proreus.engine.cache.node_tree import NodeTree
from proreus.engine.cache.pod_group_states import PodGroupStates
from proreus.framework.cluster_table import ClusterTable
from proreus.framework.node_info import NodeInfo
from proreus.framework.pod_info import PodInfo
from proreus.framework.verdicts import Rows
from proreus.framework.workload_forest import MAX_LEVELS_UP_TO_1_37, WorkloadForest
from proreus.objects.node import Node
from proreus.objects.pod import Pod

MISPLACED = "row number"
"""The result of ``node_difference`` for a node whose row is not where ``rows`` says."""


class CacheError(Exception):
    """An operation that contradicts the state of the cache."""


class _Entry(Struct):
    info: PodInfo
    node_name: str
    assumed: bool
    expires: float | None = None


class Cache:
    """Nodes, the pods on them, and which of those are only assumed.

    ``assumed_ttl_seconds``: how long an assumed pod whose binding succeeded may wait for its watch
    event. None, the default, means for ever, as in kube-scheduler 1.36. ``pod_groups``: whether to
    track PodGroups (gate GenericWorkload), ``composite_pod_groups``: groups of groups as well (gate
    CompositePodGroup); event handlers add pods without a node to
    ``pod_group_states`` themselves.
    """

    def __init__(
        self,
        clock: Clock,
        assumed_ttl_seconds: float | None = None,
        pod_groups: bool = False,
        composite_pod_groups: bool = False,
        *,
        removes_assumed_pods: bool = False,
        levels_of_groups: int = MAX_LEVELS_UP_TO_1_37,
    ) -> None:
        """``removes_assumed_pods``: see ``Change.REMOVE_ASSUMED_POD``.

        ``levels_of_groups``: see ``WorkloadForest``.
        """
        self.removes_assumed_pods = removes_assumed_pods
        self.table = ClusterTable()
        self.pod_group_states = PodGroupStates()
        self.workload_forest = WorkloadForest(composite_pod_groups, levels_of_groups)
        """The group objects; the queue keeps it up to date, except with 1.36's plugins."""
        self._groups = self.pod_group_states if pod_groups else None
        self._clock = clock
        self._assumed_ttl = assumed_ttl_seconds
        self._tree = NodeTree()
        self._pods: dict[str, _Entry] = {}
        self._assumed: set[str] = set()
        self._nodes_without_object: dict[str, NodeInfo] = {}

    # ---- pods ----------------------------------------------------------------------------------

    def assume(self, pod: PodInfo, node_name: str) -> None:
        """Count a pod on its chosen node; raises ``CacheError`` if it is in the cache already."""
        if pod.uid in self._pods:
            raise CacheError(f"pod {_name(pod)} is in the cache, so can't be assumed")
        self._put(pod, node_name, assumed=True)
        if self._groups is not None:
            self._groups.assume(pod, node_name)

    def update_assumed(self, pod: PodInfo) -> None:
        """Replace an assumed pod by a version with other requests; does nothing if it is gone."""
        entry = self._pods.get(pod.uid)
        if entry is not None and entry.assumed:
            self._drop(pod.uid)
            self._put(pod, entry.node_name, assumed=True)

    def forget(self, pod: PodInfo, node_name: str) -> None:
        """Undo an assumption; raises ``CacheError`` if the pod is not assumed on this node."""
        entry = self._pods.get(pod.uid)
        # Its deletion was faster than the end of its binding cycle: nothing to undo.
        if entry is None:
            return
        if entry.node_name != node_name:
            raise CacheError(
                f"pod {_name(pod)} was assumed on {node_name} but assigned to {entry.node_name}"
            )
        if not entry.assumed:
            why = "wasn't assumed so cannot be forgotten"
            if self.removes_assumed_pods:
                why = "is not assumed, so it cannot be removed or forgotten"
            raise CacheError(f"pod {_name(pod)} {why}")
        self._drop(pod.uid)
        if self._groups is not None:
            self._groups.forget(pod)

    def finish_binding(self, uid: str) -> None:
        """Start the time limit of an assumed pod, if there is one: the apiserver has bound it."""
        # Not from assume on: Permit and PreBind may take longer than any time limit.
        entry = self._pods.get(uid)
        if entry is not None and entry.assumed and self._assumed_ttl is not None:
            entry.expires = self._clock.monotonic() + self._assumed_ttl

    def expire_assumed(self) -> list[tuple[PodInfo, str]]:
        """Drop assumed pods whose time limit is over; return them with their nodes' names."""
        now = self._clock.monotonic()
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
        """Add an assigned pod from the apiserver; confirms it if it was assumed."""
        node_name = pod.pod.spec.node_name
        entry = self._pods.get(pod.uid)
        if entry is None:
            self._put(pod, node_name, assumed=False)
        elif entry.assumed:
            # The usual case: the pod that we bound, unchanged. Its row stays as it is. A pod that
            # was bound elsewhere, or changed meanwhile, is counted anew.
            if entry.node_name == node_name and _differs_only_by_binding(entry.info, pod):
                self._confirm(entry, pod)
            else:
                self._replace(entry, pod)
        else:
            raise CacheError(f"pod {_name(pod)} was already in added state")
        if self._groups is not None:
            self._groups.assign(pod)

    def update_pod(self, new: PodInfo) -> None:
        """Apply an update of an assigned pod; raises ``CacheError`` if it is not known."""
        entry = self._pods.get(new.uid)
        if entry is None or entry.assumed:
            raise CacheError(
                f"pod {_name(new)} is not added to scheduler cache, so can't be updated"
            )
        # nodeName is immutable: an event was lost, and every count may be wrong. kube-scheduler
        # exits here too.
        if entry.node_name != new.pod.spec.node_name:
            raise CacheCorrupted(
                f"pod {_name(new)} moved from node {entry.node_name} to {new.pod.spec.node_name}: "
                "the scheduler cache is corrupted and the scheduler must start anew"
            )
        self._replace(entry, new)
        if self._groups is not None:
            self._groups.assign(new)

    def remove_pod(self, pod: Pod) -> None:
        """Remove a deleted pod; raises ``CacheError`` if it is not known."""
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

    def assumed_pods(self) -> list[PodInfo]:
        """Return the pods that are assumed on a node: they wait, or are being bound."""
        return [self._pods[uid].info for uid in self._assumed]

    def is_assumed(self, uid: str) -> bool:
        """Return whether a pod is assumed and not confirmed yet."""
        return uid in self._assumed

    def get_pod(self, uid: str) -> PodInfo | None:
        """Return the cached version of a pod."""
        entry = self._pods.get(uid)
        return None if entry is None else entry.info

    def node_of(self, uid: str) -> str:
        """Return the name of the node that a pod is on; "" if the pod is not known."""
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
        """Number of nodes, deleted ones that still have pods included."""
        return self.table.size + len(self._nodes_without_object)

    # ---- nodes ---------------------------------------------------------------------------------

    def add_node(self, node: Node) -> None:
        """Add a node, with the pods on it whose events came first."""
        name = node.metadata.name
        if name in self.table:
            self.update_node(node)
            return
        # Pod events may arrive before those of their node: the informers are independent.
        info = self._nodes_without_object.get(name) or NodeInfo(name)
        info.set_node(node)
        self._nodes_without_object.pop(name, None)
        self.table.add_node(info)
        self._tree.add(node)

    def update_node(self, node: Node) -> None:
        """Apply an update of a node."""
        info = self._info(node.metadata.name)
        if info is None or info.node is None:
            self.add_node(node)
            return
        self._tree.update(info.node, node)
        info.set_node(node)
        self.table.update_node(info)

    def replace_node_object(self, node: Node) -> None:
        """Replace the object of a node whose columns have not changed; no row is recorded."""
        info = self._info(node.metadata.name)
        if info is None or info.node is None:
            self.add_node(node)
        else:
            info.node = node

    def remove_node(self, name: str) -> None:
        """Remove a node; the pods on it are kept until they are deleted too."""
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

    def clear(self) -> None:
        """Forget all nodes and pods at once; groups of pods stay."""
        self.table.clear()
        self._tree = NodeTree()
        self._pods.clear()
        self._assumed.clear()
        self._nodes_without_object.clear()

    # ---- consistency ---------------------------------------------------------------------------

    def node_info(self, node_name: str) -> NodeInfo | None:
        """Return a node with the pods on it, even if only its pods are known."""
        return self._info(node_name)

    def node_difference(self, name: str) -> str:
        """Return the column, or field of ``NodeInfo``, that disagrees with a node and its pods.

        "" if all agree.
        """
        row, infos = self.table.rows.get(name), self.table.infos
        if row is None:
            return MISPLACED if any(info.name == name for info in infos) else ""
        if not 0 <= row < len(infos) or infos[row].name != name:
            return MISPLACED
        info = infos[row]
        if any(self.node_of(uid) != name for uid in info.pods):
            return "pods"
        return self.table.row_difference(row)

    def rebuild_node(self, name: str) -> None:
        """Derive a node's row anew from its object and the pods in the cache: O(nodes + pods)."""
        table = self.table
        table.rebuild_rows()
        row, old = table.rows.get(name), self._info(name)
        fresh = NodeInfo(name)
        order = () if old is None else old.order
        place = {uid: number for number, uid in enumerate(order)}
        here = [entry.info for entry in self._pods.values() if entry.node_name == name]
        # The order of pods decides between equal victims: those that are known keep it.
        for pod in sorted(here, key=lambda pod: place.get(pod.uid, len(place))):
            fresh.add_pod(pod)
        if row is not None and old is not None and old.node is not None:
            fresh.set_node(old.node)
            table.rebuild_row(row, fresh)
        elif here:
            self._nodes_without_object[name] = fresh
        else:
            self._nodes_without_object.pop(name, None)

    def validate(self) -> None:
        """Recompute all redundant state; raises ``AssertionError`` where it differs."""
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

    def uids(self) -> list[str]:
        """Return the UIDs of all pods."""
        return list(self._pods)

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

    def _replace(self, entry: _Entry, pod: PodInfo) -> None:
        """Count an assigned pod in place of an earlier version, maybe on another node."""
        node_name = pod.pod.spec.node_name
        row = self.table.rows.get(node_name)
        if row is None or entry.node_name != node_name:
            self._drop(pod.uid)
            self._put(pod, node_name, assumed=False)
            return
        self._set_assigned(entry, pod)
        self.table.update_pod(row, pod)

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
        """Replace the object of a confirmed pod, and nothing else."""
        # No plugin's result can change by it, so the row is not recorded as changed. Otherwise
        # every pod would invalidate its node's shared results twice.
        self._set_assigned(entry, pod)
        info = self._info(entry.node_name)
        assert info is not None
        info.replace_pod(pod)

    def _set_assigned(self, entry: _Entry, pod: PodInfo) -> None:
        entry.info, entry.assumed, entry.expires = pod, False, None
        self._assumed.discard(pod.uid)


def _differs_only_by_binding(old: PodInfo, new: PodInfo) -> bool:
    """Return whether a pod was merely bound between two versions."""
    # Any other difference could be read by a plugin, in-tree or out of tree.
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
