"""Jobs and groups of pods in a queue of Kueue."""

from __future__ import annotations

from typing import Any

from envtest import assertions, objects

from operators.gangs import GangCluster

Json = dict[str, Any]

KUEUE = "kueue.x-k8s.io"
API = f"/apis/{KUEUE}/v1beta2"
CONFIG = {
    "apiVersion": f"config.{KUEUE}/v1beta2",
    "kind": "Configuration",
    "integrations": {"frameworks": ["batch/job", "pod"]},
}


def kueue_object(kind: str, name: str, spec: Json) -> Json:
    version = f"{KUEUE}/v1beta2"
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec}


def start(gangs: GangCluster, cpu: int) -> None:
    """Start Kueue and proreus, with a queue named as the namespace whose quota is ``cpu``."""
    gangs.start_operator("kueue", config=CONFIG)
    gangs.schedule("gangs")
    name = gangs.namespace
    quotas = [{"name": "cpu", "nominalQuota": cpu}, {"name": "memory", "nominalQuota": "1Gi"}]
    flavors = [{"name": name, "resources": quotas}]
    spec = {
        "namespaceSelector": {},
        "resourceGroups": [{"coveredResources": ["cpu", "memory"], "flavors": flavors}],
    }
    flavor = kueue_object("ResourceFlavor", name, {})
    gangs.client.create(f"{API}/resourceflavors", flavor)
    queue = kueue_object("ClusterQueue", name, spec)
    gangs.client.create(f"{API}/clusterqueues", queue)
    gangs.create(kueue_object("LocalQueue", name, {"clusterQueue": name}), "localqueues")


def job(gangs: GangCluster, name: str, pods: int) -> Json:
    template = gangs.template(schedulerName="gangs", restartPolicy="Never")
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": {f"{KUEUE}/queue-name": gangs.namespace}},
        "spec": {"suspend": True, "parallelism": pods, "completions": pods, "template": template},
    }


def read_job(gangs: GangCluster, name: str) -> Json:
    return gangs.client.get(f"/apis/batch/v1/namespaces/{gangs.namespace}/jobs/{name}")


def status_when_complete(gangs: GangCluster, name: str) -> Json:
    gangs.eventually(
        f"{name} is complete", lambda: "completionTime" in read_job(gangs, name)["status"]
    )
    return dict(read_job(gangs, name)["status"])


def waits_for_quota(gangs: GangCluster, job_name: str) -> bool:
    path = f"{API}/namespaces/{gangs.namespace}/workloads"
    return any(
        workload["metadata"]["ownerReferences"][0]["name"] == job_name
        and any(
            (each["type"], each["status"], each["reason"]) == ("QuotaReserved", "False", "Pending")
            for each in workload.get("status", {}).get("conditions", [])
        )
        for workload in gangs.client.list(path)
    )


def test_job_beyond_the_quota_runs_after_the_first(gangs: GangCluster) -> None:
    start(gangs, cpu=2)
    gangs.create(job(gangs, "first", pods=2), "jobs")
    gangs.eventually("the first is admitted", lambda: len(gangs.pods()) == 2)
    gangs.create(job(gangs, "second", pods=2), "jobs")
    gangs.eventually("the second waits", lambda: waits_for_quota(gangs, "second"))
    assert read_job(gangs, "second")["spec"]["suspend"]
    assert not gangs.pods(**{"job-name": "second"}), gangs.summary()

    # room for both, so that it is Kueue that keeps them apart
    gangs.add_node(4)
    first, second = (status_when_complete(gangs, name) for name in ("first", "second"))
    assert second["startTime"] >= first["completionTime"]
    assert len([pod for pod in gangs.pods() if assertions.node_of(pod)]) == 4, gangs.summary()


def member(gangs: GangCluster, name: str, size: int) -> Json:
    pod = gangs.template(schedulerName="gangs", restartPolicy="Never")
    labels = {f"{KUEUE}/queue-name": gangs.namespace, f"{KUEUE}/pod-group-name": "demo"}
    annotations = {f"{KUEUE}/pod-group-total-count": str(size)}
    pod["metadata"] = {"name": name, "labels": labels, "annotations": annotations}
    return {"apiVersion": "v1", "kind": "Pod", **pod}


def test_pod_group_is_gated_until_admitted_and_starts_as_a_whole(gangs: GangCluster) -> None:
    start(gangs, cpu=3)
    queue = f"{API}/clusterqueues/{gangs.namespace}"
    gangs.client.patch(queue, {"spec": {"stopPolicy": "Hold"}})
    gangs.add_node(2)
    for name in ("one", "two", "three"):
        path = objects.PODS.format(gangs.namespace)
        gangs.client.create(path, member(gangs, name, size=3))
    gates = [pod["spec"].get("schedulingGates") for pod in gangs.pods()]
    assert gates == [[{"name": f"{KUEUE}/admission"}]] * 3

    gangs.client.patch(queue, {"spec": {"stopPolicy": "None"}})
    gangs.waits_as_a_whole(3)
    gangs.add_node(1)
    gangs.runs_as_a_whole(3)
