"""The API in memory: handlers and writes."""

from __future__ import annotations

import pytest

from proreus.base.errors import Conflict, NotFound
from proreus.objects.kinds import BY_KIND, NODES, PODS
from proreus.objects.meta import Resource, Untyped
from proreus.offline.api import FakeRecorder, InMemoryApi

CLAIMS = BY_KIND["PersistentVolumeClaim"]


class RecordingHandler:
    """A handler that records its calls."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def on_add(self, obj) -> None:
        self.lines.append(f"+{obj.metadata.name}")

    def on_update(self, old, new) -> None:
        assert old.metadata.resource_version != new.metadata.resource_version
        self.lines.append(f"~{new.metadata.name}")

    def on_delete(self, obj, final_state_unknown: bool) -> None:
        self.lines.append(f"-{obj.metadata.name}")


@pytest.fixture
def api() -> InMemoryApi:
    return InMemoryApi()


@pytest.fixture
def recorded(api) -> RecordingHandler:
    recorded = RecordingHandler()
    api.add_handler(PODS, recorded)
    return recorded


def stored(api, name: str = "p"):
    return api.store(PODS)[f"default/{name}"]


def test_objects_come_change_and_go(api, recorded, kit) -> None:
    api.add(kit.pod("p"))
    api.merge("Pod", "default/p", {"metadata": {"labels": {"a": "b"}}})
    assert stored(api).metadata.labels == {"a": "b"}
    api.remove("Pod", "default/p")
    api.remove("Pod", "default/p")
    api.merge("Pod", "default/p", {"metadata": {"labels": {"a": "c"}}})
    assert recorded.lines == ["+p", "~p", "-p"]


def test_objects_get_a_uid_that_stays_and_versions_that_move(api, kit) -> None:
    api.add(kit.pod("p"))
    first = stored(api).metadata
    api.merge("Pod", "default/p", {"metadata": {"labels": {"a": "b"}}})
    second = stored(api).metadata
    assert first.uid == second.uid != ""
    assert int(second.resource_version) > int(first.resource_version)


def test_a_kind_that_is_not_known(api) -> None:
    with pytest.raises(KeyError, match="Gadget"):
        api.add({"kind": "Gadget", "metadata": {"name": "x"}})


def test_finished_pods_are_out_of_sight(api, recorded, kit) -> None:
    api.add({**kit.pod("p"), "status": {"phase": "Succeeded"}})
    api.add(kit.pod("q"))
    api.merge("Pod", "default/q", {"status": {"phase": "Failed"}})
    assert recorded.lines == ["+q", "-q"]


def test_finished_pods_can_be_seen_on_request(kit) -> None:
    api = InMemoryApi(hide_finished=False)
    api.add({**kit.pod("p"), "status": {"phase": "Succeeded"}})
    assert stored(api).status.phase == "Succeeded"


def test_change_handlers_are_called_before_informer_handlers(api, recorded, kit) -> None:
    api.on_change(PODS, lambda old, new: recorded.lines.append(f"{old is None} {new is None}"))
    api.add(kit.pod("p"))
    api.remove("Pod", "default/p")
    assert recorded.lines == ["True False", "+p", "False True", "-p"]


# ---- writes --------------------------------------------------------------------------------------


async def test_bind(api, recorded, kit) -> None:
    api.add({**kit.pod("p"), "status": {"nominatedNodeName": "n0"}})
    await api.bind(stored(api), "n0")
    assert stored(api).spec.node_name == "n0"
    assert stored(api).status.nominated_node_name == ""
    assert recorded.lines == ["+p", "~p"]
    with pytest.raises(Conflict) as caught:
        await api.bind(stored(api), "n1")
    assert str(caught.value) == (
        'Operation cannot be fulfilled on pods/binding "p": pod p is already assigned to node "n0"'
    )


async def test_writes_to_a_pod_that_is_gone(api, kit) -> None:
    api.add(kit.pod("p"))
    gone = stored(api)
    api.remove("Pod", "default/p")
    for write in (
        api.bind(gone, "n0"),
        api.patch_pod_status(gone, {"status": {}}),
        api.delete_pod(gone),
        api.get(PODS, "default", "p"),
    ):
        with pytest.raises(NotFound, match='pods "p" not found'):
            await write


async def test_conditions_merge_by_type(api, kit) -> None:
    ready = {"type": "Ready", "status": "False"}
    api.add({**kit.pod("p"), "status": {"conditions": [ready], "nominatedNodeName": "n0"}})
    for message in ("one", "two"):
        condition = {"type": "PodScheduled", "status": "False", "message": message}
        await api.patch_pod_status(stored(api), {"status": {"conditions": [condition]}})
    status = stored(api).status
    assert [(c.type, c.message) for c in status.conditions] == [
        ("Ready", ""),
        ("PodScheduled", "two"),
    ]
    assert status.nominated_node_name == "n0"
    await api.patch_pod_status(stored(api), {"status": {"nominatedNodeName": None}})
    assert stored(api).status.nominated_node_name == ""
    assert len(stored(api).status.conditions) == 2


async def test_deleted_pods_are_remembered(api, kit) -> None:
    api.add(kit.pod("p"))
    await api.delete_pod(stored(api))
    assert api.deleted == ["default/p"]


async def test_any_kind_can_be_written(api) -> None:
    claim = {"metadata": {"generateName": "data-", "namespace": "default"}}
    created = await api.create(CLAIMS, claim)
    name = created["metadata"]["name"]
    assert (created["kind"], created["apiVersion"]) == ("PersistentVolumeClaim", "v1")
    assert name.startswith("data-")
    patched = await api.patch(CLAIMS, "default", name, {"spec": {"volumeName": "v"}})
    assert patched["spec"]["volumeName"] == "v"
    updated = await api.update(CLAIMS, {**patched, "spec": {"volumeName": "w"}})
    assert updated["spec"]["volumeName"] == "w"
    got = await api.get(CLAIMS, "default", name)
    assert got.spec.volume_name == "w"
    await api.delete(CLAIMS, "default", name)
    with pytest.raises(NotFound):
        await api.delete(CLAIMS, "default", name)


async def test_nodes_have_no_namespace(api, kit) -> None:
    api.add(kit.node("n0"))
    assert (await api.get(NODES, "", "n0")).metadata.name == "n0"


def test_events_are_kept(api, kit) -> None:
    api.add(kit.pod("p"))
    recorder = FakeRecorder()
    recorder.event(stored(api), "Normal", "Scheduled", "Binding", "here", "s")
    assert recorder.events == [("default/p", "Scheduled", "here")]


async def test_all_objects_of_a_kind_are_read_by_namespace(api, kit) -> None:
    api.add(kit.pod("p"))
    assert [pod.metadata.name for pod in await api.list_all(PODS)] == ["p"]
    assert await api.list_all(PODS, "elsewhere") == []


async def test_objects_of_a_kind_that_is_only_listed_are_known_by_then() -> None:
    api = InMemoryApi()
    metrics = {"apiVersion": "metrics.k8s.io/v1beta1", "kind": "NodeMetrics"}
    api.add({**metrics, "metadata": {"name": "n"}})
    usages = Resource("metrics.k8s.io", "v1beta1", "nodes", "NodeMetrics", False, Untyped)
    found = await api.list_all(usages)
    assert [one.metadata.name for one in found] == ["n"]
    api.remove("NodeMetrics", "n")
    assert await api.list_all(usages) == []


async def test_responses_about_custom_objects_have_their_kind(api) -> None:
    quotas = Resource("example.com", "v1", "quotas", "Quota", True, Untyped, custom=True)
    made = await api.create(quotas, {"metadata": {"name": "q", "namespace": "default"}})
    assert (made["apiVersion"], made["kind"]) == ("example.com/v1", "Quota")
