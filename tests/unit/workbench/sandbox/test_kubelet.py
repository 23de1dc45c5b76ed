import random
from typing import Any

import pytest

from proreus.base.clock import FakeClock
from proreus.workbench.sandbox.api_errors import StatusError
from proreus.workbench.sandbox.cluster import make_node
from proreus.workbench.sandbox.kubelet import RUN_SECONDS, KubeletOptions, Kubelets
from proreus.workbench.sandbox.pods import bind
from proreus.workbench.sandbox.store import Store
from proreus.workbench.sandbox.strategies import STRATEGIES

OPTIONS = KubeletOptions(start_seconds=1.0, start_jitter=0.0, stop_seconds=2.0)


class Cluster:
    """A store and its kubelets in virtual time."""

    def __init__(self) -> None:
        self.clock = FakeClock(1_000_000.0)
        self.store = Store(STRATEGIES, self.clock)
        self.kubelets = Kubelets(self.store, OPTIONS)

    def settle(self, seconds: float = 0.0) -> None:
        for pause in (0.0, seconds):
            self.clock.advance(pause)
            while self.kubelets.step(self.clock.now()):
                pass

    def pod(self, name: str) -> dict[str, Any]:
        return self.store.get("pods", name, "default").object()

    def place(self, name: str, node: str, cpu: str = "100m", **more: Any) -> None:
        annotations = more.pop("annotations", {})
        container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
        container |= more.pop("container", {})
        self.store.create(
            "pods",
            {
                "metadata": {"name": name, "annotations": annotations},
                "spec": {"containers": [container], **more},
            },
        )
        pods = self.store.resources.find("pods")
        bind(self.store, pods, name, "default", {"target": {"name": node}})


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster()
    cluster.store.create("nodes", make_node("n1", capacity={"cpu": "4"}, address="10.0.0.9"))
    cluster.settle()
    return cluster


def test_a_bound_pod_runs_after_start_seconds(cluster: Cluster) -> None:
    cluster.place("p", "n1")
    cluster.settle(0.9)
    assert cluster.pod("p")["status"]["phase"] == "Pending"
    cluster.settle(0.2)
    status = cluster.pod("p")["status"]
    assert status["phase"] == "Running"
    assert status["hostIP"] == "10.0.0.9"
    assert status["podIP"]
    ready = {entry["type"]: entry["status"] for entry in status["conditions"]}
    assert ready["Ready"] == ready["PodScheduled"] == "True"
    assert status["containerStatuses"][0]["ready"]


def test_a_pod_with_run_seconds_succeeds_and_releases_its_requests(cluster: Cluster) -> None:
    cluster.place("p", "n1", cpu="4", annotations={RUN_SECONDS: "5"}, restartPolicy="Never")
    cluster.settle(1.0)
    cluster.settle(4.9)
    assert cluster.pod("p")["status"]["phase"] == "Running"
    cluster.settle(0.2)
    assert cluster.pod("p")["status"]["phase"] == "Succeeded"
    cluster.place("q", "n1", cpu="4")
    cluster.settle(2.0)
    assert cluster.pod("q")["status"]["phase"] == "Running"


def test_a_pod_that_does_not_fit_is_rejected(cluster: Cluster) -> None:
    cluster.place("p", "n1", cpu="3800m")
    cluster.place("q", "n1", cpu="500m")
    cluster.settle(2.0)
    status = cluster.pod("q")["status"]
    assert (status["phase"], status["reason"]) == ("Failed", "OutOfcpu")
    assert status["message"] == (
        "Pod was rejected: Node didn't have enough resource: cpu, requested: 500, used: 3800, "
        "capacity: 4000"
    )
    (event,) = cluster.store.list("events", "default")
    assert event.object()["reason"] == "OutOfcpu"
    assert cluster.pod("p")["status"]["phase"] == "Running"


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"nodeSelector": {"disk": "ssd"}}, "NodeAffinity"),
        ({"container": {"ports": [{"containerPort": 1, "hostPort": 80}]}}, "NodePorts"),
        (
            {"cpu": "1", "container": {"resources": {"requests": {"x.com/gpu": "1"}}}},
            "OutOfx.com/gpu",
        ),
    ],
)
def test_other_reasons_of_rejection(cluster: Cluster, more: dict[str, Any], reason: str) -> None:
    cluster.place("p", "n1", container={"ports": [{"containerPort": 1, "hostPort": 80}]})
    cluster.place("q", "n1", **more)
    cluster.settle(2.0)
    assert cluster.pod("q")["status"]["reason"] == reason


