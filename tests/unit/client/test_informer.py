"""The store and the handlers without a network: the tests call what the reflector calls."""

import asyncio
from types import SimpleNamespace

import pytest

from proreus.base.kubernetes_version import V1_37, V1_38, KubernetesVersion
from proreus.base.metrics import SchedulerMetrics
from proreus.client.watching.informer import Informer, InformerGroup
from proreus.client.watching.informer_factory import InformerFactory
from proreus.client.watching.watch import WatchEvent
from proreus.objects.devices import DEVICE_CLASSES
from proreus.objects.kinds import NODES, PODS
from proreus.objects.meta import ObjectMeta, Resource
from proreus.objects.pod import Pod


def pod(name, version=1, uid=""):
    meta = ObjectMeta(name=name, namespace="d", uid=uid or name, resource_version=str(version))
    return Pod(metadata=meta)


def added(*args, **kwargs):
    return WatchEvent("ADDED", pod(*args, **kwargs))


def modified(*args, **kwargs):
    return WatchEvent("MODIFIED", pod(*args, **kwargs))


def deleted(*args, **kwargs):
    return WatchEvent("DELETED", pod(*args, **kwargs))


class RecordingHandler:
    """Records its calls, and checks that the store agrees at that moment."""

    def __init__(self, informer):
        self.informer = informer
        self.words = []

    def on_add(self, obj):
        assert self.informer.store[f"d/{obj.metadata.name}"] is obj
        self.words.append(f"+{obj.metadata.name}")

    def on_update(self, old, new):
        assert self.informer.store[f"d/{new.metadata.name}"] is new
        self.words.append(f"{old.metadata.resource_version}>{new.metadata.resource_version}")

    def on_delete(self, obj, final_state_unknown):
        assert f"d/{obj.metadata.name}" not in self.informer.store
        version = obj.metadata.resource_version
        self.words.append(f"-{obj.metadata.name}@{version}{'?' * final_state_unknown}")


@pytest.fixture
async def informer():
    return Informer(None, PODS)


@pytest.fixture
def recorded(informer):
    recorded = RecordingHandler(informer)
    informer.add_handler(recorded)
    return recorded


async def test_handlers_are_notified_of_adds_updates_and_deletes(informer, recorded):
    informer.apply([added("a"), modified("a", 2), deleted("a", 3), deleted("never", 4)])
    assert recorded.words == ["+a", "1>2", "-a@3"]


async def test_the_same_version_again_is_not_reported(informer, recorded):
    informer.apply([added("a"), added("a"), modified("a")])
    informer.replace([pod("a")])
    assert recorded.words == ["+a"]


async def test_events_that_are_repeated_do_not_undo_later_ones(informer, recorded):
    informer.apply([added("a", 8), modified("a", 9), modified("a", 10)])
    recorded.words.clear()
    informer.apply([added("a", 8), modified("a", 9), modified("a", 10)])
    informer.apply([deleted("a", 7, uid="the one before")])
    assert recorded.words == []
    informer.apply([deleted("a", 11), added("a", 12, uid="the next one")])
    informer.apply([modified("a", 9), deleted("a", 11), modified("a", 13, uid="the next one")])
    assert recorded.words == ["-a@11", "+a", "12>13"]


async def test_versions_of_an_aggregated_api_need_not_grow():
    resource = Resource("things.example.com", "v1", "things", "Thing", True, Pod)
    informer = Informer(None, resource)
    recorded = RecordingHandler(informer)
    informer.add_handler(recorded)
    informer.apply([added("a", 8), modified("a", 3)])
    assert recorded.words == ["+a", "8>3"]


async def test_a_list_is_reported_as_differences(informer, recorded):
    assert not informer.synced.is_set()
    informer.replace([pod("a"), pod("b"), pod("c")])
    assert informer.synced.is_set()
    recorded.words.clear()
    informer.replace([pod("b", 5), pod("c"), pod("d")])
    assert recorded.words == ["-a@1?", "1>5", "+d"]


@pytest.mark.parametrize("by", ["replace", "apply"])
async def test_another_uid_is_reported_as_delete_and_add(informer, recorded, by):
    informer.replace([pod("a", 1, uid="one")])
    if by == "replace":
        informer.replace([pod("a", 9, uid="two")])
    else:
        informer.apply([modified("a", 9, uid="two")])
    assert recorded.words == ["+a", "-a@1?", "+a"]


async def test_a_late_handler_receives_the_existing_objects(informer):
    informer.replace([pod("a")])
    late = RecordingHandler(informer)
    informer.add_handler(late)
    informer.apply([modified("a", 2)])
    assert late.words == ["+a", "1>2"]


async def test_handlers_are_called_in_order_and_the_batch_hook_after_them(informer, recorded):
    second = RecordingHandler(informer)
    informer.add_handler(second)
    ends = []
    informer.add_batch_hook(lambda: ends.append((len(recorded.words), len(second.words))))
    informer.replace([pod("a")])
    informer.apply([modified("a", 2), added("b"), deleted("b", 3)])
    assert ends == [(1, 1), (4, 4)]


class BulkRecordingHandler(RecordingHandler):
    def on_add_all(self, objects):
        names = [obj.metadata.name for obj in objects]
        assert len(self.informer.store) == len(names)
        self.words.append("+" + "".join(names))
        if "x" in names:
            raise ValueError


async def test_a_first_list_may_be_taken_at_once(informer, recorded):
    bulk = BulkRecordingHandler(informer)
    informer.add_handler(bulk)
    informer.replace([pod("a"), pod("b")])
    informer.replace([pod("a"), pod("c")])
    assert bulk.words == ["+ab", "-b@1?", "+c"]
    assert recorded.words == ["+a", "+b", "-b@1?", "+c"]


