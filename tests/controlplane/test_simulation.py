"""What ``proreus simulate`` predicts from a snapshot of a real cluster is what happens there.

Also with kube-scheduler in proreus's place: the forecast holds for both.
"""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from envtest import assertions, objects
from envtest.control_plane import ControlPlane
from envtest.schedulers import SHARED_PLUGINS, RunScheduler, configuration, profile
from envtest.waiting import eventually

Json = dict[str, Any]

RBAC = Path(__file__).parents[2] / "deploy" / "second-scheduler"
SCHEDULER = "planned"
PODS = objects.PODS.format("default")


def proreus(*arguments: str | Path) -> bytes:
    done = subprocess.run(
        [sys.executable, "-m", "proreus", *map(str, arguments)], capture_output=True, timeout=120
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def test_a_forecast_comes_true(
    new_control_plane: ControlPlane, binaries: dict[str, Path], run_scheduler: RunScheduler
) -> None:
    plane, client = new_control_plane, new_control_plane.client
    kubectl = [str(binaries["kubectl"]), f"--kubeconfig={plane.kubeconfig}"]
    subprocess.run([*kubectl, "apply", "-k", str(RBAC)], check=True, capture_output=True)
    sizes = ("2", "3", "5", "8", "13")
    tainted = {"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}
    for index, cpu in enumerate(sizes):
        taints = [tainted] if index == 4 else []
        client.create(objects.NODES, objects.node(index, cpu=cpu, taints=taints))
    secret = objects.pod("running", SCHEDULER, cpu="1500m")
    secret["spec"]["containers"][0]["env"] = [{"name": "PASSWORD", "value": "hunter2"}]
    secret["metadata"]["annotations"] = {"note": "hunter2"}
    client.create(PODS, secret | {"spec": secret["spec"] | {"nodeName": "node-00003"}})

    # With the rights of a scheduler, and no others.
    token = plane.service_account_token("proreus", "proreus")
    kubeconfig = plane.write_kubeconfig(plane.folder / "reader.kubeconfig", token=token)
    snapshot = plane.folder / "cluster.json.gz"
    proreus("snapshot", "--kubeconfig", kubeconfig, "--output", snapshot)
    assert b"hunter2" not in gzip.decompress(snapshot.read_bytes())
    config = configuration([profile(SCHEDULER, plugins=SHARED_PLUGINS)], plane.kubeconfig)
    scheduler_config = plane.folder / "scheduler.json"
    scheduler_config.write_text(json.dumps(config))
    new = plane.folder / "new.json"
    pods = [objects.pod(f"new-{number:02}", SCHEDULER, cpu="1") for number in range(20)]
    new.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": pods}))
    flags = ("--config", scheduler_config, "-o", "json")
    forecast = json.loads(proreus("simulate", snapshot, "--add", new, *flags))["result"]
    one = plane.folder / "one.json"
    one.write_text(json.dumps(pods[0]))
    (capacity,) = json.loads(proreus("simulate", snapshot, "--capacity", one, *flags))["capacity"]
    # 2 + 3 + 5 + 8 CPUs without the 1.5 of the running pod, in whole ones; 13 are tainted.
    assert len(forecast["placed"]) == capacity["fits"] == 2 + 3 + 5 + 6

    run_scheduler(config)
    for pod in pods:
        client.create(PODS, pod)

    def decided() -> list[Json] | None:
        found = [pod for pod in client.list(PODS) if pod["metadata"]["name"].startswith("new-")]
        known = all(assertions.condition(pod) for pod in found)
        return found if known and len(found) == len(pods) else None

    found = eventually(60, "a decision about every pod", decided)
    live: dict[str, int] = {}
    for pod in found:
        if node := assertions.node_of(pod):
            live[node] = live.get(node, 0) + 1
    predicted: dict[str, int] = {}
    for placed in forecast["placed"]:
        predicted[placed["node"]] = predicted.get(placed["node"], 0) + 1
    assert predicted == live
    messages = {
        str(assertions.condition(pod).get("message", ""))
        for pod in found
        if not assertions.node_of(pod)
    }
    assert {one["message"] for one in forecast["unplaced"]} == messages
    assert len(messages) == 1
