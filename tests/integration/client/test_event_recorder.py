"""Events as the apiserver receives them (virtual time, real sockets)."""

import asyncio
import re
from contextlib import asynccontextmanager

import pytest

from proreus.base.kubernetes_version import V1_36, V1_37
from proreus.client.credentials.credentials import Credentials
from proreus.client.http.session import ApiClient
from proreus.client.writing.dispatcher import Dispatcher
from proreus.client.writing.event_bodies import ObjectReference
from proreus.client.writing.event_recorder import EventRecorder
from proreus.client.writing.request_window import RequestWindow
from proreus.objects.meta import ObjectMeta
from proreus.objects.pod import Pod
from proreus.objects.scheduling import PodGroup

pytestmark = pytest.mark.looptime

EPOCH = 1_800_000_000.0
GROUP = "/apis/events.k8s.io/v1"
EVENTS = f"{GROUP}/namespaces/default/events"
POD = Pod(metadata=ObjectMeta(name="p", namespace="default", uid="u", resource_version="7"))


class LoopClock:
    """A wall clock that follows the virtual time."""

    def now(self):
        return EPOCH + asyncio.get_running_loop().time()

    monotonic = now


@asynccontextmanager
async def recording(client, **more):
    recorder = EventRecorder(client, clock=LoopClock(), hostname="host", **more)
    task = asyncio.create_task(recorder.run())
    try:
        yield recorder
    finally:
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


def failed(recorder, note="0/5 nodes are available: 5 Insufficient cpu.", pod=POD):
    recorder.event(pod, "Warning", "FailedScheduling", "Scheduling", note, "my-scheduler")


async def accept(call):
    await call.answer(200 if call.method == "GET" else 201, {})


def writes(server):
    return [call for call in server.calls if call.method != "GET"]


async def test_event_has_the_fields_of_kube_scheduler(server, client):
    server.script = accept
    async with recording(client) as recorder:
        failed(recorder)
        await recorder.flush(5)
    (call,) = writes(server)
    assert (call.method, call.path) == ("POST", EVENTS)
    body = call.json
    name = body["metadata"].pop("name")
    assert re.fullmatch(r"p\.[0-9a-f]{16}", name)
    assert abs(int(name[2:], 16) / 1e9 - EPOCH) < 1
    assert re.fullmatch(r"2027-01-15T08:00:00\.\d{6}Z", body.pop("eventTime"))
    assert body == {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"namespace": "default"},
        "reportingController": "my-scheduler",
        "reportingInstance": "my-scheduler-host",
        "action": "Scheduling",
        "reason": "FailedScheduling",
        "type": "Warning",
        "note": "0/5 nodes are available: 5 Insufficient cpu.",
        "regarding": {
            "kind": "Pod",
            "namespace": "default",
            "name": "p",
            "uid": "u",
            "apiVersion": "v1",
            "resourceVersion": "7",
        },
    }


async def test_lone_surrogates_of_plugins_are_replaced(server, client):
    server.script = accept
    async with recording(client) as recorder:
        recorder.event(POD, "Normal\ud800", "Odd\ud801", "Odd\udc00", "caf\ud800e", "my-scheduler")
        failed(recorder)
        await recorder.flush(5)
    odd, plain = writes(server)
    assert odd.json["note"] == "caf\ufffde"
    assert odd.json["type"] == "Normal\ufffd"
    assert plain.json["reason"] == "FailedScheduling"


async def test_a_long_note_is_cut_before_it_is_kept(server, client):
    server.script = accept
    async with recording(client) as recorder:
        recorder.event(POD, "Normal", "Odd", "Odd", "x" * 1_000_000, "my-scheduler")
        await recorder.flush(5)
        (entry,) = recorder._event_cache.values()
    (post,) = writes(server)
    assert entry.note == post.json["note"]
    assert len(entry.note) == 1024


async def test_repeats_become_a_series_that_is_patched_once_then_counted(server, client):
    server.script = accept
    async with recording(client) as recorder:
        for _ in range(5):
            failed(recorder)
            await asyncio.sleep(1)
        post, patch = writes(server)
        assert (post.method, patch.method) == ("POST", "PATCH")
        assert patch.path == f"{EVENTS}/{post.json['metadata']['name']}"
        assert patch.headers["content-type"] == "application/strategic-merge-patch+json"
        assert patch.json["series"]["count"] == 2
        assert re.fullmatch(
            r"2027-01-15T08:00:01\.\d{6}Z", patch.json["series"]["lastObservedTime"]
        )
        await asyncio.sleep(
            15 * 60
        )  # not repeated for 6 minutes: written once more, then forgotten
        final = writes(server)[2]
        assert final.json["series"]["count"] == 5
        assert len(writes(server)) == 3
        failed(recorder)
        await recorder.flush(5)
        assert writes(server)[3].method == "POST"


