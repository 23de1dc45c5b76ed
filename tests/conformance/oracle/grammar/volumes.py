"""Volumes: claims in every state, classes, attach limits of nodes, and storage capacity."""

from __future__ import annotations

from conformance.oracle.grammar import objects
from conformance.oracle.grammar.configurations import configuration
from conformance.oracle.grammar.draw import Draw, JsonObject
from conformance.oracle.grammar.objects import ZONE, thing

_STORAGE = "storage.k8s.io/v1"
_DRIVERS = ("csi.example.com", "csi.example.com", "pd.csi.storage.gke.io", "ebs.csi.aws.com")
_CLASSES = ("wait", "wait", "wait", "now", "wait2", "")
_MIGRATED = ("kubernetes.io/gce-pd,kubernetes.io/aws-ebs", "kubernetes.io/gce-pd", "")


def volumes_wanted(draw: Draw) -> JsonObject:
    """Return a case whose pod has volumes, like other pods on its nodes."""
    names = [f"n{i}" for i in range(draw.randint(1, 5))]
    everything = objects.namespaces(draw)
    for name in names:
        one = objects.node(draw, name)
        if draw.chance(0.8):
            one["spec"] = {}
        everything.append(one)
    everything += [csi_node(draw, name) for name in names if draw.chance(0.8)]
    everything += [
        storage_class(draw, name) for name in ("wait", "now", "wait2") if draw.chance(0.94)
    ]
    if draw.chance(0.5):
        spec = draw.fields(0.9, storageCapacity=draw.chance(0.7), attachRequired=draw.chance(0.7))
        everything.append(thing("CSIDriver", _DRIVERS[0], _STORAGE, spec=spec))
    everything += [_capacity(draw, n) for n in range(draw.choice((0, 0, 1, 2, 4)))]
    stock = Stock(draw, names)
    pod = _pod(draw, stock)
    neighbours = [_neighbour(draw, n, names, stock) for n in range(draw.randint(0, 8))]
    everything += [*stock.volumes, *stock.claims, *neighbours, *_attachments(draw, names, stock)]
    case = {"config": None, "objects": everything, "pod": pod}
    return case | _new_ways(draw)


def csi_node(draw: Draw, name: str) -> JsonObject:
    """Return the drivers of a node and their attach limits."""
    drivers = []
    for driver in dict.fromkeys(_DRIVERS):
        if draw.chance(0.7):
            allocatable = {"count": draw.choice((0, 1, 1, 2, 3))}
            one = {"name": driver, "nodeID": name, "topologyKeys": [ZONE]}
            drivers.append(one | draw.fields(0.7, allocatable=allocatable))
    made = thing("CSINode", name, _STORAGE, spec={"drivers": drivers})
    if draw.chance(0.6):
        key = "storage.alpha.kubernetes.io/migrated-plugins"
        made["metadata"]["annotations"] = {key: draw.choice(_MIGRATED)}
    return made


def storage_class(draw: Draw, name: str) -> JsonObject:
    """Return a class; ``now`` binds at once, the others wait for a pod."""
    makers = (_DRIVERS[0], "kubernetes.io/no-provisioner", "kubernetes.io/gce-pd", _DRIVERS[2])
    made = thing("StorageClass", name, _STORAGE, provisioner=draw.choice(makers))
    mode = "Immediate" if name == "now" else "WaitForFirstConsumer"
    made |= draw.fields(0.95, volumeBindingMode=mode)
    if draw.chance(0.3):
        zones = {"key": ZONE, "values": draw.sample(("z0", "z1", "z2"), 2)}
        disk = {"key": "disk", "values": ["ssd"]}
        old = {"key": "topology.gke.io/zone", "values": ["z0"]}
        topologies: tuple[list[JsonObject], ...] = (
            [{"matchLabelExpressions": [zones]}],
            [{"matchLabelExpressions": [zones, disk]}, {"matchLabelExpressions": [disk]}],
            [{"matchLabelExpressions": [old]}],
            [{}],
        )
        made["allowedTopologies"] = draw.choice(topologies)
    return made


def _capacity(draw: Draw, number: int) -> JsonObject:
    by_zone = {"matchLabels": {ZONE: draw.choice(("z0", "z1"))}}
    by_disk = {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}
    made = thing("CSIStorageCapacity", f"cap{number}", _STORAGE, namespace="default")
    made["storageClassName"] = draw.choice(("wait", "wait2", "wait"))
    made |= draw.fields(
        0.9,
        nodeTopology=draw.choice(({}, by_zone, by_disk)),
        capacity=draw.choice(("1Gi", "5Gi", "100Gi", "0")),
    )
    return made | draw.fields(0.4, maximumVolumeSize=draw.choice(("1Gi", "2Gi", "50Gi")))


