"""The judge and the record of a fault run find what they are there to find (no control plane)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from envtest import fake_storage, objects
from fault_run import steps
from fault_run.judge import APART, CLAIMS, NODES, PODS, VICTIM, VOLUME_CLAIMS, VOLUMES, Judge
from fault_run.record import RequestRecord
from fault_run.steps import step_of

Json = dict[str, Any]


@pytest.fixture
def judge() -> Judge:
    made = Judge()
    for index in range(2):
        made.observe(NODES, "ADDED", objects.node(index, cpu="4"), 0.0)
    return made


def pod(name: str, node: str | None = "node-00000", **options: Any) -> Json:
    made = objects.pod(name, "s", **options)
    made["metadata"]["uid"] = f"uid-of-{name}"
    made["status"] = {}
    if node:
        made["spec"]["nodeName"] = node
    return made


def see(judge: Judge, *pods: Json, event: str = "MODIFIED") -> list[str]:
    for each in pods:
        judge.observe(PODS, event, each, 1.0)
    return judge.violations


def test_fitting_pods_are_no_violation(judge: Judge) -> None:
    assert not see(judge, pod("a", cpu="3"), pod("a", cpu="3"), pod("b", cpu="1"))
    see(judge, pod("a", cpu="3"), event="DELETED")
    assert not see(judge, pod("c", cpu="3"))
    assert not judge.final_violations()


def test_a_node_that_is_over_committed_for_a_moment(judge: Judge) -> None:
    see(judge, pod("a", cpu="3"), pod("b", cpu="2"))
    see(judge, pod("a", cpu="3"), event="DELETED")
    [violation] = judge.final_violations()
    assert violation == "node-00000 has 5.0 of 4 cpu with default/b"


def test_ports_neighbours_and_moves(judge: Judge) -> None:
    see(judge, pod("a", host_port=80), pod("b", host_port=80))
    assert "port 80 2 times" in judge.violations.pop()
    see(judge, pod("c", labels={APART: "x"}), pod("d", labels={APART: "x"}))
    assert "must be apart" in judge.violations.pop()
    see(judge, pod("a", "node-00001", host_port=80))
    assert "moved from node-00000 to node-00001" in judge.violations.pop()
    see(judge, pod("e", "node-00009"))
    assert "does not exist" in judge.violations.pop()


def test_only_victims_are_evicted(judge: Judge) -> None:
    for name, labels in (("a", {VICTIM: "yes"}), ("b", {})):
        evicted = pod(name, labels=labels)
        evicted["metadata"]["deletionTimestamp"] = "now"
        evicted["status"] = {"conditions": [{"type": "DisruptionTarget"}]}
        see(judge, evicted)
    assert judge.violations == ["default/b was evicted, which is no victim"]


def test_a_pod_that_is_never_bound(judge: Judge) -> None:
    see(judge, pod("a", None))
    assert judge.final_violations() == ["default/a is not bound"]


def device_claim(name: str, device: str, consumer: str) -> Json:
    results = [{"pool": "node-00000", "device": device}]
    status = {
        "allocation": {"devices": {"results": results}},
        "reservedFor": [{"name": consumer, "uid": f"uid-of-{consumer}"}],
    }
    meta = {"name": name, "namespace": "default", "uid": f"uid-of-claim-{name}"}
    return {"metadata": meta, "spec": {}, "status": status}


def test_devices(judge: Judge) -> None:
    judge.observe(CLAIMS, "ADDED", device_claim("a", "gpu-0", "a"), 0.0)
    assert judge.final_violations() == ["claim default/a is reserved for a, which is gone"]
    uses = {"resourceClaims": [{"name": "d", "resourceClaimName": "a"}]}
    see(judge, pod("a", spec=uses))
    assert not judge.final_violations()
    judge.observe(CLAIMS, "ADDED", device_claim("b", "gpu-0", "a"), 0.0)
    [violation] = judge.violations
    assert violation.startswith("device node-00000/gpu-0 is allocated to a/")
    judge.violations.clear()
    see(judge, pod("c", "node-00001", spec=uses))
    found = "\n".join(judge.final_violations())
    assert "default/c is bound without its claim" in found
    assert "default/c on node-00001 has devices of {'node-00000'}" in found


def test_volumes(judge: Judge) -> None:
    where = {"kubernetes.io/hostname": "node-00000"}
    ref = {"name": "c", "uid": "uid-of-claim"}
    volume = fake_storage.volume("v", "local", where, claimRef=ref)
    volume["metadata"]["uid"] = "uid-of-volume"
    judge.observe(VOLUMES, "ADDED", volume, 0.0)
    assert judge.final_violations() == ["volume /v is kept for c, which is gone"]
    meta = {"name": "c", "namespace": "default", "uid": "uid-of-claim"}
    claim = {"metadata": meta, "spec": {"volumeName": "v"}}
    judge.observe(VOLUME_CLAIMS, "ADDED", claim, 0.0)
    spec = {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]}
    see(judge, pod("a", spec=spec))
    assert not judge.final_violations()
    see(judge, pod("b", "node-00001", spec=spec))
    found = judge.final_violations()
    assert "default/b on node-00001 has a volume on node-00000" in found
    assert "volume v has 2 pods" in found


def test_a_list_replaces_what_was_seen(judge: Judge) -> None:
    see(judge, pod("a", cpu="3"))
    judge.replace(PODS, {"default/b": pod("b", cpu="3")}, 2.0)
    assert not judge.final_violations()
    assert [one["metadata"]["name"] for one in judge.pods()] == ["b"]


def lease(holder: str) -> bytes:
    return json.dumps({"spec": {"holderIdentity": holder}}).encode()


BINDING = "/api/v1/namespaces/default/pods/p/binding"


def test_bindings_of_who_does_not_hold_the_lease() -> None:
    record = RequestRecord(lease_seconds=5.0)
    record.arrived("a", steps.BIND, BINDING, 0.0)
    record.lease_stored("a", lease("id-of-a"), 1.0)
    record.arrived("a", steps.BIND, BINDING, 5.9)
    assert not record.unfenced
    record.arrived("a", steps.BIND, BINDING, 6.1)
    record.arrived("b", steps.BIND, BINDING, 6.1)
    record.lease_stored("b", lease("id-of-b"), 7.0)
    record.arrived("a", steps.BIND, BINDING, 7.1)
    record.lease_stored("b", lease(""), 8.0)
    record.arrived("b", steps.BIND, BINDING, 8.1)
    assert len(record.unfenced) == 4


@pytest.mark.parametrize(
    ("method", "path", "step"),
    [
        ("POST", BINDING, steps.BIND),
        ("POST", "/apis/events.k8s.io/v1/namespaces/default/events", steps.EVENT),
        ("PATCH", "/api/v1/namespaces/default/pods/p/status", steps.POD_STATUS),
        ("DELETE", "/api/v1/namespaces/default/pods/p", steps.EVICT),
        ("PUT", "/apis/resource.k8s.io/v1/namespaces/d/resourceclaims/c", steps.CLAIM),
        ("PATCH", "/apis/resource.k8s.io/v1/namespaces/d/resourceclaims/c/status", "claim-status"),
        ("PATCH", "/api/v1/persistentvolumes/v", steps.VOLUME),
        ("PUT", "/apis/coordination.k8s.io/v1/namespaces/k/leases/l", steps.LEASE),
        ("GET", "/api/v1/pods", steps.READ),
        ("PATCH", "/api/v1/nodes/n", steps.OTHER),
    ],
)
def test_steps(method: str, path: str, step: str) -> None:
    assert step_of(method, path) == step
