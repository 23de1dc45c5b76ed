"""Hypothesis strategies for small random clusters and pods, chosen to expose disagreements.

Values come from short lists, so that they often match: labels and selectors, taints and
tolerations, conflicting ports, requests close to the free capacity. Strategies are cached, since
building one takes longer than drawing from it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from hypothesis import strategies as st

from proreus.base.kubernetes_version import DEFAULT_VERSION
from proreus.framework.node_info import NodeInfo
from proreus.framework.pod_info import PodInfo
from proreus.objects.kinds import NODES
from proreus.objects.node import Node
from proreus.offline.api import JsonObject
from proreus.testing.builders import make_node, make_pod
from proreus.testing.fake_handle import FakeHandle
from proreus.testing.vocabulary import Vocabulary

KEYS = ("zone", "disk", "size")
VALUES = ("a", "b", "7", "12")
EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
IMAGES = ("registry.example/app:v1", "busybox:latest", "host:5000/img:latest")
_CPU = ("0", "1m", "250m", "500m", "1", "2", "5")
_MEMORY = ("0", "1", "64Mi", "500M", "1Gi", "3Gi", "9Gi")
_VENDOR = ("example.com/gpu", "hugepages-2Mi", "ephemeral-storage")
_FEATURES = ("RestartAllContainersOnContainerExits", "UserNamespacesHostNetworkSupport", "Other")

_NO_MORE = Vocabulary()

Change = Callable[[FakeHandle], None]
"""A change to a cluster: a function that applies it to a handle."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """``nodes``, ``pods`` on them, and a pending ``pod``.

    ``objects``: others, as in YAML. ``changes``: what happens afterwards.
    """

    nodes: list[Node]
    pods: list[PodInfo]
    pod: PodInfo
    objects: list[JsonObject] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)

    def handle(self, *gates: str, kubernetes_version: str = str(DEFAULT_VERSION)) -> FakeHandle:
        """Return a fake handle on this cluster, before the changes; ``gates`` as ``Name=true``."""
        return FakeHandle(
            self.nodes,
            self.pods,
            objects=self.objects,
            gates=gates,
            kubernetes_version=kubernetes_version,
        )


def _maps(keys: Sequence[str], values: Sequence[str]) -> st.SearchStrategy[dict[str, str]]:
    return st.dictionaries(st.sampled_from(keys), st.sampled_from(values), max_size=len(keys))


def any_fields(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Draw a map that has each of these fields, or lacks it."""
    return st.fixed_dictionaries({}, optional=fields)


def _is_in_bytes(resource: str) -> bool:
    """Return whether amounts of a resource are sizes, as far as its name tells; else counts."""
    return re.search("memory|storage|hugepages", resource) is not None


@cache
def nodes(name: str, vocabulary: Vocabulary = _NO_MORE) -> st.SearchStrategy[Node]:
    """Draw a node with this name; ``vocabulary``: further resources and labels."""
    taints = st.builds(
        lambda key, value, effect: f"{key}={value}:{effect}",
        st.sampled_from(KEYS),
        st.sampled_from(("", *VALUES)),
        st.sampled_from(EFFECTS),
    )
    return st.builds(
        make_node,
        st.just(name),
        cpu=st.sampled_from(("0", "2", "4", "4500m")),
        memory=st.sampled_from(("0", "2Gi", "8Gi", "7999999999")),
        pods=st.sampled_from((0, 1, 3, 110)),
        labels=_maps((*KEYS, *vocabulary.node_labels), (*VALUES, *vocabulary.values)),
        taints=st.lists(taints, max_size=3),
        unschedulable=st.booleans(),
        images=st.dictionaries(
            st.sampled_from(IMAGES), st.integers(0, 3 * 2**30), max_size=len(IMAGES)
        ),
        resources=any_fields(
            **{
                name: st.sampled_from(("0", "4", "2Gi") if _is_in_bytes(name) else ("0", "1", "4"))
                for name in (*_VENDOR, *vocabulary.resources)
            }
        ),
        status=st.builds(
            lambda features: {"declaredFeatures": features},
            st.lists(st.sampled_from(_FEATURES), max_size=2, unique=True),
        ),
    )


