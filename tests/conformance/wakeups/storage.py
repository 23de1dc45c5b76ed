"""Volumes, claims, classes, drivers and their limits, attachments, capacities; pods with claims."""

from __future__ import annotations

from conformance.oracle.grammar.draw import Draw, JsonObject
from conformance.oracle.grammar.objects import HOSTNAME, ZONE, thing
from conformance.wakeups import core
from conformance.wakeups.world import Kind

_STORAGE, _CSI, _DISK = "storage.k8s.io/v1", "csi.example.com", "pd.csi.storage.gke.io"
_CLASSES = ("wait", "now", "static")
_CLAIMS, _VOLUMES = ("c0", "c1", "c2"), ("v0", "v1", "v2")
_BOUND = {"pv.kubernetes.io/bind-completed": "yes"}


# ---- classes, drivers, capacities ----------------------------------------------------------------


def _class(draw: Draw, name: str) -> JsonObject:
    provisioner = "kubernetes.io/no-provisioner" if name == "static" else _CSI
    made = thing("StorageClass", name, _STORAGE, provisioner=provisioner)
    made["volumeBindingMode"] = "Immediate" if name == "now" else "WaitForFirstConsumer"
    if draw.chance(0.3):
        zone = {"key": ZONE, "values": [draw.choice(("z0", "z1"))]}
        made["allowedTopologies"] = [{"matchLabelExpressions": [zone]}]
    return made


def _drivers(draw: Draw) -> list[JsonObject]:
    return [
        {"name": name, "nodeID": "x", "topologyKeys": [ZONE], "allocatable": {"count": count}}
        for name in (_CSI, _DISK)
        for count in draw.choice(((), (0,), (1,), (1,), (3,)))
    ]


def _csi_node(draw: Draw, name: str) -> JsonObject:
    made = thing("CSINode", name, _STORAGE, spec={"drivers": _drivers(draw)})
    made["metadata"]["annotations"] = _migrated(draw)
    return made


def _migrated(draw: Draw) -> JsonObject:
    plugins = draw.choice(("kubernetes.io/gce-pd", None))
    return {"storage.alpha.kubernetes.io/migrated-plugins": plugins}


def _driver(draw: Draw, name: str) -> JsonObject:
    return thing("CSIDriver", name, _STORAGE, spec={"attachRequired": True, **_abilities(draw)})


def _abilities(draw: Draw) -> JsonObject:
    missing = {"preventPodSchedulingIfMissing": draw.chance(0.3)}
    return {"storageCapacity": draw.chance(0.6), **missing}


def _amount(draw: Draw) -> JsonObject:
    return {
        "capacity": draw.choice(("0", "1Gi", "10Gi")),
        "maximumVolumeSize": draw.choice((None, None, "1Gi", "10Gi")),
    }


def _capacity(draw: Draw, name: str) -> JsonObject:
    topology = draw.choice(({}, {"matchLabels": {ZONE: "z0"}}, {"matchLabels": {ZONE: "z1"}}))
    made = thing("CSIStorageCapacity", name, _STORAGE, namespace="default", nodeTopology=topology)
    amount = {key: value for key, value in _amount(draw).items() if value}
    return {**made, "storageClassName": "wait", **amount}


def _attachment(draw: Draw, name: str) -> JsonObject:
    spec = {"attacher": draw.choice((_CSI, _DISK)), "nodeName": draw.choice(core.NODES)}
    spec["source"] = {"persistentVolumeName": draw.choice(_VOLUMES)}
    return thing("VolumeAttachment", name, _STORAGE, spec=spec, status={"attached": True})


# ---- volumes and claims --------------------------------------------------------------------------


def _volume(draw: Draw, name: str) -> JsonObject:
    source = draw.choice(
        (
            {"csi": {"driver": _CSI, "volumeHandle": name}},
            {"csi": {"driver": _CSI, "volumeHandle": name}},
            {"gcePersistentDisk": {"pdName": name}},
            {"local": {"path": "/d"}},
        )
    )
    spec = {
        "capacity": {"storage": draw.choice(("1Gi", "10Gi"))},
        "accessModes": ["ReadWriteOnce", "ReadWriteOncePod"],
        "storageClassName": draw.choice(_CLASSES),
        **source,
        **_reach(draw),
    }
    if draw.chance(0.3):
        spec |= _promised(draw, name)["spec"]
    made = thing("PersistentVolume", name, spec=spec, status={"phase": "Available"})
    made["metadata"]["labels"] = {key: value for key, value in _zones(draw).items() if value}
    return made


def _reach(draw: Draw) -> JsonObject:
    expression = draw.choice(
        (
            {"key": HOSTNAME, "operator": "In", "values": [draw.choice(core.NODES)]},
            {"key": ZONE, "operator": "In", "values": [draw.choice(("z0", "z1"))]},
        )
    )
    term = {"matchExpressions": [expression]}
    return draw.fields(0.5, nodeAffinity={"required": {"nodeSelectorTerms": [term]}})


