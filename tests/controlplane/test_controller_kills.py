"""The controller killed (SIGKILL) at random points: nothing lost, nobody evicted twice.

Deployments are crowded on two nodes, and four more appear. The controller may evict one pod of
each, and follows groups and a quota meanwhile. The judge is the apiserver: a watch of all pods says
who was evicted, the record in the cluster what was planned. Three quarters of a minute here; `make
chaos` runs ten (``--chaos-seconds``).
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from envtest import objects
from envtest.controllers import ELASTIC_QUOTAS, POD_GROUPS, ControllerProcess, install
from envtest.kube_client import KubeClient
from envtest.kwok import KwokCluster
from envtest.waiting import eventually

Json = dict[str, Any]

DEPLOYMENTS = 24
REPLICAS = 3
GROUPS = 8
MEMBERS = 3
SCHEDULER = "default-scheduler"
RECORD = "/api/v1/namespaces/kube-system/configmaps/proreus-controller-evictions"
FLAGS = (
    *("--rebalance-period=1", "--evict", "--min-gain=5", "--cooldown=86400"),
    *("--max-evictions=2", "--max-evictions-per-namespace=2"),
)


class EvictionWatch:
    """In a ``with`` block: the uids of evicted pods by workload, as a watch of all pods says."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client
        self._version = client.get(objects.PODS.format("default"))["metadata"]["resourceVersion"]
        self._stopped = threading.Event()
        self.by_workload: dict[str, set[str]] = defaultdict(set)
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> EvictionWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        # The thread ends before the apiserver does, also when the test fails.
        self._stopped.set()
        self._thread.join(10)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        while not self._stopped.is_set():
            for event in self._client.watch(objects.PODS.format("default"), self._version, 2):
                self._version = event["object"]["metadata"]["resourceVersion"]
                self._note(event["object"])

    def _note(self, pod: Json) -> None:
        for condition in pod.get("status", {}).get("conditions", ()):
            if condition.get("reason") == "EvictionByEvictionAPI":
                meta = pod["metadata"]
                self.by_workload[meta["labels"]["app"]].add(meta["uid"])


def recorded(client: KubeClient) -> list[Json]:
    if client.request("GET", RECORD).status == 404:
        return []
    entries: list[Json] = json.loads(client.get(RECORD)["data"]["evictions.json"])
    return entries


def prepare(client: KubeClient) -> None:
    """Crowd two nodes, then add four; wait until everything runs."""
    client.create_all(objects.NODES, [objects.node(index) for index in range(2)])
    eventually(
        60,
        "nodes without taints and a ServiceAccount",
        lambda: (
            all(not node["spec"].get("taints") for node in client.list(objects.NODES))
            and client.list("/api/v1/namespaces/default/serviceaccounts")
        ),
    )
    for name in ("podgroup", "elasticquota"):
        install(client, name)
    spread = {"topologySpreadConstraints": []}
    client.create_all(
        objects.DEPLOYMENTS,
        [
            objects.deployment(f"web-{index}", SCHEDULER, REPLICAS, cpu="800m", spec=spread)
            for index in range(DEPLOYMENTS)
        ],
    )
    eventually(60, "running pods", lambda: running(client) == DEPLOYMENTS * REPLICAS)
    client.create_all(objects.NODES, [objects.node(index) for index in range(2, 6)])
    api = {"apiVersion": "scheduling.x-k8s.io/v1alpha1"}
    spec = {"min": {"cpu": "1"}, "max": {"cpu": "999"}}
    quota = {**api, "kind": "ElasticQuota", "metadata": {"name": "team"}, "spec": spec}
    client.create(ELASTIC_QUOTAS.format("default"), quota)
    for index in range(GROUPS):
        group = {"metadata": {"name": f"gang-{index}"}, "spec": {"minMember": MEMBERS}}
        client.create(POD_GROUPS.format("default"), {**api, "kind": "PodGroup", **group})


def running(client: KubeClient) -> int:
    pods = client.list(objects.PODS.format("default"))
    return sum(
        pod["status"].get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]
        for pod in pods
    )


