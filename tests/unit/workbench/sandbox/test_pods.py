from typing import Any

import pytest

from proreus.workbench.sandbox.api_errors import StatusError
from proreus.workbench.sandbox.cluster import make_node
from proreus.workbench.sandbox.pods import bind, evict
from proreus.workbench.sandbox.store import Store

Json = dict[str, Any]


def create(store: Store, name: str = "p", labels: Json | None = None, **spec: Any) -> Json:
    pod = {"metadata": {"name": name, "labels": labels or {}}, "spec": {"containers": [{}], **spec}}
    return store.create("pods", pod).object()


def bind_to(store: Store, node: str, name: str = "p", **metadata: Any) -> None:
    body = {"metadata": {"name": name, **metadata}, "target": {"kind": "Node", "name": node}}
    bind(store, store.resources.find("pods"), name, "default", body)


def test_the_spec_is_defaulted(store: Store) -> None:
    container = {
        "name": "c",
        "resources": {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "500m"}},
        "ports": [{"containerPort": 80}],
    }
    pod = create(store, containers=[container], hostNetwork=True)
    spec = pod["spec"]
    assert (spec["schedulerName"], spec["restartPolicy"]) == ("default-scheduler", "Always")
    assert spec["containers"][0]["resources"]["requests"] == {"cpu": "500m", "memory": "1Gi"}
    assert spec["containers"][0]["ports"] == [
        {"containerPort": 80, "protocol": "TCP", "hostPort": 80}
    ]
    assert pod["status"] == {"phase": "Pending", "qosClass": "Burstable"}


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        ({}, "BestEffort"),
        ({"requests": {"cpu": "1"}}, "Burstable"),
        ({"limits": {"cpu": "1", "memory": "1"}}, "Guaranteed"),
        ({"limits": {"x.com/gpu": "1"}}, "BestEffort"),
    ],
)
def test_qos_class(store: Store, resources: Json, expected: str) -> None:
    pod = create(store, containers=[{"name": "c", "resources": resources}])
    assert pod["status"]["qosClass"] == expected


def test_priorities_come_from_classes(store: Store) -> None:
    assert create(store, "a", priorityClassName="system-node-critical")["spec"]["priority"] == (
        2_000_001_000
    )
    assert create(store, "b")["spec"]["priority"] == 0
    classes = "priorityclasses.scheduling.k8s.io"
    common = {"globalDefault": True, "preemptionPolicy": "Never"}
    store.create(classes, {"metadata": {"name": "common"}, "value": 7, **common})
    spec = create(store, "c")["spec"]
    assert (spec["priority"], spec["priorityClassName"]) == (7, "common")
    assert spec["preemptionPolicy"] == "Never"


def test_label_keys_are_merged_into_the_selectors(store: Store) -> None:
    constraint = {
        "topologyKey": "zone",
        "labelSelector": {"matchLabels": {"app": "a"}},
        "matchLabelKeys": ["version", "absent"],
    }
    term = {"topologyKey": "zone", "labelSelector": {}, "mismatchLabelKeys": ["tenant"]}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    spec = create(
        store,
        labels={"version": "1", "tenant": "t"},
        topologySpreadConstraints=[constraint],
        affinity=affinity,
    )["spec"]
    assert spec["topologySpreadConstraints"][0]["labelSelector"] == {
        "matchLabels": {"app": "a"},
        "matchExpressions": [{"key": "version", "operator": "In", "values": ["1"]}],
    }
    (merged,) = spec["affinity"]["podAntiAffinity"][
        "requiredDuringSchedulingIgnoredDuringExecution"
    ]
    assert merged["labelSelector"]["matchExpressions"] == [
        {"key": "tenant", "operator": "NotIn", "values": ["t"]}
    ]