def _zones(draw: Draw) -> JsonObject:
    return {ZONE: draw.choice((None, None, "z0", "z1", "z0__z1"))}


def _promised(draw: Draw, name: str) -> JsonObject:
    claim = name.replace("v", "c")
    reference = {"kind": "PersistentVolumeClaim", "namespace": "default", "name": claim}
    return {"spec": {"claimRef": {**reference, "uid": claim}}}


def _claim(draw: Draw, name: str) -> JsonObject:
    spec = {
        "accessModes": [draw.choice(("ReadWriteOnce", "ReadWriteOnce", "ReadWriteOncePod"))],
        "resources": {"requests": {"storage": draw.choice(("1Gi", "5Gi"))}},
        "storageClassName": draw.choice(_CLASSES),
    }
    made = thing("PersistentVolumeClaim", name, namespace="default", spec=spec)
    made["metadata"] |= {"uid": name, "annotations": {}}
    made["status"] = {"phase": "Pending"}
    if draw.chance(0.5):
        bound = _bind(draw, name)
        spec |= bound["spec"]
        made |= {"status": bound["status"]}
        made["metadata"]["annotations"] = _BOUND
    return made


def _bind(draw: Draw, name: str) -> JsonObject:
    """Bind the claim ``c0`` to the volume ``v0``, and so on."""
    spec = {"volumeName": name.replace("c", "v")}
    return {"metadata": {"annotations": _BOUND}, "spec": spec, "status": {"phase": "Bound"}}


def _own_claim(draw: Draw, name: str) -> JsonObject:
    """Return the claim of a pod's ephemeral volume, or another of that name."""
    made = _claim(draw, name)
    pod = name.partition("-")[0]
    owner = {"apiVersion": "v1", "kind": "Pod", "name": pod, "uid": f"{pod}-uid"}
    if draw.chance(0.8):
        made["metadata"]["ownerReferences"] = [{**owner, "controller": True}]
    return made


# ---- pods ----------------------------------------------------------------------------------------


def _claims(draw: Draw, pod: JsonObject) -> None:
    _add(pod, *({"persistentVolumeClaim": {"claimName": name}} for name in draw.sample(_CLAIMS, 1)))


def _more_claims(draw: Draw, pod: JsonObject) -> None:
    _add(pod, *({"persistentVolumeClaim": {"claimName": name}} for name in draw.sample(_CLAIMS, 2)))


def _inline(draw: Draw, pod: JsonObject) -> None:
    disk = {"pdName": draw.choice(("d0", "d1")), "readOnly": draw.chance(0.3)}
    target = {"targetPortal": "p", "iqn": draw.choice(("q0", "q1")), "lun": 0}
    kinds = ({"gcePersistentDisk": disk}, {"iscsi": target}, {"csi": {"driver": _CSI}})
    pod["spec"].setdefault("volumes", []).append({"name": "inline", **draw.choice(kinds)})


def _ephemeral(draw: Draw, pod: JsonObject) -> None:
    pod["metadata"]["uid"] = f"{pod['metadata']['name']}-uid"
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    template = {"spec": {**spec, "storageClassName": "wait"}}
    pod["spec"].setdefault("volumes", []).append(
        {"name": "own", "ephemeral": {"volumeClaimTemplate": template}}
    )


def _add(pod: JsonObject, *sources: JsonObject) -> None:
    pod["metadata"]["namespace"] = "default"
    volumes = pod["spec"].setdefault("volumes", [])
    volumes += [{"name": f"x{len(volumes) + n}", **source} for n, source in enumerate(sources)]


_WISHES = (_claims, _claims, _more_claims, _inline, _ephemeral, *core.WISHES[:5])

STORAGE = [
    core.NODE,
    Kind(_CLASSES, _class, often=1, at_start=0.8),
    Kind(
        core.NODES,
        _csi_node,
        (lambda draw, name: {"spec": {"drivers": _drivers(draw)}},) * 2
        + (lambda draw, name: {"metadata": {"annotations": _migrated(draw)}},),
        often=1.5,
    ),
    Kind(
        (_CSI, _DISK),
        _driver,
        (lambda draw, name: {"spec": _abilities(draw)},),
    ),
    Kind(("k0", "k1"), _capacity, (lambda draw, name: _amount(draw),)),
    Kind(("t0", "t1"), _attachment, at_start=0.3),
    Kind(
        _VOLUMES,
        _volume,
        (
            lambda draw, name: {"metadata": {"labels": _zones(draw)}},
            _promised,
            lambda draw, name: {"spec": {"claimRef": None}},
        ),
        often=2,
    ),
    Kind(
        _CLAIMS,
        _claim,
        (_bind, _bind, lambda draw, name: {"metadata": {"annotations": {"x": str(draw.random())}}}),
        often=2,
    ),
    Kind(("p0-own", "p1-own", "a0-own"), _own_claim, (_bind,), at_start=0.4),
    *core.pod_kinds(_WISHES),
]