class Stock:
    """Volumes and claims of a case, as they are made."""

    def __init__(self, draw: Draw, nodes: list[str]) -> None:
        self._draw = draw
        self._nodes = nodes
        self.claims: list[JsonObject] = []
        self.volumes = [self.volume(f"free{n}") for n in range(draw.randint(0, 5))]

    def volume(self, name: str) -> JsonObject:
        """Return a volume without a claim, whose phase may or may not say so."""
        draw = self._draw
        modes = (["ReadWriteOnce"], ["ReadWriteOnce", "ReadOnlyMany"], ["ReadWriteMany"])
        spec = {
            "capacity": {"storage": draw.choice(("1Gi", "5Gi", "10Gi", "20Gi"))},
            "accessModes": draw.choice((modes[0], *modes, ["ReadWriteOncePod"])),
            "storageClassName": draw.choice(_CLASSES),
            **_source(draw),
            **draw.fields(0.1, volumeMode=draw.choice(("Block", "Filesystem"))),
        }
        if draw.chance(0.45):
            term = draw.choice(
                (
                    {"matchExpressions": [_within("kubernetes.io/hostname", self._nodes[:2])]},
                    {"matchExpressions": [_within(ZONE, ["z0", "z1"])]},
                    {"matchFields": [_within("metadata.name", [draw.choice(self._nodes)])]},
                    {},
                )
            )
            spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [term]}}
        phase = draw.weighted({"Available": 3, "Bound": 1, "Released": 1})
        made = thing("PersistentVolume", name, spec=spec, status={"phase": phase})
        if draw.chance(0.3):
            keys = (ZONE, "failure-domain.beta.kubernetes.io/zone", objects.REGION)
            values = ("z0", "z1", "z0__z1", "r0", "")
            made["metadata"]["labels"] = {draw.choice(keys): draw.choice(values)}
        if draw.chance(0.05):
            made["metadata"] |= {"deletionTimestamp": objects.LONG_AGO, "finalizers": ["x/y"]}
        return made

    def claim(self, name: str) -> JsonObject:
        """Add a claim without a volume."""
        draw = self._draw
        modes = (["ReadWriteMany"], ["ReadWriteOncePod"], ["ReadOnlyMany", "ReadWriteOnce"])
        amount = draw.choice(("1Gi", "1Gi", "3Gi", "10Gi", "0"))
        spec = {
            "accessModes": draw.choice((["ReadWriteOnce"], ["ReadWriteOnce"], *modes)),
            "resources": {"requests": {"storage": amount}},
            **draw.fields(0.93, storageClassName=draw.choice((*_CLASSES, "missing"))),
            **draw.fields(0.08, volumeMode="Block"),
        }
        if draw.chance(0.1):
            by_key = {"matchExpressions": [{"key": ZONE, "operator": "Exists"}]}
            spec["selector"] = draw.choice(({}, {"matchLabels": {ZONE: "z0"}}, by_key))
        phase = "Lost" if draw.chance(0.05) else "Pending"
        made = thing(
            "PersistentVolumeClaim", name, namespace="default", spec=spec, status={"phase": phase}
        )
        made["metadata"] |= {"uid": name, "annotations": {}}
        notes = made["metadata"]["annotations"]
        if draw.chance(0.05):
            notes["volume.beta.kubernetes.io/storage-class"] = "wait2"
        if draw.chance(0.1):
            notes["volume.kubernetes.io/selected-node"] = draw.choice(self._nodes)
        if draw.chance(0.06):
            made["metadata"] |= {"deletionTimestamp": objects.LONG_AGO, "finalizers": ["x/y"]}
        self.claims.append(made)
        return made

    def bound(self, name: str) -> JsonObject:
        """Add a claim that has a volume, or nearly."""
        claim = self.claim(name)
        volume = self.volume(f"of-{name}")
        if self._draw.chance(0.97):
            self.volumes.append(volume)
        claim["spec"]["volumeName"] = volume["metadata"]["name"]
        claim["status"]["phase"] = volume["status"]["phase"] = "Bound"
        if self._draw.chance(0.93):
            claim["metadata"]["annotations"]["pv.kubernetes.io/bind-completed"] = "yes"
        self.promise(volume, name, uid=name if self._draw.chance(0.95) else "another")
        return claim

    def promise(self, volume: JsonObject, claim_name: str, **more: str) -> None:
        """Set the claimRef of a volume."""
        reference = {"kind": "PersistentVolumeClaim", "namespace": "default", "name": claim_name}
        volume["spec"]["claimRef"] = reference | more


def _within(key: str, values: list[str]) -> JsonObject:
    return {"key": key, "operator": "In", "values": values}


def _source(draw: Draw) -> JsonObject:
    handle = f"h{draw.randrange(6)}"
    disk = draw.randrange(3)
    kinds: dict[str, JsonObject] = {
        "csi": {"driver": draw.choice(_DRIVERS), "volumeHandle": handle},
        "gcePersistentDisk": {"pdName": f"d{disk}"},
        "awsElasticBlockStore": {"volumeID": f"aws://us-east-1a/vol-{disk}"},
        "azureDisk": {"diskName": "d", "diskURI": "u"},
        "local": {"path": "/d"},
        "nfs": {"server": "s", "path": "/"},
    }
    kind = draw.choices(tuple(kinds), (45, 15, 10, 5, 15, 10))[0]
    return {kind: kinds[kind]}


