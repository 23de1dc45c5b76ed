"""Random clusters with relations between pods: labels, namespaces, affinity, spread constraints.

Hypothesis strategies like those of ``clusters``, for plugins that read more than one node. Some
selectors are invalid, some select everything or nothing, some nodes lack labels.
"""

from __future__ import annotations

from functools import cache

from hypothesis import strategies as st

from proreus.framework.pod_info import PodInfo
from proreus.objects.node import LABEL_HOSTNAME, LABEL_ZONE, Node
from proreus.offline.api import JsonObject
from proreus.testing.builders import make_node, make_pod
from proreus.testing.clusters import Cluster, any_fields, tolerations

NAMESPACES = ("blue", "green", "red")
TOPOLOGY_KEYS = (LABEL_HOSTNAME, LABEL_ZONE, "rack")
_LABELS = ("app", "tier")
_VALUES = ("a", "b")


@cache
def label_maps() -> st.SearchStrategy[dict[str, str]]:
    """Draw the labels of a pod or a namespace."""
    return st.dictionaries(st.sampled_from(_LABELS), st.sampled_from(_VALUES))


@cache
def label_selectors(broken: bool = False) -> st.SearchStrategy[JsonObject | None]:
    """Draw a label selector or None; with ``broken`` it may be invalid."""
    values = st.lists(st.sampled_from(_VALUES), min_size=1, max_size=2)
    key = st.sampled_from(_LABELS)
    with_values = st.fixed_dictionaries(
        {"key": key, "operator": st.sampled_from(("In", "NotIn")), "values": values}
    )
    without = st.fixed_dictionaries(
        {"key": key, "operator": st.sampled_from(("Exists", "DoesNotExist"))}
    )
    expressions = with_values | without
    if broken:
        expressions |= st.just({"key": "app", "operator": "Near", "values": ["a"]})
    return st.none() | any_fields(
        matchLabels=label_maps(),
        matchExpressions=st.lists(expressions, max_size=2),
    )


@cache
def affinity_terms(broken: bool = False) -> st.SearchStrategy[JsonObject]:
    """Draw a term of pod affinity or anti-affinity."""
    return st.fixed_dictionaries(
        {
            "labelSelector": label_selectors(broken),
            "topologyKey": st.sampled_from(TOPOLOGY_KEYS),
        },
        optional={
            "namespaces": st.lists(st.sampled_from(NAMESPACES), max_size=2),
            "namespaceSelector": label_selectors(),
        },
    )


@cache
def pod_affinities(broken: bool = False) -> st.SearchStrategy[JsonObject]:
    """Draw a ``podAffinity`` or ``podAntiAffinity``, as in YAML."""
    weighted = st.fixed_dictionaries(
        {"weight": st.sampled_from((1, 7, 100)), "podAffinityTerm": affinity_terms(broken)}
    )
    return any_fields(
        requiredDuringSchedulingIgnoredDuringExecution=st.lists(affinity_terms(broken), max_size=2),
        preferredDuringSchedulingIgnoredDuringExecution=st.lists(weighted, max_size=2),
    )


@cache
def spread_constraints() -> st.SearchStrategy[JsonObject]:
    """Draw a topology spread constraint."""
    policies = st.sampled_from(("Honor", "Ignore"))
    return st.fixed_dictionaries(
        {
            "maxSkew": st.integers(1, 3),
            "topologyKey": st.sampled_from(TOPOLOGY_KEYS),
            "whenUnsatisfiable": st.sampled_from(("DoNotSchedule", "ScheduleAnyway")),
            "labelSelector": label_selectors(),
        },
        optional={
            "minDomains": st.integers(1, 4),
            "nodeAffinityPolicy": policies,
            "nodeTaintsPolicy": policies,
            "matchLabelKeys": st.lists(st.sampled_from(_LABELS), max_size=2),
        },
    )


@cache
def _nodes(name: str) -> st.SearchStrategy[Node]:
    labels = any_fields(
        **{
            LABEL_ZONE: st.sampled_from(("east", "west", "")),
            "rack": st.sampled_from(("1", "2")),
        }
    )
    taints = st.sampled_from(((), ("size=a:NoSchedule",)))
    return st.builds(make_node, st.just(name), labels=labels, taints=taints)


@cache
def pods_with_inter_pod_terms(
    name: str, node_names: tuple[str, ...] = ("",), broken: bool = False
) -> st.SearchStrategy[PodInfo]:
    """Draw a pod with this name, perhaps with affinity terms, on one of some nodes."""
    affinity = any_fields(
        podAffinity=pod_affinities(broken),
        podAntiAffinity=pod_affinities(broken),
    )
    spec = any_fields(topologySpreadConstraints=st.lists(spread_constraints(), max_size=3))
    deleted = st.just({"deletionTimestamp": "2026-01-01T00:00:00Z"})
    return st.builds(
        make_pod,
        st.just(name),
        namespace=st.sampled_from(NAMESPACES),
        labels=label_maps(),
        node_name=st.sampled_from(node_names),
        node_selector=st.sampled_from((None, {"rack": "1"})),
        tolerations=st.lists(tolerations(), max_size=1),
        affinity=st.none() | affinity,
        metadata=st.just({}) | deleted,
        spec=spec,
    )


@cache
def _namespaces(name: str) -> st.SearchStrategy[JsonObject]:
    return label_maps().map(
        lambda labels: {"kind": "Namespace", "metadata": {"name": name, "labels": labels}}
    )


@cache
def _workloads() -> st.SearchStrategy[JsonObject]:
    """Draw a Service, or a ReplicaSet that is named ``owner``."""
    namespace = st.sampled_from(NAMESPACES)
    service = st.builds(
        lambda namespace, name, selector: {
            "kind": "Service",
            "metadata": {"namespace": namespace, "name": name},
            "spec": {"selector": selector},
        },
        namespace,
        st.sampled_from(("s1", "s2")),
        st.none() | label_maps(),
    )
    owner = st.builds(
        lambda namespace, selector: {
            "kind": "ReplicaSet",
            "metadata": {"namespace": namespace, "name": "owner"},
            "spec": {"selector": selector},
        },
        namespace,
        label_selectors(broken=True),
    )
    return service | owner


@st.composite
def inter_pod_clusters(draw: st.DrawFn, max_nodes: int = 6, max_pods: int = 10) -> Cluster:
    """Draw a cluster of nodes, namespaces and related pods; nodes are named n0, n1, …"""
    names = tuple(f"n{index}" for index in range(draw(st.integers(1, max_nodes))))
    known = draw(st.sets(st.sampled_from(NAMESPACES)))
    return Cluster(
        [draw(_nodes(name)) for name in names],
        [
            draw(pods_with_inter_pod_terms(f"p{index}", names, broken=True))
            for index in range(draw(st.integers(0, max_pods)))
        ],
        draw(pods_with_inter_pod_terms("pending")),
        [
            *(draw(_namespaces(name)) for name in sorted(known)),
            *draw(st.lists(_workloads(), max_size=3)),
        ],
    )
