"""A kubelet that rejects every pod, played by writes of the status to a real apiserver."""

from __future__ import annotations

from typing import Any

from envtest import objects
from envtest.control_plane import ADMIN_TOKEN, ControlPlane
from envtest.schedulers import RunScheduler, configuration, profile
from envtest.waiting import eventually

PODS = objects.PODS.format("default")


def test_pods_avoid_a_node_that_rejects_them(
    new_control_plane: ControlPlane, run_scheduler: RunScheduler
) -> None:
    client = new_control_plane.client
    client.create_all(objects.NODES, [objects.node(0)])
    scheduler = run_scheduler(configuration([profile("s")], new_control_plane.kubeconfig))

    def create(name: str) -> None:
        pod = objects.pod(name, "s")
        reference = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "web"}
        pod["metadata"]["ownerReferences"] = [reference | {"controller": True}]
        client.create(PODS, pod)

    def pod(name: str) -> dict[str, Any]:
        return client.get(f"{PODS}/{name}")

    for number in range(3):
        name = f"rejected-{number}"
        create(name)
        eventually(30, "a binding", lambda name=name: pod(name)["spec"].get("nodeName"))
        rejection = {"phase": "Failed", "reason": "OutOfcpu", "message": "Pod was rejected: cpu"}
        client.patch(f"{PODS}/{name}/status", {"status": rejection})

    def avoided() -> bool:
        family = scheduler.metrics(ADMIN_TOKEN).get("proreus_avoided_nodes")
        return family is not None and family.samples[0].value == 1

    eventually(30, "the node to be avoided", avoided)
    create("waiting")

    def message() -> str:
        conditions = pod("waiting")["status"].get("conditions", ())
        return "".join(one.get("message", "") for one in conditions)

    text = "1 node(s) recently rejected pods of the same controller"
    eventually(30, "the pod's condition", lambda: text in message())
    eventually(60, "a binding", lambda: pod("waiting")["spec"].get("nodeName"))
    events = client.get("/apis/events.k8s.io/v1/namespaces/default/events")["items"]
    assert any(event["reason"] == "NodeAvoided" for event in events)
    scheduler.finish()