def test_a_pod_that_does_not_tolerate_a_taint_is_rejected() -> None:
    cluster = Cluster()
    taint = {"key": "k", "effect": "NoExecute"}
    cluster.store.create("nodes", make_node("n1", taints=[taint]))
    cluster.place("p", "n1")
    cluster.place("q", "n1", tolerations=[{"operator": "Exists"}])
    cluster.settle()
    cluster.settle(2.0)
    assert cluster.pod("p")["status"]["reason"] == "TaintToleration"
    assert cluster.pod("q")["status"]["phase"] == "Running"


def test_a_deleted_pod_is_removed_after_stop_seconds(cluster: Cluster) -> None:
    cluster.place("p", "n1", cpu="4")
    cluster.settle(1.0)
    _, gone = cluster.store.delete("pods", "p", "default")
    assert not gone
    assert cluster.pod("p")["metadata"]["deletionGracePeriodSeconds"] == 30
    cluster.settle(1.9)
    assert cluster.pod("p")["metadata"]["deletionTimestamp"]
    cluster.settle(0.2)
    with pytest.raises(StatusError):
        cluster.pod("p")
    cluster.place("q", "n1", cpu="4")
    cluster.settle(2.0)
    assert cluster.pod("q")["status"]["phase"] == "Running"


def test_pods_wait_for_a_node_that_does_not_exist_yet(cluster: Cluster) -> None:
    cluster.place("p", "n2")
    cluster.settle(5.0)
    assert cluster.pod("p")["status"]["phase"] == "Pending"
    cluster.store.create("nodes", make_node("n2"))
    cluster.settle(0.0)
    cluster.settle(1.0)
    assert cluster.pod("p")["status"]["phase"] == "Running"


def test_heartbeats_are_spread_over_their_period() -> None:
    random.seed(1)
    cluster = Cluster()
    names = [f"n{number}" for number in range(10)]
    for name in names:
        cluster.store.create("nodes", make_node(name))
    cluster.settle()
    before = {name: cluster.store.get("nodes", name).revision for name in names}
    cluster.settle(30.0)
    beaten = [name for name in names if cluster.store.get("nodes", name).revision > before[name]]
    assert 0 < len(beaten) < len(names)
    cluster.settle(30.0)
    assert all(cluster.store.get("nodes", name).revision > before[name] for name in names)
    node = cluster.store.get("nodes", "n0").object()
    assert all("lastHeartbeatTime" in entry for entry in node["status"]["conditions"])
    lease = cluster.store.get("leases.coordination.k8s.io", "n0", "kube-node-lease").object()
    assert lease["spec"]["renewTime"].startswith("1970-01-12T13:47:")
    cluster.store.delete("nodes", "n0")
    cluster.settle(1.0)
    with pytest.raises(StatusError):
        cluster.store.get("leases.coordination.k8s.io", "n0", "kube-node-lease")


def test_a_pod_that_is_deleted_before_it_starts_never_runs(cluster: Cluster) -> None:
    cluster.place("p", "n1")
    cluster.settle(0.5)
    cluster.store.delete("pods", "p", "default")
    cluster.settle(0.6)
    assert cluster.pod("p")["status"]["phase"] == "Pending"
