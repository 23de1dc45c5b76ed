"""Random clusters with pods that request devices: classes, slices, claims, extended resources.

Hypothesis strategies like those of ``clusters``. Some selectors fail on some devices, some claims
are already allocated, some pools are incomplete.
"""

from __future__ import annotations

from functools import cache

from hypothesis import strategies as st

from proreus.framework.pod_info import PodInfo
from proreus.objects.node import Node
from proreus.offline.api import JsonObject
from proreus.testing.builders import make_node, make_pod
from proreus.testing.clusters import (
    Change,
    Cluster,
    any_fields,
    drop_node,
    place_pod,
    put_node,
    put_object,
    remove_object,
    take_pod,
)

DRIVER = "gpu.example.com"
GPU = "example.com/gpu"
NODES = ("n0", "n1", "n2", "n3")
_DEVICES = ("a", "b", "c", "d")
_CLAIMS = ("c0", "c1", "c2")
_CLASSES = ("gpu", "big")
_BIG = f'device.attributes["{DRIVER}"].big'
_IN_RACK = {
    "nodeSelectorTerms": [
        {"matchExpressions": [{"key": "rack", "operator": "In", "values": ["1"]}]}
    ]
}


@cache
def _devices(name: str) -> st.SearchStrategy[JsonObject]:
    attributes = any_fields(
        big=st.builds(lambda value: {"bool": value}, st.booleans()),
        model=st.builds(lambda value: {"string": value}, st.sampled_from(("x", "y"))),
    )
    taint = {"key": "broken", "effect": "NoSchedule"}
    return st.builds(
        lambda attributes, taints: {"name": name, "attributes": attributes, "taints": taints},
        attributes,
        st.sampled_from(([], [], [taint])),
    )


@cache
def _slices(
    name: str, spec: st.SearchStrategy[JsonObject] | None = None
) -> st.SearchStrategy[JsonObject]:
    """Draw a ResourceSlice; ``spec``: its nodes, if not the node of that name."""
    # Two in three exist: with fewer, most claims fit on no node.
    chances = (_devices(device) for device in _DEVICES)
    devices = st.tuples(*(st.one_of(made, made, st.none()) for made in chances)).map(
        lambda made: [device for device in made if device is not None]
    )
    where = st.just({"nodeName": name}) if spec is None else spec
    return st.builds(
        lambda devices, count, where: {
            "kind": "ResourceSlice",
            "metadata": {"name": f"slice-{name}"},
            "spec": {
                "driver": DRIVER,
                "pool": {"name": name, "generation": 1, "resourceSliceCount": count},
                "devices": devices,
                **where,
            },
        },
        devices,
        st.sampled_from((1, 1, 1, 2)),
        where,
    )


@cache
def _wide() -> st.SearchStrategy[JsonObject]:
    return st.sampled_from(({"allNodes": True}, {"nodeSelector": _IN_RACK}))


@cache
def _requests(name: str) -> st.SearchStrategy[JsonObject]:
    selector = [{"cel": {"expression": _BIG}}]
    exactly = st.fixed_dictionaries(
        {"deviceClassName": st.sampled_from(("gpu", "big", "gpu", "gpu", "big", "gone"))},
        optional={
            "count": st.integers(1, 3),
            "selectors": st.just(selector),
            "tolerations": st.just([{"operator": "Exists"}]),
        },
    ).map(lambda wanted: {"allocationMode": "ExactCount", "count": 1, **wanted})
    everything = st.just({"deviceClassName": "gpu", "allocationMode": "All"})
    alternatives = st.builds(
        lambda first, second: {
            "name": name,
            "firstAvailable": [{"name": "s0", **first}, {"name": "s1", **second}],
        },
        exactly,
        exactly,
    )
    plain = (exactly | everything).map(lambda wanted: {"name": name, "exactly": wanted})
    return st.one_of(plain, alternatives)