async def test_series_that_goes_on_is_patched_every_half_hour(server, client):
    server.script = accept
    async with recording(client) as recorder:
        await asyncio.sleep(30)
        for _ in range(61):
            failed(recorder)
            await asyncio.sleep(60)
        counts = [c.json["series"]["count"] for c in writes(server) if c.method == "PATCH"]
    assert counts == [2, 30, 60]


async def test_a_single_event_expires_after_six_minutes(server, client):
    server.script = accept
    async with recording(client) as recorder:
        failed(recorder)
        await asyncio.sleep(13 * 60)
        failed(recorder)
        await recorder.flush(5)
        assert [call.method for call in writes(server)] == ["POST", "POST"]


@pytest.mark.parametrize(("version", "served"), [(V1_36, "v1alpha2"), (V1_37, "v1beta1")])
async def test_an_event_has_its_related_object(server, client, version, served):
    server.script = accept
    meta = ObjectMeta(name="g", namespace="default", uid="u-g", resource_version="7")
    async with recording(client, kubernetes_version=version) as recorder:
        for preemptor in (POD, PodGroup(metadata=meta)):
            why = ("Normal", "Preempted", "Preempting", "x", "my-scheduler", preemptor)
            recorder.event(POD, *why)
        await recorder.flush(5)
    by_pod, by_group = (call.json["related"] for call in writes(server))
    assert (by_pod["kind"], by_pod["apiVersion"], by_pod["uid"]) == ("Pod", "v1", POD.metadata.uid)
    assert by_group == {
        "kind": "PodGroup",
        "namespace": "default",
        "name": "g",
        "uid": "u-g",
        "apiVersion": f"scheduling.k8s.io/{served}",
        "resourceVersion": "7",
    }


async def test_another_version_of_the_pod_is_another_event(server, client):
    server.script = accept
    newer = Pod(metadata=ObjectMeta(name="p", namespace="default", uid="u", resource_version="8"))
    async with recording(client) as recorder:
        failed(recorder)
        failed(recorder, pod=newer)
        failed(recorder, note="another note is the same event", pod=newer)
        await recorder.flush(5)
    assert [call.method for call in writes(server)] == ["POST", "POST", "PATCH"]


async def test_distinct_by_note(server, client):
    server.script = accept
    lease = ObjectReference("Lease", "l", "kube-system", "u", "coordination.k8s.io/v1", "3")
    async with recording(client) as recorder:
        for note in ("a field is wrong", "a file is broken", "a file is broken"):
            recorder.event_about(
                lease, "Warning", "NotReloaded", "", note, "s", distinct_by_note=True
            )
        await recorder.flush(5)
    posts = [call for call in writes(server) if call.method == "POST"]
    assert [post.json["note"] for post in posts] == ["a field is wrong", "a file is broken"]
    assert len(writes(server)) == 3


async def test_the_series_of_an_expired_event_is_created_again(server, client, wire):
    async def script(call):
        if call.method == "PATCH":
            await call.refuse(404, "NotFound")
        else:
            await accept(call)

    server.script = script
    async with recording(client) as recorder:
        failed(recorder)
        await recorder.flush(5)
        failed(recorder)
        await recorder.flush(5)
    assert [call.method for call in writes(server)] == ["POST", "PATCH", "POST"]
    assert writes(server)[2].json["series"]["count"] == 2


async def test_core_events_if_the_group_is_not_served(server, client):
    async def script(call):
        if call.path == GROUP:
            await call.answer(404, b"404 page not found")
        else:
            await accept(call)

    server.script = script
    async with recording(client) as recorder:
        failed(recorder)
        await recorder.flush(5)
        failed(recorder)
        await recorder.flush(5)
    assert len(server.seen("GET", GROUP)) == 1
    post, patch = writes(server)
    assert post.path == "/api/v1/namespaces/default/events"
    assert post.json["involvedObject"]["name"] == "p"
    assert post.json["message"] == "0/5 nodes are available: 5 Insufficient cpu."
    assert post.json["source"] == {"component": "my-scheduler"}
    assert (post.json["apiVersion"], post.json["count"]) == ("v1", 1)
    assert patch.json["count"] == 2


async def test_event_of_a_lease_is_a_core_event(server, client):
    server.script = accept
    lease = ObjectReference("Lease", "l", "kube-system", "u", "coordination.k8s.io/v1", "3")
    async with recording(client) as recorder:
        recorder.event_about(lease, "Normal", "LeaderElection", "", "x led", "s", core=True)
        await recorder.flush(5)
    (post,) = writes(server)
    assert post.path == "/api/v1/namespaces/kube-system/events"
    assert post.json["involvedObject"]["apiVersion"] == "coordination.k8s.io/v1"


