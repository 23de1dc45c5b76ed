"""Volumes: found, made, promised, restricted, counted; storage that runs out."""

from __future__ import annotations

from typing import Any

from testground.fake_storage import DRIVER, VOLUMES, FakeStorage, bind, volume
from testground.stage import CLAIMS, HOST, ZONE, Stage

Json = dict[str, Any]

STORAGE = "/apis/storage.k8s.io/v1"
TOPOLOGY = {"topologyKeys": [ZONE]}


def _class(
    stage: Stage, name: str, *, waits: bool = True, local: bool = False, **more: Any
) -> None:
    mode = "WaitForFirstConsumer" if waits else "Immediate"
    provisioner = "kubernetes.io/no-provisioner" if local else DRIVER
    body = {"metadata": {"name": name}, "provisioner": provisioner, "volumeBindingMode": mode}
    stage.add(f"{STORAGE}/storageclasses", body | more)


def _csi_node(stage: Stage, name: str, count: int) -> None:
    driver = {"name": DRIVER, "nodeID": name, "allocatable": {"count": count}, **TOPOLOGY}
    body = {"metadata": {"name": name}, "spec": {"drivers": [driver]}}
    stage.add(f"{STORAGE}/csinodes", body)


def _volume(stage: Stage, name: str, class_name: str, where: Json, *args: Any, **more: Any) -> None:
    stage.add(VOLUMES, volume(name, class_name, where, *args, **more))
    stage.change(f"{VOLUMES}/{name}/status", {"status": {"phase": "Available"}})


def _nodes(stage: Stage) -> None:
    stage.node("a-1", 30, "a")
    stage.node("a-2", 20, "a")
    stage.node("b-1", 12, "b")
    stage.node("c-1", 8, "c")


def volumes_are_made_where_the_pod_goes(stage: Stage) -> None:
    """The selected node decides the zone of the volume, and that of the volume's next pod."""
    _nodes(stage)
    _class(stage, "made")
    terms = [{"matchLabelExpressions": [{"key": ZONE, "values": ["b"]}]}]
    _class(stage, "made-in-b", allowedTopologies=terms)
    for name in ("one", "two"):
        stage.claim(name, "made")
    stage.claim("three", "made-in-b")
    stage.settle()
    with FakeStorage(stage.client, stage.add):
        stage.place("free", claims=("one",))
        stage.bound(free="a-1")
        stage.place("c", claims=("two",), nodeSelector={ZONE: "c"})
        stage.bound(c="c-1")
        stage.place("b", claims=("three",))
        stage.bound(b="b-1")
        stage.place("back-to-c", claims=("two",))
        stage.bound(**{"back-to-c": "c-1"})
        stage.place("torn", claims=("one", "two"))
        stage.refused("torn", "0/4 nodes are available")
        stage.claim("four", "made-in-b")
        stage.place("wrong-zone", claims=("four",), nodeSelector={ZONE: "a"})
        stage.refused("wrong-zone", "0/4 nodes are available")


def the_smallest_free_volume_is_taken(stage: Stage) -> None:
    """Local volumes are promised by size; when none is left, a new one wakes the pod."""
    _nodes(stage)
    _class(stage, "local", local=True)
    _volume(stage, "big", "local", {HOST: "a-2"}, "50Gi")
    _volume(stage, "fitting", "local", {HOST: "a-2"}, "5Gi")
    _volume(stage, "small", "local", {HOST: "b-1"}, "2Gi")
    for name, size in (("x", "4Gi"), ("y", "1Gi"), ("z", "10Gi"), ("w", "1Gi"), ("v", "1Gi")):
        stage.claim(name, "local", size)
    stage.claim("block", "local", volumeMode="Block")
    stage.settle()
    with FakeStorage(stage.client, stage.add):
        stage.place("x", claims=("x",))
        stage.bound(x="a-2")
        stage.place("two", claims=("y", "z"))
        stage.place("y", claims=("y",), nodeSelector={ZONE: "b"})
        stage.place("w", claims=("w",))
        stage.bound(y="b-1", w="a-2")
        stage.place("v", claims=("v",))
        stage.place("block", claims=("block",))
        stage.refused("v", "didn't find available persistent volumes to bind")
        stage.note("no volume is left")
        _volume(stage, "late", "local", {HOST: "c-1"}, "2Gi")
        stage.bound(v="c-1")


def immediate_claims_must_be_bound(stage: Stage) -> None:
    """The scheduler waits for the volume controller, and then goes where the volume is."""
    _nodes(stage)
    _class(stage, "now", waits=False)
    for name in ("bound", "late", "lost", "zoned"):
        stage.claim(name, "now")
    _volume(stage, "on-b", "now", {ZONE: "b"}, csi=True, claimRef=_ref(stage, "bound"))
    _volume(stage, "on-c", "now", {HOST: "c-1"}, csi=True)
    _volume(stage, "nowhere", "now", {ZONE: "q"}, csi=True, claimRef=_ref(stage, "lost"))
    labelled = volume("labelled", "now", {}, csi=True, claimRef=_ref(stage, "zoned"))
    labelled["metadata"]["labels"] = {ZONE: "c__q"}
    stage.add(VOLUMES, labelled)
    for claim, name in (("bound", "on-b"), ("lost", "nowhere"), ("zoned", "labelled")):
        bind(stage.client, claim, name)
    stage.settle()
    stage.place("bound", claims=("bound",))
    stage.place("late", claims=("late",))
    stage.place("lost", claims=("lost",))
    stage.place("zoned", claims=("zoned",))
    stage.place("missing", claims=("missing",))
    stage.bound(bound="b-1", zoned="c-1")
    stage.refused("late", "pod has unbound immediate PersistentVolumeClaims")
    stage.refused("lost", "0/4 nodes are available")
    stage.refused("missing", 'persistentvolumeclaim "missing" not found')
    stage.note("the volume controller was slow")
    stage.change(f"{VOLUMES}/on-c", {"spec": {"claimRef": _ref(stage, "late")}})
    bind(stage.client, "late", "on-c")
    stage.bound(late="c-1")
    stage.claim("missing", "now")
    stage.refused("missing", "unbound immediate")


