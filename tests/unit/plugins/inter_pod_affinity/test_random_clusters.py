"""Random clusters: the plugin says what the rules say when they are taken literally.

The rules are written here as kube-scheduler has them: loops over nodes, pods and terms.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proreus.base.kubernetes_version import SUPPORTED_VERSIONS, Change
from proreus.framework import pod_index
from proreus.framework.affinity_terms import affinity_terms_of
from proreus.framework.cycle_state import CycleState
from proreus.framework.node_info import NodeInfo
from proreus.framework.pod_info import PodInfo
from proreus.framework.status import Code, Status
from proreus.framework.term_set import AffinityTerm, TermSet
from proreus.plugins.inter_pod_affinity import InterPodAffinity
from proreus.testing import FakeHandle, make_plugin
from proreus.testing.clusters import Cluster
from proreus.testing.inter_pod_clusters import inter_pod_clusters, pods_with_inter_pod_terms

Pair = tuple[str, str]


@pytest.fixture(params=(64, 0), autouse=True, scope="module")
def most_sparse_rows(request: pytest.FixtureRequest) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pod_index, "_MOST_SPARSE_ROWS", request.param)
        yield


VERSIONS = st.sampled_from([*map(str, SUPPORTED_VERSIONS)])


def terms_in(terms: TermSet) -> list[AffinityTerm]:
    return [term for _, term in terms.weighted]


class Literally:
    """InterPodAffinity as it is described; namespaces by name with their labels."""

    def __init__(self, pod: PodInfo, nodes: Iterable[NodeInfo], handle: FakeHandle) -> None:
        self.pod, self.nodes = pod, list(nodes)
        self.terms = affinity_terms_of(pod.pod)
        self.namespaces: dict[str, Mapping[str, str]] = {
            key: obj.metadata.labels for key, obj in handle.api._stores.get("Namespace", {}).items()
        }
        self.merged = handle.feature_gates.includes(Change.NAMESPACE_SELECTOR_MERGED)

    def ours(self, term: AffinityTerm, other: PodInfo) -> bool:
        """The incoming pod's terms: namespaces enumerated; up to 1.36 no labels are tried too."""
        selector = term.namespace_selector
        names = {n for n, labels in self.namespaces.items() if selector.matches(labels)}
        everywhere = selector.empty or (not self.merged and selector.matches({}))
        inside = everywhere or other.namespace in term.namespaces | names
        return inside and term.selector.matches(other.labels)

    def theirs(self, term: AffinityTerm) -> bool:
        """An existing pod's term: by the labels of the incoming pod's namespace."""
        labels = self.namespaces.get(self.pod.namespace, {})
        inside = self.pod.namespace in term.namespaces or term.namespace_selector.matches(labels)
        return inside and term.selector.matches(self.pod.labels)

    def ours_all(self, other: PodInfo) -> bool:
        terms = terms_in(self.terms.required)
        return bool(terms) and all(self.ours(term, other) for term in terms)

    def counts(self) -> tuple[Counter[Pair], Counter[Pair], Counter[Pair]]:
        affinity, anti, existing = Counter[Pair](), Counter[Pair](), Counter[Pair]()
        for node in self.nodes:
            for other in node.pods.values():
                for term in terms_in(affinity_terms_of(other.pod).required_anti):
                    if term.topology_key in node.labels and self.theirs(term):
                        existing[term.topology_key, node.labels[term.topology_key]] += 1
                for term in terms_in(self.terms.required):
                    if term.topology_key in node.labels and self.ours_all(other):
                        affinity[term.topology_key, node.labels[term.topology_key]] += 1
                for term in terms_in(self.terms.required_anti):
                    if term.topology_key in node.labels and self.ours(term, other):
                        anti[term.topology_key, node.labels[term.topology_key]] += 1
        return affinity, anti, existing

    def filter(self, node: NodeInfo) -> str:
        affinity, anti, existing = self.counts()
        keys = [term.topology_key for term in terms_in(self.terms.required)]
        if not all(key in node.labels for key in keys):
            return "affinity"
        if any(not affinity[key, node.labels[key]] for key in keys) and not (
            not affinity and self.ours_all(self.pod)
        ):
            return "affinity"
        keys = [term.topology_key for term in terms_in(self.terms.required_anti)]
        if any(anti[key, node.labels[key]] for key in keys if key in node.labels):
            return "anti-affinity"
        return "existing" if any(existing[pair] for pair in node.labels.items()) else ""

    def skips_filter(self) -> bool:
        _, _, existing = self.counts()
        return not existing and not self.terms.required and not self.terms.required_anti

    def score_map(self, hard_weight: int) -> Counter[Pair]:
        scores = Counter[Pair]()
        for node in self.nodes:
            for other in node.pods.values():
                theirs = affinity_terms_of(other.pod)
                hard = terms_in(theirs.required) if hard_weight else []
                meant = [
                    *((w, t) for w, t in self.terms.preferred.weighted if self.ours(t, other)),
                    *((w, t) for w, t in self.terms.preferred_anti.weighted if self.ours(t, other)),
                    *((hard_weight, t) for t in hard if self.theirs(t)),
                    *((w, t) for w, t in theirs.preferred.weighted if self.theirs(t)),
                    *((w, t) for w, t in theirs.preferred_anti.weighted if self.theirs(t)),
                ]
                for weight, term in meant:
                    if term.topology_key in node.labels:
                        scores[term.topology_key, node.labels[term.topology_key]] += weight
        return scores


