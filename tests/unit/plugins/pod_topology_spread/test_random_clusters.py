"""Random clusters: the plugin says what the rules say when they are taken literally.

The rules are written here as kube-scheduler has them: loops over nodes, pods and constraints.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import log
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from proreus.framework.cycle_state import CycleState
from proreus.framework.node_affinity import node_affinity_of
from proreus.framework.node_info import NodeInfo
from proreus.framework.pod_info import PodInfo
from proreus.framework.status import Code, Status
from proreus.objects.codec import decoder_for
from proreus.objects.node import LABEL_HOSTNAME, LABEL_ZONE
from proreus.objects.pod import TopologySpreadConstraint
from proreus.objects.selectors import Selector, parse_label_selector, selector_of_map
from proreus.objects.taints import first_untolerated
from proreus.plugins.pod_topology_spread import PodTopologySpread
from proreus.testing import FakeHandle, make_plugin
from proreus.testing.clusters import Cluster
from proreus.testing.inter_pod_clusters import inter_pod_clusters, pods_with_inter_pod_terms

Pair = tuple[TopologySpreadConstraint, Selector]

LIST = {
    "defaultingType": "List",
    "defaultConstraints": [
        {"maxSkew": 1, "topologyKey": "rack", "whenUnsatisfiable": "DoNotSchedule"},
        {"maxSkew": 2, "topologyKey": LABEL_ZONE, "whenUnsatisfiable": "ScheduleAnyway"},
    ],
}
SYSTEM = [
    {"maxSkew": 3, "topologyKey": LABEL_HOSTNAME, "whenUnsatisfiable": "ScheduleAnyway"},
    {"maxSkew": 5, "topologyKey": LABEL_ZONE, "whenUnsatisfiable": "ScheduleAnyway"},
]


class Literally:
    """PodTopologySpread as it is described."""

    def __init__(
        self,
        pod: PodInfo,
        nodes: Iterable[NodeInfo],
        handle: FakeHandle,
        args: Mapping[str, Any] | None,
    ) -> None:
        self.pod, self.nodes, self.handle = pod, list(nodes), handle
        self.defaults = decoder_for(tuple[TopologySpreadConstraint, ...]).convert(
            SYSTEM if args is None else args["defaultConstraints"]
        )
        self.all_keys = bool(pod.pod.spec.topology_spread_constraints) or args is not None

    def constraints(self, action: str) -> list[Pair]:
        own = self.pod.pod.spec.topology_spread_constraints
        if not own:
            merged: dict[str, str] = {}
            for service in self.handle.api._stores.get("Service", {}).values():
                wanted = service.spec.selector or {}
                here = service.metadata.namespace == self.pod.namespace
                if here and wanted.items() <= self.pod.labels.items():
                    merged.update(wanted)
            selector = selector_of_map(merged)
            if selector.empty:
                return []
            return [(c, selector) for c in self.defaults if c.when_unsatisfiable == action]
        return [(c, self.selector(c)) for c in own if c.when_unsatisfiable == action]

    def selector(self, constraint: TopologySpreadConstraint) -> Selector:
        selector = parse_label_selector(constraint.label_selector)
        if selector.nothing:
            return selector
        labels = {k: v for k, v in self.pod.labels.items() if k in constraint.match_label_keys}
        return Selector(selector.requirements + selector_of_map(labels).requirements)

    def accepts(self, constraint: TopologySpreadConstraint, node: NodeInfo) -> bool:
        spec = self.pod.pod.spec
        if constraint.node_affinity_policy != "Ignore" and not node_affinity_of(
            self.pod.pod
        ).matches(node.labels, node.name):
            return False
        return constraint.node_taints_policy != "Honor" or not first_untolerated(
            node.taints, spec.tolerations
        )

    def count(self, node: NodeInfo, selector: Selector) -> int:
        return sum(
            other.namespace == self.pod.namespace
            and other.pod.metadata.deletion_timestamp is None
            and selector.matches(other.labels)
            for other in node.pods.values()
            if not selector.empty
        )

    def domains(self, pairs: list[Pair], all_keys: bool) -> list[dict[str, int]]:
        found: list[dict[str, int]] = [{} for _ in pairs]
        for node in self.nodes:
            if all_keys and not all(c.topology_key in node.labels for c, _ in pairs):
                continue
            for (constraint, selector), counts in zip(pairs, found, strict=True):
                if self.accepts(constraint, node):
                    value = node.labels.get(constraint.topology_key, "")
                    counts[value] = counts.get(value, 0) + self.count(node, selector)
        return found

    def filter(self, node: NodeInfo, shifts: list[dict[str, int]] | None = None) -> str:
        pairs = self.constraints("DoNotSchedule")
        for index, (constraint, selector) in enumerate(pairs):
            counts = dict(self.domains(pairs, True)[index])
            for value, step in (shifts[index] if shifts else {}).items():
                counts[value] = counts.get(value, 0) + step
            if constraint.topology_key not in node.labels:
                return "label"
            enough = len(counts) >= (constraint.min_domains or 1)
            min_match_num = min(counts.values()) if counts and enough else 0
            own = selector.matches(self.pod.labels)
            value = node.labels[constraint.topology_key]
            if counts.get(value, 0) + own - min_match_num > constraint.max_skew:
                return "skew"
        return ""

    def scores(self) -> list[int] | None:
        """Normalised; None: skipped."""
        pairs = self.constraints("ScheduleAnyway")
        if not pairs:
            return None
        ignored = [
            self.all_keys and not all(c.topology_key in node.labels for c, _ in pairs)
            for node in self.nodes
        ]
        scored = [n for n, left_out in zip(self.nodes, ignored, strict=True) if not left_out]
        found = self.domains(pairs, self.all_keys)
        raw = []
        for node in scored:
            total = 0.0
            for (constraint, selector), counts in zip(pairs, found, strict=True):
                key = constraint.topology_key
                if key not in node.labels:
                    continue
                size = len({n.labels.get(key, "") for n in scored})
                count = counts.get(node.labels[key], 0)
                if key == LABEL_HOSTNAME:
                    size, count = len(scored), self.count(node, selector)
                total += count * log(size + 2) + (constraint.max_skew - 1)
            raw.append(int(total + 0.5))
        most, least = max(raw, default=0), min(raw, default=0)
        final = iter(100 if not most else 100 * (most + least - s) // most for s in raw)
        return [0 if left_out else next(final) for left_out in ignored]


def message_of(status: Status | None) -> str:
    if status is None:
        return ""
    (reason,) = status.reasons
    text = "node(s) didn't match pod topology spread constraints"
    if status.code == Code.UNRESOLVABLE:
        assert reason == f"{text} (missing required label)"
        return "label"
    assert (status.code, reason) == (Code.UNSCHEDULABLE, text)
    return "skew"


either_default = st.sampled_from((None, LIST))


@settings(deadline=None)
@given(inter_pod_clusters(), either_default)
def test_filter_is_literal(cluster: Cluster, args: dict[str, Any] | None) -> None:
    handle = cluster.handle()
    plugin, state = make_plugin(PodTopologySpread, handle, args), CycleState()
    rules = Literally(cluster.pod, handle.nodes, handle, args)

    skipped = plugin.pre_filter(state, cluster.pod, handle.nodes)

    assert (skipped is not None) == (not rules.constraints("DoNotSchedule"))
    if skipped is None:
        for node in handle.nodes:
            assert message_of(plugin.filter(state, cluster.pod, node)) == rules.filter(node)


@settings(deadline=None)
@given(inter_pod_clusters(), either_default)
def test_score_is_literal(cluster: Cluster, args: dict[str, Any] | None) -> None:
    handle = cluster.handle()
    plugin, state = make_plugin(PodTopologySpread, handle, args), CycleState()

    skipped = plugin.pre_score(state, cluster.pod, handle.nodes)

    wanted = Literally(cluster.pod, handle.nodes, handle, args).scores()
    assert (skipped is not None) == (wanted is None)
    if skipped is None:
        raw = plugin.score_all(state, cluster.pod, handle.nodes)
        assert plugin.normalize(state, cluster.pod, raw).tolist() == wanted


@settings(deadline=None)
@given(inter_pod_clusters(), st.lists(pods_with_inter_pod_terms("tried"), max_size=2), st.data())
def test_add_pod_and_remove_pod_count_as_recounting_does(
    cluster: Cluster, tried: list[PodInfo], data: st.DataObject
) -> None:
    """Pods removed from and added to a node, as in preemption; the original state stays.

    What is tried is counted by its labels alone: whether it is being deleted does not matter.
    """
    handle = cluster.handle()
    plugin, state = make_plugin(PodTopologySpread, handle), CycleState()
    if plugin.pre_filter(state, cluster.pod, handle.nodes) is not None:
        return
    before = [message_of(plugin.filter(state, cluster.pod, node)) for node in handle.nodes]
    rules = Literally(cluster.pod, handle.nodes, handle, None)
    pairs = rules.constraints("DoNotSchedule")
    shifts: list[dict[str, int]] = [{} for _ in pairs]
    fork, cloned_state = handle.nodes.fork(np.arange(len(handle.nodes))), state.clone()
    row = data.draw(st.integers(0, len(fork) - 1))
    node = fork[row]

    def shift(other: PodInfo, step: int) -> None:
        if other.namespace != cluster.pod.namespace:
            return
        if not all(c.topology_key in node.labels for c, _ in pairs):
            return
        for (constraint, selector), counts in zip(pairs, shifts, strict=True):
            if selector.matches(other.labels) and rules.accepts(constraint, node):
                value = node.labels[constraint.topology_key]
                counts[value] = counts.get(value, 0) + step

    for uid in list(node.pods):
        if data.draw(st.booleans()):
            removed = fork.remove_pod(row, uid)
            plugin.remove_pod(cloned_state, cluster.pod, removed, node)
            shift(removed, -1)
    for added in tried:
        if added.uid not in node.pods:
            fork.add_pod(row, added)
            plugin.add_pod(cloned_state, cluster.pod, added, node)
            shift(added, 1)

    for one in fork:
        assert message_of(plugin.filter(cloned_state, cluster.pod, one)) == rules.filter(
            one, shifts
        )
    after = [message_of(plugin.filter(state, cluster.pod, node)) for node in handle.nodes]
    assert after == before
