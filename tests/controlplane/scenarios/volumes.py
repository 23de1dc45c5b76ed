"""Volumes: binding, provisioning, access modes, limits, and storage capacity."""

from __future__ import annotations

from typing import Any

from envtest.fake_storage import DRIVER, VOLUMES, FakeStorage, bind, volume
from envtest.scenario_cluster import CLAIMS, HOST, ZONE, ScenarioCluster

Json = dict[str, Any]

STORAGE = "/apis/storage.k8s.io/v1"
TOPOLOGY = {"topologyKeys": [ZONE]}


def storage_class(
    cluster: ScenarioCluster, name: str, *, waits: bool = True, local: bool = False, **more: Any
) -> None:
    mode = "WaitForFirstConsumer" if waits else "Immediate"
    provisioner = "kubernetes.io/no-provisioner" if local else DRIVER
    body = {"metadata": {"name": name}, "provisioner": provisioner, "volumeBindingMode": mode}
    cluster.add(f"{STORAGE}/storageclasses", body | more)


def _csi_node(cluster: ScenarioCluster, name: str, count: int) -> None:
    driver = {"name": DRIVER, "nodeID": name, "allocatable": {"count": count}, **TOPOLOGY}
    body = {"metadata": {"name": name}, "spec": {"drivers": [driver]}}
    cluster.add(f"{STORAGE}/csinodes", body)


def _volume(
    cluster: ScenarioCluster, name: str, class_name: str, where: Json, *args: Any, **more: Any
) -> None:
    cluster.add(VOLUMES, volume(name, class_name, where, *args, **more))
    cluster.change(f"{VOLUMES}/{name}/status", {"status": {"phase": "Available"}})


def _nodes(cluster: ScenarioCluster) -> None:
    cluster.node("a-1", 30, "a")
    cluster.node("a-2", 20, "a")
    cluster.node("b-1", 12, "b")
    cluster.node("c-1", 8, "c")


def volumes_are_made_where_the_pod_goes(cluster: ScenarioCluster) -> None:
    """The selected node determines the zone of the volume, and so of its next pod."""
    _nodes(cluster)
    storage_class(cluster, "made")
    terms = [{"matchLabelExpressions": [{"key": ZONE, "values": ["b"]}]}]
    storage_class(cluster, "made-in-b", allowedTopologies=terms)
    for name in ("one", "two"):
        cluster.claim(name, "made")
    cluster.claim("three", "made-in-b")
    cluster.settle()
    with FakeStorage(cluster.client, cluster.add):
        cluster.place("free", claims=("one",))
        cluster.bound(free="a-1")
        cluster.place("c", claims=("two",), nodeSelector={ZONE: "c"})
        cluster.bound(c="c-1")
        cluster.place("b", claims=("three",))
        cluster.bound(b="b-1")
        cluster.place("back-to-c", claims=("two",))
        cluster.bound(**{"back-to-c": "c-1"})
        cluster.place("torn", claims=("one", "two"))
        cluster.refused("torn", "0/4 nodes are available")
        cluster.claim("four", "made-in-b")
        cluster.place("wrong-zone", claims=("four",), nodeSelector={ZONE: "a"})
        cluster.refused("wrong-zone", "0/4 nodes are available")


