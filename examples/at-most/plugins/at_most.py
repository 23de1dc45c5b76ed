"""AtMost: at most N pods of one application on a node, in a rack, or in any other domain."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from proreus.framework import (
    ClusterEvent,
    ConfigModel,
    CycleState,
    FilterPlugin,
    NodeInfo,
    NodeTable,
    PluginArgs,
    PodInfo,
    PreFilterPlugin,
    Status,
    events,
)
from proreus.objects import Pod


class Limit(ConfigModel):
    """The most pods of an application in one domain: on nodes with one value of a label."""

    topology_key: str
    most: int


class Counts(Counter[tuple[str, str]]):
    """The pods of one application, by label of nodes and its value."""

    def clone(self) -> Counts:
        """Return a copy, for a dry run of preemption."""
        return Counts(self)


class AtMost(PreFilterPlugin, FilterPlugin):
    """Pods of one namespace with the same value of a label are an application."""

    class Args(PluginArgs):
        """The label of applications, and their limits."""

        label: str = "app"
        limits: tuple[Limit, ...] = (Limit(topology_key="kubernetes.io/hostname", most=1),)

    args: Args

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> Status | None:
        if self.args.label not in pod.labels:
            return Status.skip()
        counts = Counts()
        for node in nodes:
            for other in node.pods.values():
                self._count(counts, pod, other, node, 1)
        state.write(self.name, counts)
        return None

    def add_pod(self, state: CycleState, pod: PodInfo, added: PodInfo, node: NodeInfo) -> None:
        self._count(state.read(self.name), pod, added, node, 1)

    def remove_pod(self, state: CycleState, pod: PodInfo, removed: PodInfo, node: NodeInfo) -> None:
        self._count(state.read(self.name), pod, removed, node, -1)

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        counts = state.read(self.name)
        for limit in self.args.limits:
            domain = node.labels.get(limit.topology_key)
            if domain is not None and counts[limit.topology_key, domain] >= limit.most:
                text = f"node(s) had {limit.most} pods of the application"
                return Status.unschedulable(f"{text} in their {limit.topology_key}")
        return None

    def events_to_register(self) -> Iterable[ClusterEvent]:
        return (
            ClusterEvent(events.ASSIGNED_POD, events.DELETE, self._is_of_its_application),
            ClusterEvent(events.NODE, events.ADD | events.UPDATE_NODE_LABEL),
            ClusterEvent(events.TARGET_POD, events.UPDATE_POD_LABEL),
        )

    def _is_of_its_application(self, pod: PodInfo, old: Pod, new: None) -> bool:
        own = (pod.namespace, pod.labels.get(self.args.label))
        return own == (old.metadata.namespace, old.metadata.labels.get(self.args.label))

    def _count(
        self, counts: Counts, pod: PodInfo, other: PodInfo, node: NodeInfo, change: int
    ) -> None:
        label = self.args.label
        if other.namespace == pod.namespace and other.labels.get(label) == pod.labels[label]:
            for limit in self.args.limits:
                if (domain := node.labels.get(limit.topology_key)) is not None:
                    counts[limit.topology_key, domain] += change
