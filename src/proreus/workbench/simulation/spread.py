"""Measures the spread of each workload's pods over zones, hosts and other domains."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

from proreus.objects.node import LABEL_ZONE, Node
from proreus.objects.pod import Pod
from proreus.workbench.simulation.controllers import Controllers, WorkloadKey
from proreus.workbench.simulation.results import WorkloadSkew

TopologyKey = tuple[WorkloadKey, str]


class PodSpread:
    """The pods of workloads by domain.

    Zones are always counted, other labels where pods have a topologySpreadConstraint for them. A
    domain is a value of the label that a node has, with or without pods; constraints' selectors and
    policies are not looked at, since the question is how the workload itself is spread.
    """

    def __init__(
        self, nodes: Mapping[str, Node], pods: Iterable[Pod], controllers: Controllers
    ) -> None:
        self._nodes = nodes
        self._domains: dict[str, frozenset[str]] = {}
        self.counts: dict[TopologyKey, Counter[str]] = defaultdict(Counter)
        self.max_skews: dict[TopologyKey, int] = {}
        self.pods: Counter[WorkloadKey] = Counter()
        for pod in pods:
            workload = controllers.workload_of(pod)
            if workload is not None and workload.kind != "daemonset":
                self._count(workload, pod)

    def _count(self, workload: WorkloadKey, pod: Pod) -> None:
        node = self._nodes.get(pod.spec.node_name)
        if node is None:
            return
        self.pods[workload] += 1
        keys = {LABEL_ZONE: None} | {
            one.topology_key: one.max_skew for one in pod.spec.topology_spread_constraints
        }
        for key, max_skew in keys.items():
            if max_skew:
                self.max_skews[workload, key] = max_skew
            domain = node.metadata.labels.get(key)
            if domain is not None:
                self.counts[workload, key][domain] += 1

    def domains(self, key: str) -> frozenset[str]:
        """Return the values of a label that nodes have."""
        found = self._domains.get(key)
        if found is None:
            labels = (node.metadata.labels for node in self._nodes.values())
            found = self._domains[key] = frozenset(one[key] for one in labels if key in one)
        return found

    def skew(self, of: TopologyKey) -> int:
        """Return the most pods in a domain minus the fewest; 0 for a workload that is not there."""
        counts = self.counts.get(of)
        if not counts:
            return 0
        every = [counts.get(domain, 0) for domain in self.domains(of[1])]
        return max(every) - min(every)


def compare_spread(before: PodSpread, after: PodSpread) -> tuple[WorkloadSkew, ...]:
    """Return the workloads with two pods or more, the least even ones first."""
    found = [
        WorkloadSkew(
            workload=str(workload),
            topology_key=key,
            domains=len(after.domains(key)),
            pods=after.pods[workload],
            before=before.skew((workload, key)),
            after=after.skew((workload, key)),
            max_skew=after.max_skews.get((workload, key)),
        )
        for workload, key in after.counts
        if after.pods[workload] > 1
    ]
    return tuple(sorted(found, key=lambda one: (-one.after, one.workload, one.topology_key)))