def _ref(stage: Stage, claim: str) -> Json:
    meta = stage.client.get(f"{CLAIMS}/{claim}")["metadata"]
    ref = {"kind": "PersistentVolumeClaim", "apiVersion": "v1", "namespace": "default"}
    return ref | {"name": claim, "uid": meta["uid"]}


def drivers_attach_only_so_many_volumes(stage: Stage) -> None:
    """CSINodes say how many; a volume that two pods share counts once."""
    stage.node("a-1", 30)
    stage.node("a-2", 20)
    _csi_node(stage, "a-1", 1)
    _csi_node(stage, "a-2", 2)
    _class(stage, "now", waits=False)
    for name in ("one", "two", "three", "four", "five"):
        stage.claim(name, "now")
        ref = _ref(stage, name)
        _volume(stage, f"v-{name}", "now", {}, csi=True, claimRef=ref)
        bind(stage.client, name, f"v-{name}")
    stage.settle()
    stage.place("one", claims=("one",))
    stage.place("pair", claims=("two", "three"))
    stage.place("four", claims=("four",))
    stage.place("one-again", "500m", claims=("one",))
    stage.place("three", claims=("four", "five", "one"))
    stage.bound(one="a-1", pair="a-2")
    stage.bound(**{"one-again": "a-1"})
    stage.refused("four", "node(s) exceed max volume count")
    stage.note("all is full")
    driver = {"name": DRIVER, "nodeID": "a-1", "allocatable": {"count": 2}, **TOPOLOGY}
    stage.change(f"{STORAGE}/csinodes/a-1", {"spec": {"drivers": [driver]}})
    stage.bound(four="a-1")


def exclusive_claims_are_for_one_pod(stage: Stage) -> None:
    """ReadWriteOncePod: the second pod waits for the first one's end; disks have such rules too."""
    _nodes(stage)
    _class(stage, "now", waits=False)
    stage.claim("alone", "now", accessModes=["ReadWriteOncePod"])
    modes = {"accessModes": ["ReadWriteOncePod"]}
    _volume(stage, "v", "now", {}, csi=True, claimRef=_ref(stage, "alone"), **modes)
    bind(stage.client, "alone", "v")
    stage.settle()
    stage.place("first", claims=("alone",))
    stage.place("second", claims=("alone",))
    disk = [
        {
            "name": "d",
            "iscsi": {"targetPortal": "10.0.0.1", "iqn": "iqn.2026-01.com.example:1", "lun": 0},
        }
    ]
    stage.place("disk-1", volumes=disk)
    stage.place("disk-2", volumes=disk)
    stage.place("disk-3", volumes=disk, nodeSelector={HOST: "a-2"})
    stage.place("disk-4", volumes=disk, nodeSelector={HOST: "a-2"})
    stage.bound(first="a-1")
    stage.refused("second", "PersistentVolumeClaim with ReadWriteOncePod access mode")
    stage.note("the first pod has the claim")
    stage.end("first")
    stage.bound(second="a-1")


def storage_can_run_out(stage: Stage) -> None:
    """CSIStorageCapacity objects say where there is room; a new one wakes the pod."""
    _nodes(stage)
    spec = {"storageCapacity": True, "attachRequired": False}
    stage.add(f"{STORAGE}/csidrivers", {"metadata": {"name": DRIVER}, "spec": spec})
    _class(stage, "made")
    for name in ("a-1", "b-1"):
        _csi_node(stage, name, 10)
    _capacity(stage, "cap-a", "a", "1Gi")
    _capacity(stage, "cap-b", "b", "5Gi")
    stage.claim("small", "made", "1Gi")
    stage.claim("middle", "made", "3Gi")
    stage.claim("large", "made", "9Gi")
    stage.settle()
    with FakeStorage(stage.client, stage.add):
        stage.place("small", claims=("small",))
        stage.place("middle", claims=("middle",))
        stage.bound(small="a-1", middle="b-1")
        stage.place("large", claims=("large",))
        stage.refused("large", "did not have enough free storage")
        stage.note("storage has run out")
        _capacity(stage, "cap-c", "c", "20Gi")
        stage.bound(large="c-1")


def _capacity(stage: Stage, name: str, zone: str, size: str) -> None:
    body = {
        "metadata": {"name": name},
        "nodeTopology": {"matchLabels": {ZONE: zone}},
        "storageClassName": "made",
        "capacity": size,
    }
    stage.add(f"{STORAGE}/namespaces/default/csistoragecapacities", body)


SCENARIOS = (
    volumes_are_made_where_the_pod_goes,
    the_smallest_free_volume_is_taken,
    immediate_claims_must_be_bound,
    drivers_attach_only_so_many_volumes,
    exclusive_claims_are_for_one_pod,
    storage_can_run_out,
)