def _allocated(node: str, devices: list[str], users: list[str]) -> JsonObject:
    by_name = {"key": "metadata.name", "operator": "In", "values": [node]}
    return {
        "allocation": {
            "devices": {
                "results": [
                    {"request": "r0", "driver": DRIVER, "pool": node, "device": device}
                    for device in devices
                ]
            },
            "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [by_name]}]},
        },
        "reservedFor": [{"resource": "pods", "name": name, "uid": name} for name in users],
    }


@cache
def _claims(name: str) -> st.SearchStrategy[JsonObject]:
    constraints = st.sampled_from(([], [], [{"matchAttribute": f"{DRIVER}/model"}]))
    given = st.builds(
        _allocated,
        st.sampled_from(NODES),
        st.lists(st.sampled_from(_DEVICES), min_size=1, max_size=2, unique=True),
        st.sampled_from(([], ["other"])),
    )
    return st.builds(
        lambda requests, constraints, status: {
            "kind": "ResourceClaim",
            "metadata": {"name": name, "namespace": "default", "uid": f"uid-of-{name}"},
            "spec": {"devices": {"requests": requests, "constraints": constraints}},
            "status": status,
        },
        st.one_of(
            st.tuples(_requests("r0")),
            st.tuples(_requests("r0")),
            st.tuples(_requests("r0"), _requests("r1")),
        ),
        constraints,
        st.one_of(st.just({}), st.just({}), given),
    )


@cache
def _class(name: str) -> st.SearchStrategy[JsonObject]:
    selectors = [{"cel": {"expression": _BIG}}] if name == "big" else []
    return st.sampled_from((None, GPU)).map(
        lambda resource: {
            "kind": "DeviceClass",
            "metadata": {"name": name},
            "spec": {"selectors": selectors, "extendedResourceName": resource},
        }
    )


@cache
def _nodes(name: str) -> st.SearchStrategy[Node]:
    labels = st.sampled_from(({}, {"rack": "1"}))
    resources = st.sampled_from(({}, {}, {GPU: 0}, {GPU: 2}))
    return st.builds(make_node, st.just(name), labels=labels, resources=resources)


@cache
def _pods(name: str, node_names: tuple[str, ...]) -> st.SearchStrategy[PodInfo]:
    claims = st.lists(st.sampled_from(_CLAIMS), max_size=2, unique=True).map(
        lambda names: {"resourceClaims": [{"name": n, "resourceClaimName": n} for n in names]}
    )
    resources = st.sampled_from(({}, {}, {GPU: 1}, {GPU: 3}))
    return st.builds(
        make_pod,
        st.just(name),
        cpu=st.sampled_from((None, "1", "3")),
        node_name=st.sampled_from(node_names),
        resources=resources,
        spec=claims,
    )


@cache
def _changes() -> st.SearchStrategy[Change]:
    names = st.sampled_from(NODES)
    return st.one_of(
        _pods("new", NODES).map(place_pod),
        names.map(take_pod),
        st.one_of(*map(_nodes, NODES)).map(put_node),
        names.map(drop_node),
        st.one_of(*map(_slices, NODES)).map(put_object),
        names.map(lambda name: remove_object("ResourceSlice", f"slice-{name}")),
        st.one_of(*map(_class, _CLASSES)).map(put_object),
        st.sampled_from(_CLASSES).map(lambda name: remove_object("DeviceClass", name)),
        st.one_of(*map(_claims, _CLAIMS)).map(put_object),
    )


@st.composite
def device_clusters(draw: st.DrawFn) -> Cluster:
    """Draw a cluster of nodes, devices and pods; nodes are named n0, n1, …"""
    names = NODES[: draw(st.integers(1, len(NODES)))]
    return Cluster(
        [draw(_nodes(name)) for name in names],
        [draw(_pods(f"p{number}", names)) for number in range(draw(st.integers(0, 2)))],
        draw(_pods("pending", ("",))),
        [
            *(draw(_class(name)) for name in _CLASSES),
            *(draw(_slices(name)) for name in names),
            *draw(st.lists(_slices("net", _wide()), max_size=1)),
            *(draw(_claims(name)) for name in _CLAIMS),
        ],
        draw(st.lists(_changes(), max_size=3)),
    )