def _inline(draw: Draw) -> JsonObject:
    """Return an inline volume of a pod."""
    which = draw.randrange(2)
    shared = draw.fields(0.3, readOnly=True)
    monitors = draw.sample(("m", "k", "l"), 2)
    kinds: tuple[JsonObject, ...] = (
        {"gcePersistentDisk": {"pdName": f"d{which}", **shared}},
        {"awsElasticBlockStore": {"volumeID": f"vol-{which}", **shared}},
        {"iscsi": {"targetPortal": "p", "iqn": f"q{which}", "lun": 0, **shared}},
        {"rbd": {"monitors": monitors, "image": "i", **draw.fields(0.5, pool="p"), **shared}},
        {"azureDisk": {"diskName": "d", "diskURI": "u"}},
        {"csi": {"driver": _DRIVERS[0]}},
        {"emptyDir": {}},
        {"cinder": {"volumeID": "c"}},
        {"portworxVolume": {"volumeID": "c"}},
    )
    return draw.choice(kinds)


def _pod(draw: Draw, stock: Stock) -> JsonObject:
    volumes: list[JsonObject] = []
    for name in [f"claim{n}" for n in range(draw.choice((0, 1, 1, 2, 3)))]:
        state = draw.weighted({"missing": 6, "bound": 45, "promised": 10, "waiting": 39})
        if state == "bound":
            stock.bound(name)
        elif state != "missing":
            stock.claim(name)
        if state == "promised" and stock.volumes:
            stock.promise(draw.choice(stock.volumes), name, **draw.fields(0.5, uid=name))
        source = {"claimName": name, **draw.fields(0.1, readOnly=True)}
        volumes.append({"name": name, "persistentVolumeClaim": source})
    for n in range(draw.choice((0, 0, 0, 1, 2))):
        volumes.append({"name": f"inline{n}", **_inline(draw)})
    if draw.chance(0.15):
        volumes.append(_ephemeral(draw, stock))
    asked = {"name": "c0", "resources": {"requests": {"cpu": "100m"}}}
    pod = objects.pending(draw, volumes=volumes, containers=[asked])
    if draw.chance(0.3):
        pod["spec"]["priority"] = draw.choice((10, 100))
    return pod


def _ephemeral(draw: Draw, stock: Stock) -> JsonObject:
    if draw.chance(0.8):
        owner = {"apiVersion": "v1", "kind": "Pod", "name": "pending", "uid": "default/pending"}
        claim = stock.claim("pending-own")
        if draw.chance(0.8):
            claim["metadata"]["ownerReferences"] = [{**owner, "controller": True}]
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    template = {"spec": {**spec, "storageClassName": "wait"}}
    return {"name": "own", "ephemeral": {"volumeClaimTemplate": template}}


def _neighbour(draw: Draw, number: int, nodes: list[str], stock: Stock) -> JsonObject:
    volumes: list[JsonObject] = []
    for n in range(draw.choice((0, 1, 1, 2))):
        kind = draw.weighted({"own": 5, "shared": 2, "inline": 3})
        if kind == "inline":
            volumes.append({"name": f"v{n}", **_inline(draw)})
            continue
        name = f"used{number}-{n}" if kind == "own" else f"claim{draw.randrange(2)}"
        if kind == "own":
            stock.bound(name)
        volumes.append({"name": f"v{n}", "persistentVolumeClaim": {"claimName": name}})
    asked = {"name": "c", "resources": {"requests": {"cpu": "100m"}}}
    return objects.running(
        draw,
        f"e{number}",
        draw.choice(nodes),
        "default",
        containers=[asked],
        volumes=volumes,
        priority=draw.choice((0, 0, 100)),
    )


def _attachments(draw: Draw, nodes: list[str], stock: Stock) -> list[JsonObject]:
    found = []
    for n in range(draw.choice((0, 0, 1, 2)) if stock.volumes else 0):
        volume = draw.choice(stock.volumes)["metadata"]["name"]
        spec = {"attacher": draw.choice(_DRIVERS), "nodeName": draw.choice(nodes)}
        spec |= {"source": {"persistentVolumeName": volume}}
        status = {"attached": draw.chance(0.7)}
        found.append(thing("VolumeAttachment", f"va{n}", _STORAGE, spec=spec, status=status))
    return found


def _new_ways(draw: Draw) -> JsonObject:
    """Return gates, and the args that they allow."""
    if draw.chance(0.75):
        return {}
    gate = draw.choice(("StorageCapacityScoring", "VolumeLimitScaling"))
    found: JsonObject = {"features": [f"{gate}=true"]}
    args: JsonObject = {"bindTimeoutSeconds": 30}
    if gate == "StorageCapacityScoring" and draw.chance(0.5):
        scores = (draw.choice((0, 10)), draw.choice((0, 5, 10)))
        args["shape"] = [
            {"utilization": at, "score": score} for at, score in zip((0, 100), scores, strict=True)
        ]
    if draw.chance(0.7):
        found["config"] = configuration([{"name": "VolumeBinding", "args": args}])
    return found