@cache
def tolerations() -> st.SearchStrategy[dict[str, Any]]:
    """Draw a toleration, valid or not."""
    return any_fields(
        key=st.sampled_from((*KEYS, "node.kubernetes.io/unschedulable")),
        operator=st.sampled_from(("Equal", "Exists", "Gt", "Lt")),
        value=st.sampled_from(VALUES),
        effect=st.sampled_from(EFFECTS),
    )


@cache
def _expressions() -> st.SearchStrategy[dict[str, Any]]:
    """Draw a requirement of a node selector; one in five may be invalid.

    An invalid one makes the whole affinity invalid, which hides what the others would do.
    """
    keys = st.sampled_from(KEYS)
    several = st.lists(st.sampled_from(VALUES), min_size=1, max_size=2)
    number = st.sampled_from((["7"], ["12"]))

    def valid(*operators: str, **values: st.SearchStrategy[list[str]]) -> st.SearchStrategy[Any]:
        return st.fixed_dictionaries({"key": keys, "operator": st.sampled_from(operators)} | values)

    operators = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Near")
    odd = st.fixed_dictionaries(
        {"key": st.sampled_from((*KEYS, "not a key")), "operator": st.sampled_from(operators)},
        optional={"values": st.lists(st.sampled_from(VALUES), max_size=2)},
    )
    listing = valid("In", "NotIn", values=several)
    return st.one_of(
        listing, listing, valid("Exists", "DoesNotExist"), valid("Gt", "Lt", values=number), odd
    )


@cache
def node_selector_terms() -> st.SearchStrategy[dict[str, Any]]:
    """Draw a node selector term; some are invalid, some select nodes by name."""
    fields = st.fixed_dictionaries(
        {
            "key": st.just("metadata.name"),
            "operator": st.sampled_from(("In", "NotIn")),
            "values": st.lists(st.sampled_from(("n0", "n1", "gone")), min_size=1, max_size=2),
        }
    )
    return any_fields(
        matchExpressions=st.lists(_expressions(), max_size=2),
        matchFields=st.lists(fields, max_size=1),
    )


@cache
def node_affinities() -> st.SearchStrategy[dict[str, Any]]:
    """Draw a ``nodeAffinity``, as in YAML."""
    preferred = st.fixed_dictionaries(
        {"weight": st.integers(0, 100), "preference": node_selector_terms()}
    )
    return any_fields(
        requiredDuringSchedulingIgnoredDuringExecution=st.fixed_dictionaries(
            {"nodeSelectorTerms": st.lists(node_selector_terms(), max_size=3)}
        ),
        preferredDuringSchedulingIgnoredDuringExecution=st.lists(preferred, max_size=3),
    )


@cache
def _containers(vocabulary: Vocabulary = _NO_MORE) -> st.SearchStrategy[dict[str, Any]]:
    requests = any_fields(
        **{
            "cpu": st.sampled_from(_CPU),
            "memory": st.sampled_from(_MEMORY),
            **{
                name: st.sampled_from(("0", "1", "1Gi") if _is_in_bytes(name) else ("0", "1", "5"))
                for name in ("example.com/gpu", *vocabulary.resources)
            },
            "ephemeral-storage": st.sampled_from(("1", "1Gi")),
        }
    )
    port = st.fixed_dictionaries(
        {"hostPort": st.sampled_from((0, 80, 443))},
        optional={
            "hostIP": st.sampled_from(("0.0.0.0", "10.0.0.1")),
            "protocol": st.sampled_from(("TCP", "UDP")),
        },
    )
    return st.fixed_dictionaries(
        {"resources": st.fixed_dictionaries({"requests": requests})},
        optional={
            "image": st.sampled_from(("registry.example/app:v1", "busybox", "host:5000/img", "no")),
            "ports": st.lists(port, max_size=2),
            "restartPolicyRules": st.just([{"action": "RestartAllContainers"}]),
        },
    )


