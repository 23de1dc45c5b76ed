"""Add-ons on a real apiserver, which serves deploy/crds: each decides as plain scheduling does not.
The scheduler has the rights that deploy/ gives it, and the add-ons those of deploy/chart.

A test has nodes of its own, and shows what a profile without add-ons decides there.
"""

from __future__ import annotations

import time
from typing import Any

import pytest
from envtest import objects
from envtest.control_plane import ADMIN_TOKEN, ControlPlane
from envtest.controllers import install
from envtest.deploy import service_account_kubeconfig
from envtest.kube_client import KubeClient
from envtest.metrics_api import UsageMetrics, serve_metrics
from envtest.schedulers import Kind, RunScheduler, SchedulerProcess, configuration, profile
from envtest.waiting import eventually

Json = dict[str, Any]

PODS = objects.PODS.format("default")
KOORDINATOR = "/apis/scheduling.koordinator.sh/v1alpha1"
PLAIN = "plain"
ADD_ONS: dict[str, Json] = {
    "LoadAwareScheduling": {},
    "Reservation": {},
    "Colocation": {},
    "DeviceShare": {},
    # The test decides when the waiting ends, no number of opportunities and no time.
    "DelayScheduling": {
        "levels": [{"name": "node", "key": "nodeName"}],
        "skips": [],
        "waitSeconds": [3600],
        "maxTotalSeconds": 3600,
    },
}
"""The arguments of each; its profile is called by its name."""
LOADED, IDLE = 0, 1
RESERVED = 2
SHARED = 3
BROKEN, HEALTHY = 4, 5
WITH_DATA, WITHOUT_DATA = 6, 7


def name_of(node: int) -> str:
    return f"node-{node:05}"


def profile_with(add_on: str, args: Json) -> Json:
    made = profile(add_on)
    made["plugins"] = {"multiPoint": {"enabled": [{"name": add_on, "weight": 100}]}}
    made["pluginConfig"].append({"name": add_on, "args": args})
    return made


@pytest.fixture(scope="module")
def client(
    control_plane: ControlPlane, run_module_scheduler: RunScheduler, under_test: Kind
) -> KubeClient:
    """A client of a cluster with nodes, definitions, metrics, and a scheduler with all add-ons."""
    if under_test != "proreus":
        pytest.skip("kube-scheduler has none of them")
    client = control_plane.client
    for name in ("reservation", "device"):
        install(client, name)
    serve_metrics(client)
    for node in range(8):
        client.create(objects.NODES, objects.node(node, cpu="10"))
    for node, health in ((BROKEN, False), (HEALTHY, True)):
        gpu = {"minor": 0, "type": "gpu", "health": health, "resources": {}}
        device = {"apiVersion": "scheduling.koordinator.sh/v1alpha1", "kind": "Device"}
        named = {"metadata": {"name": name_of(node)}, "spec": {"devices": [gpu]}}
        client.create(f"{KOORDINATOR}/devices", {**device, **named})
    metrics = UsageMetrics(client)
    metrics.measure(name_of(LOADED), "9")
    metrics.measure(name_of(IDLE), "100m")
    profiles = [profile_with(name, args) for name, args in ADD_ONS.items()]
    kubeconfig = service_account_kubeconfig(control_plane, ADD_ONS)
    configured = configuration([profile(PLAIN), *profiles], kubeconfig)
    scheduler = run_module_scheduler(configured)
    # They are read every 30 seconds.
    eventually(60, "metrics of nodes", lambda: has_metrics_of_nodes(scheduler))
    return client


def has_metrics_of_nodes(scheduler: SchedulerProcess) -> bool:
    stale = scheduler.metrics(ADMIN_TOKEN).get("proreus_stale_node_metrics")
    return stale is not None and all(sample.value == 0 for sample in stale.samples)


def create(
    client: KubeClient,
    name: str,
    scheduler: str,
    *nodes: int,
    cpu: str = "1",
    resources: Json | None = None,
    annotations: Json | None = None,
    labels: Json | None = None,
) -> None:
    """Create a pod that may have these nodes only."""
    pod = objects.pod(name, scheduler, cpu=cpu, labels=labels)
    pod["metadata"]["annotations"] = annotations or {}
    if resources:
        container = pod["spec"]["containers"][0]
        container["resources"] = {"requests": resources, "limits": resources}
    names = {"key": "metadata.name", "operator": "In"}
    # One name a field: the terms are alternatives.
    terms = [{"matchFields": [{**names, "values": [name_of(node)]}]} for node in nodes]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    pod["spec"]["affinity"] = {"nodeAffinity": required}
    client.create(PODS, pod)


def node_of(client: KubeClient, name: str) -> str:
    node: str = client.get(f"{PODS}/{name}")["spec"].get("nodeName", "")
    return node


def place(client: KubeClient, name: str, scheduler: str, *nodes: int, **options: Any) -> str:
    """Create a pod, and return its node once it has one."""
    create(client, name, scheduler, *nodes, **options)
    return eventually(20, f"a node for {name}", lambda: node_of(client, name))


def why_it_waits(client: KubeClient, name: str) -> str:
    """Return the message of a pod without a node, "" until it was tried."""
    pod = client.get(f"{PODS}/{name}")
    assert "nodeName" not in pod["spec"]
    conditions = pod["status"].get("conditions", ())
    return next((one["message"] for one in conditions if one["type"] == "PodScheduled"), "")


