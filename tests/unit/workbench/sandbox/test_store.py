from typing import Any

import pytest

from proreus.base.clock import FakeClock
from proreus.objects.kinds import PODS
from proreus.workbench.sandbox.api_errors import StatusError
from proreus.workbench.sandbox.cluster import make_node
from proreus.workbench.sandbox.patch import APPLY_PATCH, JSON_PATCH, STRATEGIC_MERGE_PATCH
from proreus.workbench.sandbox.store import Store
from proreus.workbench.sandbox.strategies import STRATEGIES

Json = dict[str, Any]


def make_pod(name: str = "p", **spec: Any) -> Json:
    return {"metadata": {"name": name}, "spec": {"containers": [{"name": "c"}], **spec}}


def test_create_sets_system_metadata(store: Store) -> None:
    pod = store.create(PODS, make_pod()).object()
    metadata = pod["metadata"]
    assert metadata["namespace"] == "default"
    assert metadata["creationTimestamp"] == "1970-01-12T13:46:40Z"
    assert metadata["generation"] == 1
    assert metadata["resourceVersion"] == str(store.revision)
    assert len(metadata["uid"]) == 36
    assert (pod["apiVersion"], pod["kind"]) == ("v1", "Pod")


def test_create_drops_the_status_without_keep_status(store: Store) -> None:
    running = {"status": {"phase": "Running"}}
    assert store.create("pods", make_pod() | running).object()["status"]["phase"] == "Pending"
    kept = store.create("pods", make_pod("q") | running, keep_status=True)
    assert kept.object()["status"]["phase"] == "Running"


def test_altering_an_object_that_was_read_does_not_alter_the_store(store: Store) -> None:
    store.create("pods", make_pod())
    store.get("pods", "p", "default").object()["metadata"]["name"] = "another"
    assert store.get("pods", "p", "default").object()["metadata"]["name"] == "p"


def test_generated_names_are_new_names(store: Store) -> None:
    pod = {"metadata": {"generateName": "p-"}, "spec": {"containers": [{"name": "c"}]}}
    names = {store.create("pods", pod).name for _ in range(50)}
    assert len(names) == 50
    assert all(name.startswith("p-") and len(name) == 7 for name in names)


@pytest.mark.parametrize(
    ("obj", "namespace", "code", "text"),
    [
        (make_pod("there"), "", 409, 'pods "there" already exists'),
        (make_pod(), "none", 404, 'namespaces "none" not found'),
        ({"metadata": {"name": "p", "namespace": "a"}}, "default", 400, "does not match"),
        ({"metadata": {}, "spec": {}}, "", 422, "name or generateName is required"),
        ({"metadata": {"name": "p"}, "spec": {}}, "", 422, "spec.containers: Required value"),
        ({"kind": "Node", "metadata": {"name": "p"}}, "", 400, "cannot be handled as a Pod"),
        ({"metadata": {"name": "p", "resourceVersion": "1"}}, "", 400, "should not be set"),
        (make_pod(priorityClassName="x"), "", 403, "no PriorityClass with name x was found"),
    ],
)
def test_create_rejects(store: Store, obj: Json, namespace: str, code: int, text: str) -> None:
    store.create("pods", make_pod("there"))
    with pytest.raises(StatusError, match=text) as refused:
        store.create("pods", obj, namespace)
    assert refused.value.code == code


def test_update_requires_the_current_resource_version(store: Store) -> None:
    old = store.create("nodes", make_node("n")).object()
    changed = store.patch("nodes", "n", {"metadata": {"labels": {"a": "b"}}}).object()
    old["spec"]["unschedulable"] = True
    with pytest.raises(StatusError, match="the object has been modified") as refused:
        store.update("nodes", old)
    assert (refused.value.code, refused.value.reason) == (409, "Conflict")
    changed["spec"]["unschedulable"] = True
    assert store.update("nodes", changed).object()["spec"]["unschedulable"]


def test_the_generation_counts_changes_of_the_spec_only(store: Store) -> None:
    store.create("nodes", make_node("n"))

    def generation(patch: Json, subresource: str = "") -> int:
        version = store.patch("nodes", "n", patch, subresource=subresource)
        return int(version.object()["metadata"]["generation"])

    assert generation({"metadata": {"labels": {"a": "b"}}}) == 1
    assert generation({"status": {"capacity": {"x": "1"}}}, "status") == 1
    assert generation({"spec": {"unschedulable": True}}) == 2