@cache
def pods(
    name: str, node_names: tuple[str, ...] = ("",), vocabulary: Vocabulary = _NO_MORE
) -> st.SearchStrategy[PodInfo]:
    """Draw a pod with this name, on one of ``node_names`` ("" for a pending pod).

    It has no labels, unless ``vocabulary`` names some.
    """
    containers = _containers(vocabulary)
    sidecar = st.sampled_from((None, "Always"))
    init = st.builds(lambda c, policy: {**c, "restartPolicy": policy}, containers, sidecar)
    spec = st.fixed_dictionaries(
        {"containers": st.lists(containers, min_size=1, max_size=2)},
        optional={
            "initContainers": st.lists(init, max_size=2),
            "overhead": st.just({"cpu": "10m", "memory": "1Mi"}),
            "resources": st.just({"requests": {"cpu": "1500m"}}),
            "hostNetwork": st.booleans(),
            "hostUsers": st.booleans(),
        },
    )
    return st.builds(
        make_pod,
        st.just(name),
        labels=_maps(vocabulary.pod_labels, (*VALUES, *vocabulary.values))
        if vocabulary.pod_labels
        else st.none(),
        node_name=st.sampled_from(node_names),
        priority=st.sampled_from((None, 0, 10)),
        node_selector=st.none() | _maps(KEYS, VALUES),
        tolerations=st.lists(tolerations(), max_size=3),
        affinity=st.none() | st.fixed_dictionaries({"nodeAffinity": node_affinities()}),
        spec=spec,
    )


@st.composite
def clusters(
    draw: st.DrawFn, max_nodes: int = 6, max_pods: int = 5, *, vocabulary: Vocabulary = _NO_MORE
) -> Cluster:
    """Draw a cluster of nodes and pods; nodes are named n0, n1, …

    ``vocabulary``: further resources and labels.
    """
    names = tuple(f"n{index}" for index in range(draw(st.integers(0, max_nodes))))
    count = draw(st.integers(0, max_pods)) if names else 0
    return Cluster(
        [draw(nodes(name, vocabulary)) for name in names],
        [draw(pods(f"p{index}", names, vocabulary)) for index in range(count)],
        draw(pods("pending", vocabulary=vocabulary)),
        changes=draw(st.lists(changes(vocabulary), max_size=4)),
    )


# ---- changes -------------------------------------------------------------------------------------


@cache
def changes(vocabulary: Vocabulary = _NO_MORE) -> st.SearchStrategy[Change]:
    """Draw a change to the nodes, or to the pods on them."""
    some = tuple(f"n{index}" for index in range(7))
    names = st.sampled_from(some)
    arrivals = st.one_of(*(pods(f"new{index}", some, vocabulary) for index in range(3)))
    return st.one_of(
        arrivals.map(place_pod),
        names.map(take_pod),
        st.one_of(*(nodes(name, vocabulary) for name in some)).map(put_node),
        names.map(drop_node),
    )


def place_pod(pod: PodInfo) -> Change:
    """Return a change that adds a pod to its node, if the node exists and lacks it."""

    def change(handle: FakeHandle) -> None:
        row = handle.nodes.rows.get(pod.pod.spec.node_name)
        if row is not None and pod.uid not in handle.nodes[row].pods:
            handle.nodes.add_pod(row, pod)

    return change


def take_pod(node_name: str) -> Change:
    """Return a change that removes the first pod of a node, if there is one."""

    def change(handle: FakeHandle) -> None:
        row = handle.nodes.rows.get(node_name)
        if row is not None and (uid := next(iter(handle.nodes[row].pods), None)) is not None:
            handle.nodes.remove_pod(row, uid)

    return change


def put_node(node: Node) -> Change:
    """Return a change that adds or replaces a node."""

    def change(handle: FakeHandle) -> None:
        nodes, name = handle.nodes, node.metadata.name
        exists = name in nodes
        info = nodes[nodes.rows[name]] if exists else NodeInfo(name)
        info.set_node(node)
        if exists:
            nodes.update_node(info)
        else:
            nodes.add_node(info)
        handle.api.put(NODES, node)

    return change


def drop_node(name: str) -> Change:
    """Return a change that removes a node with its pods, if it exists."""

    def change(handle: FakeHandle) -> None:
        if name in handle.nodes:
            handle.nodes.remove_node(handle.nodes[handle.nodes.rows[name]])
            handle.remove("Node", name)

    return change


def put_object(obj: JsonObject) -> Change:
    """Return a change that adds or replaces an object, given as in YAML."""
    return lambda handle: handle.add(obj)


def remove_object(kind: str, key: str) -> Change:
    """Return a change that removes an object, if it exists."""
    return lambda handle: handle.remove(kind, key)