def remove(client: KubeClient, *names: str) -> None:
    for name in names:
        client.delete(f"{PODS}/{name}", {"gracePeriodSeconds": 0})


def test_load_aware_scheduling_prefers_the_node_that_uses_least(client: KubeClient) -> None:
    nodes = LOADED, IDLE
    place(client, "requests-much", PLAIN, IDLE, cpu="5")
    assert place(client, "by-requests", PLAIN, *nodes) == name_of(LOADED)
    remove(client, "by-requests")
    assert place(client, "by-use", "LoadAwareScheduling", *nodes) == name_of(IDLE)


def test_a_reservation_holds_its_room_for_owners(client: KubeClient) -> None:
    assert place(client, "before", PLAIN, RESERVED, cpu="6") == name_of(RESERVED)
    remove(client, "before")
    room = {"name": "room", "resources": {"requests": {"cpu": "8"}}}
    template = {
        "nodeName": name_of(RESERVED),
        "schedulerName": "Reservation",
        "containers": [room],
    }
    reservation = {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "Reservation",
        "metadata": {"name": "web"},
        "spec": {
            "template": {"spec": template},
            "owners": [{"labelSelector": {"matchLabels": {"app": "web"}}}],
        },
    }
    client.create(f"{KOORDINATOR}/reservations", reservation)
    path = f"{KOORDINATOR}/reservations/web"
    eventually(20, "a node", lambda: client.get(path).get("status", {}).get("nodeName"))
    create(client, "other", "Reservation", RESERVED, cpu="6")
    why = eventually(20, "a rejection", lambda: why_it_waits(client, "other"))
    assert "Insufficient cpu" in why
    labels = {"app": "web"}
    owner = place(client, "owner", "Reservation", RESERVED, cpu="6", labels=labels)
    assert owner == name_of(RESERVED)
    eventually(20, "its end", lambda: client.get(path)["status"]["phase"] == "Succeeded")


def test_colocation_keeps_online_pods_off_the_room_that_offline_pods_have(
    client: KubeClient,
) -> None:
    batch = {"kubernetes.io/batch-cpu": "7k", "kubernetes.io/batch-memory": "8Gi"}
    measured = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    patch = {
        "metadata": {"annotations": {"colocation.proreus.dev/measured-at": measured}},
        "status": {"capacity": batch, "allocatable": batch},
    }
    client.patch(f"{objects.NODES}/{name_of(SHARED)}/status", patch)
    offline = {"kubernetes.io/batch-cpu": "6k", "kubernetes.io/batch-memory": "1Gi"}
    place(client, "offline", "Colocation", SHARED, resources=offline)
    create(client, "online", "Colocation", SHARED, cpu="2")
    why = eventually(20, "a rejection", lambda: why_it_waits(client, "online"))
    assert "Insufficient cpu beside online and offline pods" in why
    assert place(client, "plain-online", PLAIN, SHARED, cpu="2") == name_of(SHARED)


def test_device_share_takes_a_healthy_gpu(client: KubeClient) -> None:
    nodes, half = (BROKEN, HEALTHY), {"gpu-fraction": "0.5"}
    place(client, "on-healthy", PLAIN, HEALTHY, cpu="5")
    assert place(client, "any-gpu", PLAIN, *nodes, annotations=half) == name_of(BROKEN)
    assert place(client, "half", "DeviceShare", *nodes, annotations=half) == name_of(HEALTHY)
    annotations = client.get(f"{PODS}/half")["metadata"]["annotations"]
    assert '"koordinator.sh/gpu-core"' in annotations["scheduling.koordinator.sh/device-allocated"]


def test_device_share_gives_no_device_twice_whatever_its_user_writes(client: KubeClient) -> None:
    remove(client, "half")
    most, some = {"gpu-fraction": "0.6"}, {"gpu-fraction": "0.5"}
    assert place(client, "user", "DeviceShare", HEALTHY, annotations=most) == name_of(HEALTHY)
    elsewhere = '{"gpu": [{"minor": 7, "id": {"a": 1}}]}'
    written = {"scheduling.koordinator.sh/device-allocated": elsewhere, "gpu-fraction": "0.1"}
    client.patch(f"{PODS}/user", {"metadata": {"annotations": written}})
    create(client, "second", "DeviceShare", HEALTHY, annotations=some)
    why = eventually(20, "a rejection", lambda: why_it_waits(client, "second"))
    assert "Insufficient free devices" in why
    remove(client, "user")
    found = eventually(20, "a node", lambda: node_of(client, "second"))
    assert found == name_of(HEALTHY)


def test_delay_scheduling_waits_for_the_node_with_the_data(client: KubeClient) -> None:
    nodes = WITH_DATA, WITHOUT_DATA
    preferred = {"proreus.dev/prefer-nodes": name_of(WITH_DATA)}
    place(client, "busy", PLAIN, WITH_DATA, cpu="10")
    elsewhere = place(client, "at-once", PLAIN, *nodes, annotations=preferred)
    assert elsewhere == name_of(WITHOUT_DATA)
    create(client, "waits", "DelayScheduling", *nodes, annotations=preferred)
    eventually(20, "a rejection", lambda: why_it_waits(client, "waits"))
    remove(client, "busy")
    found = eventually(20, "a node", lambda: node_of(client, "waits"))
    assert found == name_of(WITH_DATA)