async def test_transport_errors_are_retried_and_rejections_are_final(server, client, wire):
    broken = True

    async def script(call):
        if call.method == "GET":
            await accept(call)
        elif broken:
            call.cut()
        elif call.json["reason"] == "FailedScheduling":
            await accept(call)
        else:
            await call.refuse(403, "Forbidden", "namespace is being terminated")

    server.script = script
    async with recording(client) as recorder:
        failed(recorder)
        await asyncio.sleep(25)
        assert 2 <= len(writes(server)) <= 6
        broken = False
        before = len(writes(server))
        await asyncio.sleep(13)
        assert len(writes(server)) == before + 1
        recorder.event(POD, "Normal", "Scheduled", "Binding", "x", "my-scheduler")
        await recorder.flush(60)
        assert len(writes(server)) == before + 2


async def test_a_lost_response_causes_no_second_event(server, client):
    async def script(call):
        if call.method == "GET":
            await accept(call)
        elif len(writes(server)) == 1:
            call.cut()
        else:
            await call.refuse(409, "AlreadyExists")

    server.script = script
    async with recording(client) as recorder:
        failed(recorder)
        await recorder.flush(60)
    names = {call.json["metadata"]["name"] for call in writes(server)}
    assert (len(writes(server)), len(names)) == (2, 1)


async def test_overflow_is_dropped_and_counted_and_recording_never_waits(server, client):
    server.script = accept
    recorder = EventRecorder(client, clock=LoopClock(), hostname="host", capacity=10)
    for number in range(25):
        pod = Pod(metadata=ObjectMeta(name=f"p{number}", namespace="default"))
        failed(recorder, pod=pod)
    assert recorder.dropped == 15
    assert server.calls == []


async def test_names_are_unique_even_in_the_same_instant(server, client):
    server.script = accept
    async with recording(client) as recorder:
        failed(recorder)
        recorder.event(POD, "Normal", "Preempted", "Preempting", "y", "my-scheduler")
        await recorder.flush(5)
    assert len({call.json["metadata"]["name"] for call in writes(server)}) == 2


async def test_events_that_the_apiserver_limits_do_not_slow_down_bindings(server, client):
    async def script(call):
        if call.method == "POST" and call.path == EVENTS and len(writes(server)) < 4:
            await call.answer(429, b"limit reached", Retry_After="1")
        else:
            await accept(call)

    server.script = script
    window = RequestWindow()
    async with recording(client, window=window) as recorder:
        failed(recorder)
        await asyncio.sleep(10)
    assert len(writes(server)) == 4
    assert window.limit == 64
    assert not window.shrinks


async def test_bindings_go_before_events(server):
    order = []

    async def script(call):
        if call.path.endswith("/binding"):
            order.append("b")
            await asyncio.sleep(0.01)
        elif call.method == "POST":
            order.append("e")
        await accept(call)

    server.script = script
    async with ApiClient(Credentials(server.url)) as client:
        window = RequestWindow()
        dispatcher = Dispatcher(client, window=window)
        async with recording(client, wait_until_idle=window.wait_until_idle) as recorder:
            await asyncio.sleep(0.01)
            for number in range(200):
                pod = Pod(metadata=ObjectMeta(name=f"p{number}", namespace="default"))
                failed(recorder, pod=pod)
            await asyncio.gather(*(dispatcher.bind(POD, "n") for _ in range(300)))
            bound = len(order)
            assert order.count("e") < 40  # at a low rate meanwhile
            await recorder.flush(5)
    assert order.count("e") == 200
    assert bound < 350


async def test_events_that_hang_do_not_hold_up_those_of_other_namespaces(server):
    """An admission webhook of their namespace never answers."""
    written = []

    async def script(call):
        if "/namespaces/hangs/" in call.path:
            await asyncio.sleep(25)
        elif call.method == "POST":
            written.append(call.json["regarding"]["name"])
        await accept(call)

    server.script = script
    async with ApiClient(Credentials(server.url)) as client, recording(client) as recorder:
        await asyncio.sleep(0.01)
        for number in range(1000):
            failed(recorder, pod=Pod(metadata=ObjectMeta(name=f"h{number}", namespace="hangs")))
        await asyncio.sleep(5)
        for number in range(50):
            failed(recorder, pod=Pod(metadata=ObjectMeta(name=f"p{number}", namespace="well")))
        await asyncio.sleep(5)
        assert sorted(written) == sorted(f"p{number}" for number in range(50))