def message_of(status: Status | None) -> str:
    if status is None:
        return ""
    (reason,) = status.reasons
    expected = {
        "node(s) didn't match pod affinity rules": ("affinity", Code.UNRESOLVABLE),
        "node(s) didn't match pod anti-affinity rules": ("anti-affinity", Code.UNSCHEDULABLE),
        "node(s) didn't satisfy existing pods anti-affinity rules": (
            "existing",
            Code.UNSCHEDULABLE,
        ),
    }
    what, code = expected[reason]
    assert status.code == code
    return what


@settings(deadline=None)
@given(inter_pod_clusters(), VERSIONS)
def test_filter_is_literal(cluster: Cluster, version: str) -> None:
    handle = cluster.handle(kubernetes_version=version)
    plugin, state = make_plugin(InterPodAffinity, handle), CycleState()
    rules = Literally(cluster.pod, handle.nodes, handle)

    skipped = plugin.pre_filter(state, cluster.pod, handle.nodes)

    assert (skipped is not None) == rules.skips_filter()
    for node in handle.nodes:
        if skipped is None:
            assert message_of(plugin.filter(state, cluster.pod, node)) == rules.filter(node)
        else:
            assert rules.filter(node) == ""


@settings(deadline=None)
@given(inter_pod_clusters(), st.sampled_from((0, 1, 50)), VERSIONS)
def test_score_is_literal(cluster: Cluster, hard_weight: int, version: str) -> None:
    handle = cluster.handle(kubernetes_version=version)
    plugin = make_plugin(InterPodAffinity, handle, {"hardPodAffinityWeight": hard_weight})
    state = CycleState()
    scores = Literally(cluster.pod, handle.nodes, handle).score_map(hard_weight)

    skipped = plugin.pre_score(state, cluster.pod, handle.nodes)

    assert (skipped is not None) == (not scores)
    if skipped is None:
        wanted = [sum(scores[pair] for pair in node.labels.items()) for node in handle.nodes]
        assert plugin.score_all(state, cluster.pod, handle.nodes).tolist() == wanted


@settings(deadline=None)
@given(inter_pod_clusters(), st.lists(pods_with_inter_pod_terms("tried"), max_size=2), st.data())
def test_add_pod_and_remove_pod_count_as_recounting_does(
    cluster: Cluster, tried: list[PodInfo], data: st.DataObject
) -> None:
    """Pods removed from and added to a fork, as in preemption; the original state stays."""
    handle = cluster.handle()
    plugin, state = make_plugin(InterPodAffinity, handle), CycleState()
    if plugin.pre_filter(state, cluster.pod, handle.nodes) is not None:
        return
    before = [message_of(plugin.filter(state, cluster.pod, node)) for node in handle.nodes]
    fork = handle.nodes.fork(np.arange(len(handle.nodes)))
    cloned_state = state.clone()
    row = data.draw(st.integers(0, len(fork) - 1))

    for uid in list(fork[row].pods):
        if data.draw(st.booleans()):
            removed = fork.remove_pod(row, uid)
            plugin.remove_pod(cloned_state, cluster.pod, removed, fork[row])
    for added in tried:
        if added.uid not in fork[row].pods:
            fork.add_pod(row, added)
            plugin.add_pod(cloned_state, cluster.pod, added, fork[row])

    rules = Literally(cluster.pod, fork, handle)
    for node in fork:
        assert message_of(plugin.filter(cloned_state, cluster.pod, node)) == rules.filter(node)
    after = [message_of(plugin.filter(state, cluster.pod, node)) for node in handle.nodes]
    assert after == before