def test_an_update_that_changes_nothing_is_not_written(store: Store) -> None:
    store.create("nodes", make_node("n"))
    before = store.revision
    store.patch("nodes", "n", {"metadata": {"labels": {"kubernetes.io/os": "linux"}}})
    assert store.revision == before


def test_spec_and_status_are_written_separately(store: Store) -> None:
    store.create("pods", make_pod())
    both = {"status": {"phase": "Running"}, "spec": {"activeDeadlineSeconds": 5}}
    pod = store.patch("pods", "p", both, "default").object()
    assert (pod["status"]["phase"], pod["spec"]["activeDeadlineSeconds"]) == ("Pending", 5)
    both["spec"]["activeDeadlineSeconds"] = 6
    pod = store.patch("pods", "p", both, "default", subresource="status").object()
    assert (pod["status"]["phase"], pod["spec"]["activeDeadlineSeconds"]) == ("Running", 5)


def test_system_metadata_cannot_be_patched(store: Store) -> None:
    before = store.create("nodes", make_node("n")).object()["metadata"]
    patch = {"metadata": {"creationTimestamp": "2000-01-01T00:00:00Z", "generation": 7}}
    after = store.patch("nodes", "n", patch).object()["metadata"]
    assert after["creationTimestamp"] == before["creationTimestamp"]
    assert after["generation"] == 1


def test_json_patch_and_apply(store: Store) -> None:
    steps = [{"op": "add", "path": "/metadata/labels/a~1b", "value": "c"}]
    store.create("nodes", make_node("n"))
    patched = store.patch("nodes", "n", steps, content_type=JSON_PATCH)
    assert patched.labels["a/b"] == "c"
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": {"a": "1"}}
    store.patch("configmaps", "m", body, "default", content_type=APPLY_PATCH)
    body["data"] = {"b": "2"}
    applied = store.patch("configmaps", "m", body, "default", content_type=APPLY_PATCH)
    assert applied.object()["data"] == {"a": "1", "b": "2"}


def test_a_dry_run_stores_nothing(store: Store) -> None:
    before = store.revision
    assert store.create("pods", make_pod(), dry_run=True).name == "p"
    assert store.revision == before
    assert not store.list("pods")


def test_an_object_is_removed_with_its_last_finalizer(store: Store) -> None:
    store.create("configmaps", {"metadata": {"name": "m", "finalizers": ["a/b"]}})
    version, gone = store.delete("configmaps", "m", "default")
    assert not gone
    assert version.object()["metadata"]["deletionTimestamp"]
    store.patch("configmaps", "m", {"metadata": {"finalizers": []}}, "default")
    with pytest.raises(StatusError) as refused:
        store.get("configmaps", "m", "default")
    assert refused.value.code == 404


def test_a_pod_on_a_node_is_deleted_in_two_steps(store: Store, clock: FakeClock) -> None:
    store.create("pods", make_pod("bound", nodeName="n", terminationGracePeriodSeconds=60))
    store.create("pods", make_pod("free"))
    assert store.delete("pods", "free", "default")[1]
    version, gone = store.delete("pods", "bound", "default")
    metadata = version.object()["metadata"]
    assert not gone
    assert metadata["deletionTimestamp"] == "1970-01-12T13:47:40Z"
    assert (metadata["deletionGracePeriodSeconds"], metadata["generation"]) == (60, 2)
    again, gone = store.delete("pods", "bound", "default")
    assert (again.revision, gone) == (version.revision, False)
    shorter, _ = store.delete("pods", "bound", "default", grace_seconds=5)
    assert shorter.object()["metadata"]["deletionGracePeriodSeconds"] == 5
    assert store.delete("pods", "bound", "default", grace_seconds=0)[1]


def test_preconditions_of_a_delete(store: Store) -> None:
    uid = store.create("pods", make_pod()).object()["metadata"]["uid"]
    with pytest.raises(StatusError) as refused:
        store.delete("pods", "p", "default", preconditions={"uid": "other"})
    assert refused.value.code == 409
    assert store.delete("pods", "p", "default", preconditions={"uid": uid})[1]