def the_smallest_free_volume_is_taken(cluster: ScenarioCluster) -> None:
    """Local volumes are matched by size; when none is left, a new one wakes the pod."""
    _nodes(cluster)
    storage_class(cluster, "local", local=True)
    _volume(cluster, "big", "local", {HOST: "a-2"}, "50Gi")
    _volume(cluster, "fitting", "local", {HOST: "a-2"}, "5Gi")
    _volume(cluster, "small", "local", {HOST: "b-1"}, "2Gi")
    for name, size in (("x", "4Gi"), ("y", "1Gi"), ("z", "10Gi"), ("w", "1Gi"), ("v", "1Gi")):
        cluster.claim(name, "local", size)
    cluster.claim("block", "local", volumeMode="Block")
    cluster.settle()
    with FakeStorage(cluster.client, cluster.add):
        cluster.place("x", claims=("x",))
        cluster.bound(x="a-2")
        cluster.place("two", claims=("y", "z"))
        cluster.place("y", claims=("y",), nodeSelector={ZONE: "b"})
        cluster.place("w", claims=("w",))
        cluster.bound(y="b-1", w="a-2")
        cluster.place("v", claims=("v",))
        cluster.place("block", claims=("block",))
        cluster.refused("v", "didn't find available persistent volumes to bind")
        cluster.note("no volume is left")
        _volume(cluster, "late", "local", {HOST: "c-1"}, "2Gi")
        cluster.bound(v="c-1")


def immediate_claims_must_be_bound(cluster: ScenarioCluster) -> None:
    """The pod waits for the volume controller, and then is bound where the volume is."""
    _nodes(cluster)
    storage_class(cluster, "now", waits=False)
    for name in ("bound", "late", "lost", "zoned"):
        cluster.claim(name, "now")
    _volume(cluster, "on-b", "now", {ZONE: "b"}, csi=True, claimRef=_ref(cluster, "bound"))
    _volume(cluster, "on-c", "now", {HOST: "c-1"}, csi=True)
    _volume(cluster, "nowhere", "now", {ZONE: "q"}, csi=True, claimRef=_ref(cluster, "lost"))
    labelled = volume("labelled", "now", {}, csi=True, claimRef=_ref(cluster, "zoned"))
    labelled["metadata"]["labels"] = {ZONE: "c__q"}
    cluster.add(VOLUMES, labelled)
    for claim, name in (("bound", "on-b"), ("lost", "nowhere"), ("zoned", "labelled")):
        bind(cluster.client, claim, name)
    cluster.settle()
    cluster.place("bound", claims=("bound",))
    cluster.place("late", claims=("late",))
    cluster.place("lost", claims=("lost",))
    cluster.place("zoned", claims=("zoned",))
    cluster.place("missing", claims=("missing",))
    cluster.bound(bound="b-1", zoned="c-1")
    cluster.refused("late", "pod has unbound immediate PersistentVolumeClaims")
    cluster.refused("lost", "0/4 nodes are available")
    cluster.refused("missing", 'persistentvolumeclaim "missing" not found')
    cluster.note("the volume controller was slow")
    cluster.change(f"{VOLUMES}/on-c", {"spec": {"claimRef": _ref(cluster, "late")}})
    bind(cluster.client, "late", "on-c")
    cluster.bound(late="c-1")
    cluster.claim("missing", "now")
    cluster.refused("missing", "unbound immediate")


def _ref(cluster: ScenarioCluster, claim: str) -> Json:
    meta = cluster.client.get(f"{CLAIMS}/{claim}")["metadata"]
    ref = {"kind": "PersistentVolumeClaim", "apiVersion": "v1", "namespace": "default"}
    return ref | {"name": claim, "uid": meta["uid"]}


def drivers_attach_only_so_many_volumes(cluster: ScenarioCluster) -> None:
    """CSINodes limit the number of volumes; one that two pods share counts once."""
    cluster.node("a-1", 30)
    cluster.node("a-2", 20)
    _csi_node(cluster, "a-1", 1)
    _csi_node(cluster, "a-2", 2)
    storage_class(cluster, "now", waits=False)
    for name in ("one", "two", "three", "four", "five"):
        cluster.claim(name, "now")
        ref = _ref(cluster, name)
        _volume(cluster, f"v-{name}", "now", {}, csi=True, claimRef=ref)
        bind(cluster.client, name, f"v-{name}")
    cluster.settle()
    cluster.place("one", claims=("one",))
    cluster.place("pair", claims=("two", "three"))
    cluster.place("four", claims=("four",))
    cluster.place("one-again", "500m", claims=("one",))
    cluster.place("three", claims=("four", "five", "one"))
    cluster.bound(one="a-1", pair="a-2")
    cluster.bound(**{"one-again": "a-1"})
    cluster.refused("four", "node(s) exceed max volume count")
    cluster.note("all is full")
    driver = {"name": DRIVER, "nodeID": "a-1", "allocatable": {"count": 2}, **TOPOLOGY}
    cluster.change(f"{STORAGE}/csinodes/a-1", {"spec": {"drivers": [driver]}})
    cluster.bound(four="a-1")