def test_killed_at_random_points_it_loses_nothing_and_evicts_nobody_twice(
    kwok_cluster: KwokCluster, folder: Path, pytestconfig: pytest.Config
) -> None:
    seconds = float(pytestconfig.getoption("--chaos-seconds"))
    seed = int(pytestconfig.getoption("--chaos-seed") or time.time())
    print(f"seed {seed}, {seconds:g} s")
    rng = random.Random(seed)
    client = KubeClient.from_kubeconfig(kwok_cluster.kubeconfig)
    prepare(client)
    process = ControllerProcess(kwok_cluster.kubeconfig, folder, flags=FLAGS)
    with EvictionWatch(KubeClient.from_kubeconfig(kwok_cluster.kubeconfig)) as watch:
        try:
            kills, interrupted = kill_at_random(client, process, rng, seconds)
            finish(client, process)
        finally:
            process.kill()
        time.sleep(3)  # The watch, which is renewed every two seconds, has shown everything then.

    evicted = {uid for uids in watch.by_workload.values() for uid in uids}
    print(f"{kills} kills, {interrupted} amid plans, {len(evicted)} evictions")
    assert evicted
    assert {app: len(uids) for app, uids in watch.by_workload.items() if len(uids) > 1} == {}
    assert "gang" not in watch.by_workload
    # Nobody was evicted without a plan, and what counts as done was. SIGTERM may have come amid a
    # plan: the next process would finish that one.
    entries = recorded(client)
    assert evicted <= {one["uid"] for one in entries}
    assert evicted >= {one["uid"] for one in entries if one["state"] == "done"}
    client.close()


def kill_at_random(
    client: KubeClient, process: ControllerProcess, rng: random.Random, seconds: float
) -> tuple[int, int]:
    """Start and kill the controller again and again; return the kills, and those amid plans."""
    kills, members, interrupted = 0, 0, 0
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        process.start()
        # The start takes two seconds and the old Lease four to expire: then the work begins.
        time.sleep(rng.uniform(2, 9))
        assert process.running, process.log_tail()
        process.kill()
        kills += 1
        interrupted += any(one["state"] == "planned" for one in recorded(client))
        more = min(rng.randint(0, 6), GROUPS * MEMBERS - members)
        for index in range(members, members + more):
            create_member(client, index)
        members += more
    for index in range(members, GROUPS * MEMBERS):
        create_member(client, index)
    return kills, interrupted


def finish(client: KubeClient, process: ControllerProcess) -> None:
    """Start the controller once more, and stop it when everything is as it must be."""
    process.start()
    # All may be done already, and only a process that is ready handles SIGTERM.
    process.wait_for(30, "readyz", lambda: process.get("/readyz")[0] == 200)
    groups = POD_GROUPS.format("default")
    eventually(
        60,
        "all groups running in their statuses",
        lambda: all(
            (one.get("status") or {}).get("running") == MEMBERS
            and one["status"]["phase"] == "Running"
            for one in client.list(groups)
        ),
    )
    eventually(30, "finished plans", lambda: finished(client))
    total = DEPLOYMENTS * REPLICAS + GROUPS * MEMBERS
    eventually(60, "every pod running again", lambda: running(client) == total)
    used = f"{DEPLOYMENTS * REPLICAS * 800 + GROUPS * MEMBERS * 100}m"
    eventually(30, f"a quota of which {used} are used", lambda: used_cpu(client) == used)
    assert process.terminate(20) == 0


def used_cpu(client: KubeClient) -> str:
    """Return the CPU in the quota's status, in millicores."""
    quota = client.get(f"{ELASTIC_QUOTAS.format('default')}/team")
    cpu = str(quota.get("status", {}).get("used", {}).get("cpu", "0"))
    return cpu if cpu.endswith("m") else f"{int(cpu) * 1000}m"


def create_member(client: KubeClient, index: int) -> None:
    labels = {"scheduling.x-k8s.io/pod-group": f"gang-{index % GROUPS}", "app": "gang"}
    pod = objects.pod(f"member-{index}", SCHEDULER, cpu="100m", labels=labels)
    client.create(objects.PODS.format("default"), pod)


def finished(client: KubeClient) -> list[Json]:
    """Return what is recorded if nothing of it is only planned."""
    entries = recorded(client)
    return entries if all(one["state"] == "done" for one in entries) else []