def test_removing_a_namespace_removes_its_objects(store: Store) -> None:
    store.create("namespaces", {"metadata": {"name": "team"}})
    store.create("pods", make_pod(), "team")
    store.create("pods", make_pod())
    store.delete("namespaces", "team")
    assert [version.namespace for version in store.list("pods")] == ["default"]


def test_custom_resources_are_served_while_they_are_defined(store: Store) -> None:
    definition = {
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [
                {"name": "v1", "served": True, "storage": True, "subresources": {"status": {}}},
                {"name": "v1beta1", "served": True, "storage": False},
            ],
        },
    }
    store.create("customresourcedefinitions.apiextensions.k8s.io", definition)
    old = store.resources.at("example.com", "v1beta1", "widgets")
    widget = {"apiVersion": "example.com/v1beta1", "kind": "Widget", "metadata": {"name": "w"}}
    store.create(old, widget | {"spec": {"size": 1}})
    stored = store.get("widgets.example.com", "w", "default").object()
    assert stored["apiVersion"] == "example.com/v1"
    store.patch(old, "w", {"spec": {"size": 2}}, "default")
    assert store.get("widgets.example.com", "w", "default").object()["spec"] == {"size": 2}
    with pytest.raises(StatusError) as refused:
        store.patch(old, "w", {}, "default", content_type=STRATEGIC_MERGE_PATCH)
    assert refused.value.code == 415
    store.delete("customresourcedefinitions.apiextensions.k8s.io", "widgets.example.com")
    with pytest.raises(KeyError, match="widgets"):
        store.list("widgets.example.com")


def test_history_is_bounded_by_its_bytes() -> None:
    store = Store(STRATEGIES, FakeClock(), history_bytes=20_000)
    for number in range(200):
        store.create("configmaps", {"metadata": {"name": f"m{number:03d}"}})
    collection = store.collection("configmaps")
    assert len(store.list("configmaps")) == 200
    with pytest.raises(StatusError) as refused:
        collection.position_after(collection.compacted - 1)
    assert refused.value.code == 410
    kept = collection.changes_from(collection.position_after(collection.compacted))
    assert 0 < sum(len(change.version.data) for change in kept) <= 20_000
    assert kept[-1].version.name == "m199"


def test_events_are_kept_for_an_hour(store: Store, clock: FakeClock) -> None:
    store.create("events", {"metadata": {"name": "old"}})
    clock.advance(3000)
    store.create("events", {"metadata": {"name": "young"}})
    clock.advance(1000)
    assert store.expire_events() == 1
    assert [version.name for version in store.list("events")] == ["young"]


def test_a_request_for_devices_is_for_one_of_them_by_default(store: Store) -> None:
    requests = [
        {"name": "a", "exactly": {"deviceClassName": "c"}},
        {"name": "b", "firstAvailable": [{"name": "x", "allocationMode": "All"}, {"name": "y"}]},
    ]
    spec = {"devices": {"requests": requests}}
    name = {"metadata": {"name": "gpu"}}
    claim = store.create("resourceclaims.resource.k8s.io", {**name, "spec": spec}).object()
    template = {**name, "spec": {"spec": spec}}
    stored = store.create("resourceclaimtemplates.resource.k8s.io", template).object()
    one = {"allocationMode": "ExactCount", "count": 1}
    assert claim["spec"]["devices"]["requests"] == [
        {"name": "a", "exactly": {"deviceClassName": "c", **one}},
        {"name": "b", "firstAvailable": [requests[1]["firstAvailable"][0], {"name": "y", **one}]},
    ]
    assert stored["spec"]["spec"] == claim["spec"]


def test_taints_of_devices_have_a_time(store: Store) -> None:
    taint = {"key": "broken", "effect": "NoSchedule"}
    kind, head = "devicetaintrules.resource.k8s.io", {"metadata": {"name": "r"}}
    rule = store.create(kind, {**head, "spec": {"taint": taint}}).object()
    assert rule["spec"]["taint"]["timeAdded"] == store.now()
