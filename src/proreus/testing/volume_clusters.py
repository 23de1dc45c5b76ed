"""Random clusters with pods that have volumes: claims, volumes, classes, capacities, legacy disks.

Hypothesis strategies like those of ``clusters``. Names come from short lists, so that claims often
match volumes, and volumes nodes; some refer to missing objects, some to those of another pod.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from hypothesis import strategies as st

from proreus.framework.pod_info import PodInfo
from proreus.objects.node import LABEL_HOSTNAME, LABEL_ZONE, Node
from proreus.offline.api import JsonObject
from proreus.testing.builders import make_node, make_pod
from proreus.testing.clusters import (
    Change,
    Cluster,
    any_fields,
    drop_node,
    place_pod,
    put_node,
    take_pod,
)
from proreus.testing.volumes import (
    DRIVER,
    make_attachment,
    make_capacity,
    make_claim,
    make_csi_node,
    make_storage_class,
    make_volume,
    spec_with_claims,
)

BETA_ZONE, EBS_ZONE = "failure-domain.beta.kubernetes.io/zone", "topology.ebs.csi.aws.com/zone"
NODES = tuple(f"n{number}" for number in range(6))
ZONES = ("a", "b")
_CLAIMS, _VOLUMES = ("c0", "c1", "c2"), ("pv0", "pv1", "pv2", "pv3", "pv4")
_SIZES = ("1Gi", "2Gi", "3Gi")
_CLASSES = ("wait", "allowed", "static", "now", "ebs")
_EBS = "ebs.csi.aws.com"
_FIXED = (
    make_storage_class("wait"),
    make_storage_class("allowed", allowed=[{LABEL_ZONE: ["a"]}, {LABEL_HOSTNAME: ["n1", "n2"]}]),
    make_storage_class("static", "kubernetes.io/no-provisioner"),
    make_storage_class("now", mode="Immediate"),
    make_storage_class("ebs", "kubernetes.io/aws-ebs"),
    {"kind": "CSIDriver", "metadata": {"name": DRIVER}, "spec": {"storageCapacity": True}},
)


def zone_labels(**values: tuple[str, ...]) -> st.SearchStrategy[dict[str, str]]:
    """Draw topology labels; ``zone``, ``beta`` and ``ebs`` give the values of each label."""
    keys = {"zone": LABEL_ZONE, "beta": BETA_ZONE, "ebs": EBS_ZONE}
    return any_fields(**{keys[name]: st.sampled_from(choice) for name, choice in values.items()})


@cache
def _places() -> st.SearchStrategy[dict[str, list[str]] | None]:
    zones = st.lists(st.sampled_from((*ZONES, "elsewhere")), min_size=1, max_size=2)
    hosts = st.lists(st.sampled_from((*NODES, "gone")), min_size=1, max_size=3)
    some = any_fields(**{LABEL_ZONE: zones, LABEL_HOSTNAME: hosts, BETA_ZONE: zones})
    return st.one_of(st.none(), some)


@cache
def _sources() -> st.SearchStrategy[dict[str, Any]]:
    handles = st.sampled_from(("vol-1", "vol-2", "aws://a/vol-1", "aws://a/odd"))
    return st.one_of(
        st.builds(lambda h: {"csi": {"driver": DRIVER, "volumeHandle": h}}, handles),
        st.builds(lambda h: {"csi": {"driver": _EBS, "volumeHandle": h}}, handles),
        st.builds(lambda h: {"awsElasticBlockStore": {"volumeID": h}}, handles),
        st.just({"local": {"path": "/"}}),
    )


@cache
def _volumes(name: str) -> st.SearchStrategy[JsonObject]:
    return st.builds(
        make_volume,
        st.just(name),
        st.sampled_from(_SIZES),
        st.sampled_from(_CLASSES),
        claim=st.sampled_from(("", "", "", *(f"default/{claim}" for claim in _CLAIMS))),
        claim_uid=st.sampled_from((None, None, "", "another")),
        where=_places(),
        labels=zone_labels(zone=("a", "a__b"), beta=("a", "b__")),
        source=_sources(),
    )


@cache
def _claims(name: str) -> st.SearchStrategy[JsonObject]:
    return st.builds(
        make_claim,
        st.just(name),
        st.sampled_from((*_SIZES, None)),
        st.sampled_from(("wait", "wait", *_CLASSES)),
        volume=st.sampled_from(("", "", "", *_VOLUMES, "gone")),
        selected_node=st.sampled_from(("", "", "", "n0", "n1")),
        modes=st.sampled_from((["ReadWriteOnce"], ["ReadWriteOncePod"], ["ReadWriteMany"])),
    )


@cache
def _csi_nodes(name: str) -> st.SearchStrategy[JsonObject]:
    limits = st.dictionaries(
        st.sampled_from((DRIVER, _EBS)), st.sampled_from((None, 0, 1, 2, 3)), max_size=2
    )
    migrated = st.sampled_from(([], ["kubernetes.io/aws-ebs"]))
    return st.builds(make_csi_node, st.just(name), limits, migrated=migrated)


@cache
def _capacities(name: str) -> st.SearchStrategy[JsonObject]:
    return st.builds(
        make_capacity,
        st.just(name),
        st.sampled_from(_SIZES),
        st.one_of(st.none(), zone_labels(zone=ZONES)),
        st.sampled_from(_CLASSES[:2]),
    )


@cache
def _attachments(name: str) -> st.SearchStrategy[JsonObject]:
    return st.builds(
        make_attachment,
        st.just(name),
        st.sampled_from(NODES),
        st.sampled_from(_VOLUMES),
        st.sampled_from((DRIVER, _EBS)),
    )


@cache
def _disks() -> st.SearchStrategy[JsonObject]:
    """Draw an inline volume, which a pod's spec defines itself."""
    read_only = st.booleans()
    name, monitors = st.sampled_from(("d1", "d2")), st.sampled_from((["m1"], ["m1", "m2"], ["m3"]))
    return st.one_of(
        st.builds(
            lambda d, ro: {"gcePersistentDisk": {"pdName": d, "readOnly": ro}}, name, read_only
        ),
        st.builds(
            lambda d, ro: {"awsElasticBlockStore": {"volumeID": d, "readOnly": ro}}, name, read_only
        ),
        st.builds(
            lambda d, ro: {"iscsi": {"iqn": d, "targetPortal": "p", "readOnly": ro}},
            name,
            read_only,
        ),
        st.builds(
            lambda d, m, ro: {"rbd": {"image": d, "pool": "p", "monitors": m, "readOnly": ro}},
            name,
            monitors,
            read_only,
        ),
    )


