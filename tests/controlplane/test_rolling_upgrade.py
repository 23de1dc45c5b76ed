"""Two replicas are upgraded one after the other and rolled back, while pods are created.

The steps are those of a Deployment with two replicas: a new pod has to be ready before an old one
is terminated (docs/upgrading.md). The apiserver's audit log says what was bound, and by which
version.
"""

from __future__ import annotations

import json
import shutil
import threading
from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from envtest import assertions, objects
from envtest.control_plane import ADMIN_TOKEN, ControlPlane
from envtest.schedulers import Kind, RunScheduler, SchedulerProcess, configuration, profile
from envtest.waiting import eventually

import proreus

Json = dict[str, Any]

NODES = 60
PODS_A_SECOND = 20
BURST = 150
"""Pods that are created at once before a replica ends, so that it ends in the middle of work."""

LONGEST_WAIT_SECONDS = 14
"""Less than the Lease's 15 s: a replica that ends hands it over."""

NEW_VERSION = "0.1.1"


class Load(threading.Thread):
    """Creates pods at a steady rate; ``burst`` creates more at once."""

    def __init__(self, plane: ControlPlane) -> None:
        super().__init__(daemon=True)
        self.created = 0
        self._client = plane.client
        self._lock = threading.Lock()
        self._over = threading.Event()

    def run(self) -> None:
        while not self._over.wait(1 / PODS_A_SECOND):
            self.create(1)

    def create(self, count: int) -> None:
        with self._lock:
            numbers = range(self.created, self.created + count)
            self.created += count
        pods = [objects.pod(f"pod-{n:05}", "spread-out", cpu="1m", memory="1Mi") for n in numbers]
        self._client.create_all(objects.PODS, pods)

    def stop(self) -> None:
        self._over.set()
        self.join()


@pytest.fixture
def load(new_control_plane: ControlPlane) -> Iterator[Load]:
    made = Load(new_control_plane)
    yield made
    if made.is_alive():
        made.stop()


@pytest.fixture
def new_version(folder: Path, pytestconfig: pytest.Config) -> Iterator[tuple[str, str]]:
    """The folder and the number of the other version: this one's copy, or ``--other-version``."""
    if given := pytestconfig.getoption("--other-version"):
        [about] = given.glob("proreus-*.dist-info")
        yield str(given), about.name.removesuffix(".dist-info").removeprefix("proreus-")
        return
    copy = folder / "new-version"
    source = Path(proreus.__file__).parent
    shutil.copytree(source, copy / "proreus", ignore=shutil.ignore_patterns("__pycache__"))
    module = copy / "proreus" / "__init__.py"
    module.write_text(module.read_text().replace(proreus.__version__, NEW_VERSION))
    yield str(copy), NEW_VERSION


class Replicas:
    """The pods of a Deployment: two replicas, at most one more, never one less."""

    def __init__(self, run: RunScheduler, plane: ControlPlane, load: Load) -> None:
        self._run = run
        self._load = load
        self._config = configuration(
            [profile("spread-out")],
            plane.kubeconfig,
            # the defaults, as in deploy/second-scheduler
            {"leaderElect": True, "resourceName": "proreus"},
        )
        # slower than the bursts, so that a replica ends in the middle of one
        self._config["clientConnection"] |= {"qps": 100, "burst": 50}
        self.running: list[SchedulerProcess] = []

    def start(self, count: int, environment: dict[str, str]) -> None:
        """Start replicas, and wait until each is ready."""
        for _ in range(count):
            self.running.append(self._run(self._config, environment=environment))

    def replace_all(self, environment: dict[str, str]) -> None:
        """Roll out another version, the leader first."""
        old, leader = list(self.running), self.leader()
        for replica in sorted(old, key=lambda one: one is not leader):
            self.start(1, environment)
            self._load.create(BURST)
            replica.finish()
            self.running.remove(replica)

    def leader(self) -> SchedulerProcess:
        """Return the replica that holds the Lease."""

        def found() -> list[SchedulerProcess]:
            return [one for one in self.running if one.is_leader(ADMIN_TOKEN)]

        return eventually(30, "a leader", found)[0]


def test_an_upgrade_and_a_roll_back_lose_nothing(
    new_control_plane: ControlPlane,
    run_scheduler: RunScheduler,
    load: Load,
    new_version: tuple[str, str],
    under_test: Kind,
) -> None:
    if under_test != "proreus":
        pytest.skip("there is one version of kube-scheduler here")
    plane, (code, number) = new_control_plane, new_version
    plane.client.create_all(objects.NODES, [objects.node(index) for index in range(NODES)])
    replicas = Replicas(run_scheduler, plane, load)
    replicas.start(2, {})
    load.start()
    eventually(60, "pods bound", lambda: len(plane.binds_by_pod()) > 50)

    replicas.replace_all({"PYTHONPATH": code})
    replicas.replace_all({})
    load.create(BURST)
    load.stop()

    assertions.wait_until_bound(plane.client, load.created, 120)
    pods = plane.client.list(assertions.ALL_PODS)
    assert len(pods) == load.created
    assertions.check_no_node_over_committed(plane.client.list(objects.NODES), pods)
    twice = [pod for pod, codes in plane.binds_by_pod().items() if codes[201] > 1]
    assert not twice
    versions = bindings_by_version(plane)
    assert versions.keys() == {proreus.__version__, number}
    assert min(versions.values()) >= BURST
    longest = max(map(waited_seconds, pods))
    assert longest < LONGEST_WAIT_SECONDS, f"a pod waited {longest} s"
    for replica in replicas.running:
        replica.finish()


def bindings_by_version(plane: ControlPlane) -> Counter[str]:
    """Return the number of bindings by the version in the clients' User-Agent."""
    events = map(json.loads, (plane.folder / "audit.log").read_text().splitlines())
    agents = (event["userAgent"] for event in events)
    return Counter(agent.removeprefix("proreus/v").split(" ")[0] for agent in agents)


def waited_seconds(pod: Json) -> float:
    """Return the time from a pod's creation to its binding, in whole seconds."""
    created, bound = (
        datetime.fromisoformat(text)
        for text in (
            pod["metadata"]["creationTimestamp"],
            assertions.condition(pod)["lastTransitionTime"],
        )
    )
    return (bound - created).total_seconds()
