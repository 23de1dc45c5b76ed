"""Examples on a real apiserver: those that depend on bindings, Permit, or pods that end.

One process runs all five plugins, each in a profile as in its config.yaml.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
import yaml
from envtest import objects
from envtest.control_plane import ControlPlane
from envtest.kube_client import KubeClient
from envtest.schedulers import RunScheduler, configuration
from envtest.waiting import eventually

from proreus.workbench.bench.processes import Child, free_ports

Json = dict[str, Any]

EXAMPLES = Path(__file__).parents[2] / "examples"
TRIED = ("partition", "delay-scheduling", "job-barrier", "approval", "reserve-and-notify")
PODS = objects.PODS.format("default")


@pytest.fixture(scope="module")
def licences(folder: Path) -> Iterator[Callable[[], Json]]:
    """A function that returns the state of the licence server."""
    [port] = free_ports(1)
    program = EXAMPLES / "reserve-and-notify" / "licence_server.py"
    command = [sys.executable, program, f"--port={port}", "--seats", "cad=2"]
    server = Child("licences", command, folder / "licences.log")

    def state() -> Json:
        with urlopen(f"http://127.0.0.1:{port}/", timeout=5) as response:
            found: Json = json.load(response) | {"port": port}
            return found

    def is_ready() -> bool:
        try:
            return bool(state())
        except OSError:
            return False

    server.start()
    server.wait_for(20, "a response", is_ready)
    yield state
    server.kill()


@pytest.fixture(scope="module")
def kube(
    control_plane: ControlPlane,
    run_module_scheduler: RunScheduler,
    licences: Callable[[], Json],
) -> Iterator[KubeClient]:
    """A client of the cluster on which the plugins run."""
    profiles = [_profile_of(example) for example in TRIED]
    profiles[-1]["pluginConfig"][0]["args"]["url"] = f"http://127.0.0.1:{licences()['port']}"
    flags = [f"--plugin-dir={EXAMPLES / example / 'plugins'}" for example in TRIED]
    config = configuration(profiles, control_plane.kubeconfig)
    scheduler = run_module_scheduler(config, kind="proreus", flags=flags)
    yield control_plane.client
    scheduler.finish()


def _profile_of(example: str) -> Json:
    """Return an example's profile with its own schedulerName; all share one QueueSort plugin."""
    profile, sorting = _read_profile(example), "delay-scheduling"
    if example != sorting:
        profile["pluginConfig"] += _read_profile(sorting)["pluginConfig"]
    profile["plugins"]["queueSort"] = {
        "enabled": [{"name": "DelayScheduling"}],
        "disabled": [{"name": "*"}],
    }
    return profile | {"schedulerName": example}


def _read_profile(example: str) -> Json:
    config: Json = yaml.safe_load((EXAMPLES / example / "config.yaml").read_text())
    profile: Json = config["profiles"][0]
    return profile


@contextmanager
def cluster_of(example: str, kube: KubeClient) -> Iterator[Callable[[], dict[str, str]]]:
    """Create an example's nodes and pods; yield a function that returns each pod's node."""
    for obj in yaml.safe_load_all((EXAMPLES / example / "cluster.yaml").read_text()):
        if obj["kind"] == "Pod":
            obj["spec"]["schedulerName"] = example
        else:
            obj["status"]["allocatable"] = obj["status"]["capacity"]
        kube.create(objects.NODES if obj["kind"] == "Node" else PODS, obj)

    def nodes() -> dict[str, str]:
        return {pod["metadata"]["name"]: pod["spec"].get("nodeName", "") for pod in kube.list(PODS)}

    yield nodes
    for pod in nodes():
        remove(pod, kube)
    kube.delete(objects.NODES)
    eventually(10, "an empty cluster", lambda: not nodes() and not kube.list(objects.NODES))


def remove(pod: str, kube: KubeClient) -> None:
    kube.delete(f"{PODS}/{pod}", gracePeriodSeconds="0")


def test_partition(kube: KubeClient) -> None:
    with cluster_of("partition", kube) as nodes:
        eventually(20, "two bound pods", lambda: len(set(nodes().values())) == 3)
        assert nodes()["notebook"] == "node-1"
        assert nodes()["simulation"] in ("node-2", "node-3")

        def reason() -> str:
            conditions = kube.get(f"{PODS}/misspelt")["status"].get("conditions") or []
            return " ".join(condition.get("message", "") for condition in conditions)

        eventually(10, "a reason", lambda: 'no partition "bacth"' in reason())


def test_delay_scheduling(kube: KubeClient) -> None:
    with cluster_of("delay-scheduling", kube) as nodes:
        remove("holder", kube)
        eventually(20, "a pod that got what it waited for", lambda: nodes()["analysis"] == "data")
        eventually(20, "a pod that has waited in vain", lambda: nodes()["hopeful"] == "other")


def test_approval(kube: KubeClient) -> None:
    with cluster_of("approval", kube) as nodes:
        eventually(20, "two bound pods", lambda: nodes()["plain"] and nodes()["approved"])
        asking = f"{PODS}/asking"

        def question() -> str:
            annotations: dict[str, str] = kube.get(asking)["metadata"].get("annotations") or {}
            return annotations.get("example.com/proposed-node", "")

        eventually(10, "a question", lambda: question() == "node-1")
        assert nodes()["asking"] == ""
        kube.patch(asking, {"metadata": {"annotations": {"example.com/approval": "granted"}}})
        eventually(10, "a pod that was approved", lambda: nodes()["asking"] == "node-1")


def test_job_barrier(kube: KubeClient) -> None:
    with cluster_of("job-barrier", kube) as nodes:
        job = ("train-master", "train-0", "train-1")
        eventually(20, "a whole job", lambda: all(nodes()[name] for name in job))
        assert nodes()["lonely-master"] == ""
        late = kube.get(f"{PODS}/lonely-master")
        labels = late["metadata"]["labels"] | {"example.com/role": "worker"}
        annotations = late["metadata"]["annotations"]
        fellow = objects.pod("lonely-0", "job-barrier", cpu="100m", labels=labels)
        fellow["metadata"]["annotations"] = annotations
        kube.create(PODS, fellow)
        eventually(20, "a job that is complete", lambda: all(nodes().values()))


def test_reserve_and_notify(kube: KubeClient, licences: Callable[[], Json]) -> None:
    def held() -> int:
        return len(licences()["held"]["cad"])

    with cluster_of("reserve-and-notify", kube) as nodes:
        eventually(20, "two seats in use", lambda: sum(map(bool, nodes().values())) == 3)
        assert (held(), nodes()["plain"]) == (2, "workstation")
        remove(next(name for name, node in nodes().items() if node and name != "plain"), kube)
        eventually(20, "the third pod", lambda: all(nodes().values()))
        eventually(20, "the news of it", lambda: len(licences()["notified"]) == 3)
    eventually(10, "seats given back", lambda: held() == 0)