async def test_an_object_that_cannot_be_taken_with_others_is_one_that_cannot_be_taken(informer):
    class Failing(BulkRecordingHandler):
        def on_add(self, obj):
            if obj.metadata.name == "x":
                raise ValueError
            super().on_add(obj)

    failing, other = Failing(informer), RecordingHandler(informer)
    informer.add_handler(failing)
    informer.add_handler(other)
    informer.replace([pod("a"), pod("x"), pod("b")])
    assert failing.words == ["+axb", "+a", "+b"]
    assert other.words == ["+a", "+x", "+b"]


async def test_nothing_changes_while_paused(informer, recorded):
    informer.replace([pod("a")])
    informer.pause()
    informer.apply([modified("a", 2)])
    informer.replace([pod("b", 3)])
    informer.apply([deleted("b", 4)])
    assert recorded.words == ["+a"]
    assert list(informer.store) == ["d/a"]
    informer.resume()
    assert recorded.words == ["+a", "1>2", "-a@2?", "+b", "-b@4"]
    informer.apply([added("c")])
    assert recorded.words[-1] == "+c"


async def test_pauses_nest_and_must_match(informer, recorded):
    informer.pause()
    informer.pause()
    informer.apply([added("a")])
    informer.resume()
    assert recorded.words == []
    informer.resume()
    assert recorded.words == ["+a"]
    with pytest.raises(RuntimeError, match="without a pause"):
        informer.resume()


async def test_an_informer_that_is_added_during_a_pause_of_all_is_not_resumed(informer, recorded):
    group = InformerGroup()
    group.add(informer)
    with group.paused():
        informer.apply([added("a")])
        group.add(Informer(None, NODES))
        assert recorded.words == []
    assert recorded.words == ["+a"]


async def test_a_pause_during_delivery_queues_the_rest(informer):
    class Pausing(RecordingHandler):
        def on_add(self, obj):
            super().on_add(obj)
            if obj.metadata.name == "a":
                informer.pause()

    recorded = Pausing(informer)
    informer.add_handler(recorded)
    informer.pause()
    informer.apply([added("a")])
    informer.apply([added("b")])
    informer.resume()
    assert recorded.words == ["+a"]
    informer.resume()
    assert recorded.words == ["+a", "+b"]


async def test_group_is_paused_and_synced_together(informer, recorded):
    nodes = Informer(None, NODES)
    group = InformerGroup()
    group.add(informer)
    group.add(nodes)
    with pytest.raises(ValueError, match="Pod"):
        group.add(Informer(None, PODS))
    informer.replace([])
    assert group.unsynced == ["Node"]
    with group.paused():
        informer.apply([added("a")])
        assert recorded.words == []
    assert recorded.words == ["+a"]
    nodes.replace([])
    await group.wait_for_sync()


async def test_an_informer_that_joins_a_running_group_starts_at_once() -> None:
    started, stopped = [], []

    class Pretended:
        def __init__(self, kind: str) -> None:
            self.resource = SimpleNamespace(id=kind)
            self.synced = asyncio.Event()

        async def run(self) -> None:
            started.append(self.resource.id)
            try:
                await asyncio.Event().wait()
            finally:
                stopped.append(self.resource.id)

    group = InformerGroup()
    group.add(Pretended("Pod"))
    running = asyncio.ensure_future(group.run())
    await asyncio.sleep(0)
    group.add(Pretended("Lease"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert started == ["Pod", "Lease"]
    assert group.unsynced == ["Pod", "Lease"]
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert sorted(stopped) == ["Lease", "Pod"]


async def test_events_are_counted_and_timed() -> None:
    metrics = SchedulerMetrics(version=V1_37)
    factory = InformerFactory(None, on_error=None, metrics=metrics)
    factory.store(PODS)
    factory.store(Resource("example.com", "v1", "gadgets", "gadgets.v1.example.com", True, Pod))
    informer = factory.group.by_kind["Pod"]
    labels = ("kube-scheduler", "", "v1", "pods")
    seconds = metrics.informer_processing_latency_seconds.labels(*labels)

    def queued():
        return dict(metrics.informer_queued_items.values())

    def versions():
        return dict(metrics.informer_store_resource_version.values())

    assert (queued(), versions()) == ({labels: 0}, {})
    informer.replace([pod("a")])
    informer._reflector.resource_version = "7"
    assert (seconds.count, versions()) == (1, {labels: 7})
    informer.pause()
    informer.apply([added("b"), added("c")])
    informer._reflector.resource_version = "31415926535897932"
    assert (queued(), versions(), seconds.count) == ({labels: 2}, {labels: 7}, 1)
    informer.resume()
    assert (queued(), seconds.count) == ({labels: 0}, 3)
    assert versions() == {labels: 415926535897932}


@pytest.mark.parametrize(
    ("version", "classes"), [(V1_37, "deviceclasss"), (V1_38, "deviceclasses")]
)
def test_informers_are_named_as_client_go_names_them(
    version: KubernetesVersion, classes: str
) -> None:
    metrics = SchedulerMetrics(version=version)
    factory = InformerFactory(None, None, metrics=metrics, kubernetes_version=version)
    for resource in (PODS, NODES, DEVICE_CLASSES):
        factory.store(resource)
    assert {labels[1:] for labels, _ in metrics.informer_queued_items.values()} == {
        ("", "v1", "pods"),
        ("", "v1", "nodes"),
        ("resource.k8s.io", "v1", classes),
    }
