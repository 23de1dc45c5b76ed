"""Partition: a cluster in parts, as batch systems have them, each made of topology domains."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator

from pydantic import Field

from proreus.framework import (
    ClusterEvent,
    CycleState,
    FeatureGates,
    FilterPlugin,
    NodeInfo,
    NodeTable,
    PluginArgs,
    PodInfo,
    PreFilterPlugin,
    Status,
    Verdicts,
    events,
    field_errors,
)
from proreus.objects import Node, Pod, Requirement, Selector


class Partition(PreFilterPlugin, FilterPlugin):
    """A pod names its partition by a label, and goes only to the domains of that partition."""

    class Args(PluginArgs):
        """The partitions, and the labels that assign pods and nodes to them."""

        topology_key: str = Field(
            "topology.kubernetes.io/zone", description="Label of nodes: their domain."
        )
        pod_label: str = Field("example.com/partition", description="Label of pods.")
        partitions: dict[str, tuple[str, ...]] = Field(
            {}, description="Domains by partition; a domain may be in several."
        )
        default: str = Field("", description="Partition of pods without label; empty: anywhere.")

        def problems(self, path: str, gates: FeatureGates) -> Iterator[str]:
            if self.default and self.default not in self.partitions:
                yield field_errors.unsupported(
                    field_errors.child(path, "default"), self.default, sorted(self.partitions)
                )

    args: Args
    row_local = True
    looks_at_pods = False

    def sign(self, pod: PodInfo) -> Hashable:
        return self._partition_of(pod)

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> Status | None:
        """Decide what can be decided without looking at nodes."""
        partition = self._partition_of(pod)
        if not partition:
            return Status.skip()
        if partition not in self.args.partitions:
            known = ", ".join(sorted(self.args.partitions)) or "none"
            return Status.unresolvable(f'no partition "{partition}"; there are: {known}')
        return None

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        if node.labels.get(self.args.topology_key) in self._domains_for(pod):
            return None
        return self._outside(pod)

    def filter_all(
        self, state: CycleState, pod: PodInfo, nodes: NodeTable, verdicts: Verdicts
    ) -> None:
        inside = Requirement(self.args.topology_key, "In", frozenset(self._domains_for(pod)))
        verdicts.reject_with(~nodes.matches(Selector((inside,))), self._outside(pod))

    def events_to_register(self) -> Iterable[ClusterEvent]:
        # A new configuration needs no event: it wakes all pods.
        return (
            ClusterEvent(events.TARGET_POD, events.UPDATE_POD_LABEL, _is_this_pod),
            ClusterEvent(events.NODE, events.ADD | events.UPDATE_NODE_LABEL, self._is_inside),
        )

    def _is_inside(self, pod: PodInfo, old: Node | None, new: Node) -> bool:
        return new.metadata.labels.get(self.args.topology_key) in self._domains_for(pod)

    def _partition_of(self, pod: PodInfo) -> str:
        return pod.labels.get(self.args.pod_label, self.args.default)

    def _domains_for(self, pod: PodInfo) -> tuple[str, ...]:
        return self.args.partitions.get(self._partition_of(pod), ())

    def _outside(self, pod: PodInfo) -> Status:
        return Status.unresolvable(f"node(s) are not in partition {self._partition_of(pod)}")


def _is_this_pod(pod: PodInfo, old: Pod, new: Pod) -> bool:
    return new.metadata.uid == pod.uid