def test_binding_assigns_the_pod(store: Store) -> None:
    store.create("nodes", make_node("n", zone="z"))
    create(store)
    failed = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    status = {"status": {"nominatedNodeName": "n", "conditions": [failed]}}
    store.patch("pods", "p", status, "default", subresource="status")
    bind_to(store, "n", annotations={"a": "b"})
    pod = store.get("pods", "p", "default").object()
    assert pod["spec"]["nodeName"] == "n"
    assert "nominatedNodeName" not in pod["status"]
    (condition,) = pod["status"]["conditions"]
    assert (condition["type"], condition["status"]) == ("PodScheduled", "True")
    assert "reason" not in condition
    assert pod["metadata"]["annotations"] == {"a": "b"}
    assert pod["metadata"]["labels"]["topology.kubernetes.io/zone"] == "z"


def test_bindings_that_are_rejected(store: Store) -> None:
    with pytest.raises(StatusError, match='pods "p" not found'):
        bind_to(store, "n")
    uid = create(store)["metadata"]["uid"]
    precondition = f"UID in precondition: other, UID in object meta: {uid}"
    with pytest.raises(StatusError, match=precondition) as refused:
        bind_to(store, "n", uid="other")
    assert refused.value.code == 409
    bind_to(store, "n", uid=uid)
    bound = 'Operation cannot be fulfilled on pods/binding "p": pod p is already assigned to node '
    with pytest.raises(StatusError, match=bound) as refused:
        bind_to(store, "n2")
    assert refused.value.code == 409
    create(store, "gated", schedulingGates=[{"name": "g"}])
    with pytest.raises(StatusError, match=r"pod gated has non-empty \.spec\.schedulingGates"):
        bind_to(store, "n", "gated")
    pod = {"metadata": {"name": "going", "finalizers": ["a/b"]}, "spec": {"containers": [{}]}}
    store.create("pods", pod)
    store.delete("pods", "going", "default")
    with pytest.raises(
        StatusError, match="pod going is being deleted, cannot be assigned to a host"
    ):
        bind_to(store, "n", "going")


def test_scheduling_gates_set_a_condition_and_can_only_be_removed(store: Store) -> None:
    pod = create(store, schedulingGates=[{"name": "a"}, {"name": "b"}])
    (condition,) = pod["status"]["conditions"]
    assert (condition["status"], condition["reason"]) == ("False", "SchedulingGated")
    fewer = {"spec": {"schedulingGates": [{"name": "b"}], "nodeSelector": {"x": "y"}}}
    assert store.patch("pods", "p", fewer, "default").object()["spec"]["nodeSelector"]
    more = {"spec": {"schedulingGates": [{"name": "b"}, {"name": "c"}]}}
    with pytest.raises(StatusError, match="pod updates may not change fields other than"):
        store.patch("pods", "p", more, "default")


@pytest.mark.parametrize(
    "patch", [{"nodeName": "n"}, {"schedulerName": "other"}, {"containers": [{"name": "new"}]}]
)
def test_immutable_fields_of_a_pod(store: Store, patch: Json) -> None:
    create(store)
    with pytest.raises(StatusError) as refused:
        store.patch("pods", "p", {"spec": patch}, "default")
    assert refused.value.code == 422


def test_eviction_decrements_the_disruption_budget(store: Store) -> None:
    budgets = "poddisruptionbudgets.policy"
    budget = {
        "metadata": {"name": "b"},
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "a"}}},
        "status": {"disruptionsAllowed": 1, "currentHealthy": 2, "desiredHealthy": 1},
    }
    store.create(budgets, budget, keep_status=True)
    for name in ("p", "q"):
        create(store, name, labels={"app": "a"}, nodeName="n")
    create(store, "unbound", labels={"app": "a"})
    create(store, "other", nodeName="n")
    pods = store.resources.find("pods")
    eviction = {"kind": "Eviction", "deleteOptions": {"gracePeriodSeconds": 0}}
    evict(store, pods, "p", "default", eviction)
    with pytest.raises(StatusError) as refused:
        evict(store, pods, "q", "default", eviction)
    assert refused.value.code == 429
    assert "disruption budget b needs 1 healthy pods" in str(refused.value.details)
    for name in ("unbound", "other"):
        evict(store, pods, name, "default", eviction)
    assert [version.name for version in store.list("pods")] == ["q"]
    status = store.get(budgets, "b", "default").object()["status"]
    assert status["disruptionsAllowed"] == 0
    assert "p" in status["disruptedPods"]