@cache
def _pods(name: str, node_names: tuple[str, ...], most: int) -> st.SearchStrategy[PodInfo]:
    """Draw a pod with some claims and inline volumes."""
    # Each further claim is one more that may be missing or unbound, which rejects the pod at once.
    one = st.sampled_from(_CLAIMS).map(lambda claim: [claim])
    several = st.lists(st.sampled_from(_CLAIMS), max_size=most, unique=True)
    claims = st.one_of(one, several)

    def made(node_name: str, names: list[str], disks: list[JsonObject]) -> PodInfo:
        own = [{"name": f"d{number}", **disk} for number, disk in enumerate(disks)]
        spec = {"volumes": [*spec_with_claims(*names)["volumes"], *own]}
        return make_pod(name, node_name=node_name, spec=spec)

    disks = st.lists(_disks(), max_size=2)
    return st.builds(made, st.sampled_from(node_names), claims, disks)


@cache
def _nodes(name: str) -> st.SearchStrategy[Node]:
    labels = zone_labels(zone=ZONES, beta=ZONES, ebs=ZONES)
    return st.builds(make_node, st.just(name), labels=labels)


def _some(
    each: Callable[[str], st.SearchStrategy[JsonObject]], names: tuple[str, ...]
) -> st.SearchStrategy[list[JsonObject]]:
    # One in four is missing: that alone decides for a pod, whatever the other objects say.
    chances = (each(name) for name in names)
    return st.tuples(*(st.one_of(made, made, made, st.none()) for made in chances)).map(
        lambda made: [one for one in made if one is not None]
    )


@cache
def _changes() -> st.SearchStrategy[Change]:
    names = st.sampled_from(NODES)
    return st.one_of(
        _pods("new", NODES, 1).map(place_pod),
        names.map(take_pod),
        st.one_of(*map(_nodes, NODES)).map(put_node),
        names.map(drop_node),
    )


@st.composite
def volume_clusters(draw: st.DrawFn) -> Cluster:
    """Draw a cluster of nodes, volumes, claims and pods; nodes are named n0, n1, …"""
    capacities = tuple(f"capacity{number}" for number in range(3))
    attached = tuple(f"va{number}" for number in range(3))
    return Cluster(
        [draw(_nodes(name)) for name in NODES],
        [draw(_pods(f"p{number}", NODES, 2)) for number in range(draw(st.integers(0, 4)))],
        draw(_pods("pending", ("",), 3)),
        [
            *_FIXED,
            *draw(_some(_volumes, _VOLUMES)),
            *draw(_some(_claims, _CLAIMS)),
            *draw(_some(_csi_nodes, NODES)),
            *draw(_some(_capacities, capacities)),
            *draw(_some(_attachments, attached)),
        ],
        draw(st.lists(_changes(), max_size=3)),
    )