def exclusive_claims_are_for_one_pod(cluster: ScenarioCluster) -> None:
    """ReadWriteOncePod: the second pod waits for the end of the first; likewise for some disks."""
    _nodes(cluster)
    storage_class(cluster, "now", waits=False)
    cluster.claim("alone", "now", accessModes=["ReadWriteOncePod"])
    modes = {"accessModes": ["ReadWriteOncePod"]}
    _volume(cluster, "v", "now", {}, csi=True, claimRef=_ref(cluster, "alone"), **modes)
    bind(cluster.client, "alone", "v")
    cluster.settle()
    cluster.place("first", claims=("alone",))
    cluster.place("second", claims=("alone",))
    disk = [
        {
            "name": "d",
            "iscsi": {"targetPortal": "10.0.0.1", "iqn": "iqn.2026-01.com.example:1", "lun": 0},
        }
    ]
    cluster.place("disk-1", volumes=disk)
    cluster.place("disk-2", volumes=disk)
    cluster.place("disk-3", volumes=disk, nodeSelector={HOST: "a-2"})
    cluster.place("disk-4", volumes=disk, nodeSelector={HOST: "a-2"})
    cluster.bound(first="a-1")
    cluster.refused("second", "PersistentVolumeClaim with ReadWriteOncePod access mode")
    cluster.note("the first pod has the claim")
    cluster.end("first")
    cluster.bound(second="a-1")


def storage_can_run_out(cluster: ScenarioCluster) -> None:
    """CSIStorageCapacity objects limit provisioning; a new one wakes the pod."""
    _nodes(cluster)
    spec = {"storageCapacity": True, "attachRequired": False}
    cluster.add(f"{STORAGE}/csidrivers", {"metadata": {"name": DRIVER}, "spec": spec})
    storage_class(cluster, "made")
    for name in ("a-1", "b-1"):
        _csi_node(cluster, name, 10)
    _capacity(cluster, "cap-a", "a", "1Gi")
    _capacity(cluster, "cap-b", "b", "5Gi")
    cluster.claim("small", "made", "1Gi")
    cluster.claim("middle", "made", "3Gi")
    cluster.claim("large", "made", "9Gi")
    cluster.settle()
    with FakeStorage(cluster.client, cluster.add):
        cluster.place("small", claims=("small",))
        cluster.place("middle", claims=("middle",))
        cluster.placed(
            "small"
        )  # where there is more storage (1.37), or more of anything else (1.36)
        cluster.bound(middle="b-1")
        cluster.place("large", claims=("large",))
        cluster.refused("large", "did not have enough free storage")
        cluster.note("storage has run out")
        _capacity(cluster, "cap-c", "c", "20Gi")
        cluster.bound(large="c-1")


def _capacity(cluster: ScenarioCluster, name: str, zone: str, size: str) -> None:
    body = {
        "metadata": {"name": name},
        "nodeTopology": {"matchLabels": {ZONE: zone}},
        "storageClassName": "made",
        "capacity": size,
    }
    cluster.add(f"{STORAGE}/namespaces/default/csistoragecapacities", body)


SCENARIOS = (
    volumes_are_made_where_the_pod_goes,
    the_smallest_free_volume_is_taken,
    immediate_claims_must_be_bound,
    drivers_attach_only_so_many_volumes,
    exclusive_claims_are_for_one_pod,
    storage_can_run_out,
)
