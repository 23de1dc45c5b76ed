"""Writes take effect once although responses are lost (virtual time, real sockets)."""

import asyncio
import gc
import itertools
import random
import weakref

import pytest

from proreus.base.errors import ApiError, Conflict, Forbidden, NotFound, TooManyRequests
from proreus.base.feature_gates import FeatureGates
from proreus.base.kubernetes_version import V1_37
from proreus.client.credentials.credentials import Credentials
from proreus.client.http.responses import ResponseLost, Unreachable
from proreus.client.http.session import ApiClient, RequestHooks
from proreus.client.writing.dispatcher import Dispatcher, DispatcherOptions
from proreus.client.writing.pod_patches import StillRefused
from proreus.client.writing.rate_limiter import RateLimiter
from proreus.client.writing.request_window import Priority, RequestWindow
from proreus.objects.kinds import NODES, PODS
from proreus.objects.meta import ObjectMeta
from proreus.objects.pod import Pod

pytestmark = pytest.mark.looptime

PATH = "/api/v1/namespaces/default/pods/p"
BINDING = f"{PATH}/binding"
POD = Pod(metadata=ObjectMeta(name="p", namespace="default", uid="uid-p"))


@pytest.fixture
def dispatcher(client):
    return Dispatcher(client, rng=random.Random(1))


async def test_binding_is_what_kube_scheduler_posts(server, dispatcher):
    async def script(call):
        await call.answer(201, {"kind": "Status", "status": "Success"})

    server.script = script
    await dispatcher.bind(POD, "n1")
    (call,) = server.calls
    assert (call.method, call.path) == ("POST", BINDING)
    assert call.json == {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "p", "namespace": "default", "uid": "uid-p"},
        "target": {"kind": "Node", "name": "n1"},
    }


def losing(server, wire, node_after, *, lose):
    """Lose the first response to a POST; ``node_after``: the pod's node then ("" for none)."""
    state = {"node": "", "posts": 0}

    async def script(call):
        if call.method == "GET":
            await call.answer(200, wire.pod("p", node=state["node"]))
            return
        state["posts"] += 1
        if state["posts"] == 1:
            state["node"] = node_after
            await lose(call)
        elif state["node"]:
            words = f'pod p is already assigned to node "{state["node"]}"'
            await call.refuse(409, "Conflict", words)
        else:
            state["node"] = call.json["target"]["name"]
            await call.answer(201, {})

    server.script = script
    return state


async def cut(call):
    call.cut()


async def half_an_answer(call):
    call.writer.write(b"HTTP/1.1 201 Created\r\nContent-Length: 500\r\n\r\n{")
    await call.writer.drain()
    call.cut()


async def silence(call):
    await asyncio.sleep(1000)


async def sign_in_page(call):
    await call.answer(200, b"<html>Sign in to the network</html>")


async def server_error(call):
    await call.refuse(500, "InternalError", "etcdserver: request timed out")


async def gateway_page(call):
    await call.answer(504, b"<html>504 Gateway Time-out</html>")


async def conflict_with_ourselves(call):
    await call.refuse(409, "Conflict", 'pod p is already assigned to node "n1"')


LOSSES = [cut, half_an_answer, silence, sign_in_page]
DOUBTS = [*LOSSES, server_error, gateway_page, conflict_with_ourselves]


@pytest.mark.parametrize("lose", DOUBTS)
async def test_a_lost_bind_that_was_done_is_a_success(server, dispatcher, wire, lose):
    state = losing(server, wire, "n1", lose=lose)
    await dispatcher.bind(POD, "n1")
    assert state["posts"] == 1  # verified, not repeated


@pytest.mark.parametrize("lose", DOUBTS)
async def test_a_lost_bind_of_a_pod_on_another_node_is_a_conflict(server, dispatcher, wire, lose):
    state = losing(server, wire, "n2", lose=lose)
    with pytest.raises(Conflict) as raised:
        await dispatcher.bind(POD, "n1")
    assert str(raised.value) == (
        'Operation cannot be fulfilled on pods/binding "p": pod p is already assigned to node "n2"'
    )
    assert state["posts"] == 1


@pytest.mark.parametrize("lose", LOSSES)
async def test_a_lost_bind_that_was_not_done_is_sent_again(server, dispatcher, wire, lose):
    state = losing(server, wire, "", lose=lose)
    await dispatcher.bind(POD, "n1")
    assert state == {"node": "n1", "posts": 2}


async def test_a_bind_that_failed_with_a_server_error_is_not_repeated(server, dispatcher, wire):
    state = losing(server, wire, "", lose=server_error)
    with pytest.raises(ApiError, match="etcdserver: request timed out"):
        await dispatcher.bind(POD, "n1")
    assert state["posts"] == 1


@pytest.fixture
def dispatcher_of_1_37(client):
    options = DispatcherOptions.of(FeatureGates(emulation_version=V1_37))
    return Dispatcher(client, options=options, rng=random.Random(1))


@pytest.mark.parametrize("reason", [(500, "InternalError"), (503, "ServiceUnavailable")])
async def test_since_1_37_a_bind_is_tried_four_times_10_50_250_milliseconds_apart(
    server, dispatcher_of_1_37, wire, reason
):
    loop, at = asyncio.get_running_loop(), []

    async def script(call):
        if call.method == "GET":
            await call.answer(200, wire.pod("p"))
            return
        at.append(loop.time())
        await call.refuse(*reason)

    server.script = script
    with pytest.raises(ApiError):
        await dispatcher_of_1_37.bind(POD, "n1")
    gaps = [b - a for a, b in itertools.pairwise(at)]
    assert len(gaps) == 3
    for gap, least in zip(gaps, (0.01, 0.05, 0.25), strict=True):
        assert least <= gap <= least * 1.1 + 0.004


async def test_since_1_37_a_bind_succeeds_at_a_later_attempt(server, dispatcher_of_1_37, wire):
    state = losing(server, wire, "", lose=server_error)
    await dispatcher_of_1_37.bind(POD, "n1")
    assert state == {"node": "n1", "posts": 2}


@pytest.mark.parametrize("lose", DOUBTS)
async def test_since_1_37_too_a_bind_that_was_done_is_not_repeated(
    server, dispatcher_of_1_37, wire, lose
):
    state = losing(server, wire, "n1", lose=lose)
    await dispatcher_of_1_37.bind(POD, "n1")
    assert state["posts"] == 1


@pytest.mark.parametrize(
    "refusal", [(409, "Conflict"), (404, "NotFound"), (422, "Invalid"), (504, "Timeout")]
)
async def test_since_1_37_too_other_errors_of_a_bind_are_not_retried(
    server, dispatcher_of_1_37, wire, refusal
):
    async def script(call):
        if call.method == "GET":
            await call.answer(200, wire.pod("p"))
        else:
            await call.refuse(*refusal)

    server.script = script
    with pytest.raises(ApiError):
        await dispatcher_of_1_37.bind(POD, "n1")
    assert len(server.seen("POST", BINDING)) == 1


async def test_since_1_37_a_refused_connection_is_tried_again(unused_tcp_port):
    options = DispatcherOptions.of(FeatureGates(emulation_version=V1_37))
    loop = asyncio.get_running_loop()
    started = loop.time()
    async with ApiClient(Credentials(f"http://127.0.0.1:{unused_tcp_port}")) as client:
        with pytest.raises(Unreachable):
            await Dispatcher(client, options=options).bind(POD, "n1")
    assert 0.31 <= loop.time() - started < 0.4


async def test_a_conflict_with_our_own_first_attempt_is_a_success(server, dispatcher, wire):
    """The first POST is slow, not lost: done after the verifying read, before the second POST."""
    node = ""

    async def script(call):
        nonlocal node
        if call.method == "GET":
            await call.answer(200, wire.pod("p", node=node))
        elif len(server.seen("POST", BINDING)) == 1:
            call.cut()
        else:
            node = "n1"
            await call.refuse(409, "Conflict", 'pod p is already assigned to node "n1"')

    server.script = script
    await dispatcher.bind(POD, "n1")
    assert [call.method for call in server.calls] == ["POST", "GET", "POST", "GET"]


async def test_verification_of_a_lost_bind_retries_failed_reads(server, dispatcher, wire):
    async def script(call):
        gets = len(server.seen("GET", PATH))
        if call.method == "POST" or gets == 1:
            call.cut()
        elif gets == 2:
            await call.refuse(503, "ServiceUnavailable")
        else:
            await call.answer(200, wire.pod("p", node="n1"))

    server.script = script
    await dispatcher.bind(POD, "n1")
    assert len(server.seen("POST", BINDING)) == 1


async def test_a_lost_bind_of_a_pod_with_another_uid_is_a_conflict(server, dispatcher, wire):
    async def script(call):
        if call.method == "POST":
            call.cut()
        else:
            await call.answer(200, wire.pod("p", uid="another", node="n1"))

    server.script = script
    with pytest.raises(Conflict, match="UID in the precondition"):
        await dispatcher.bind(POD, "n1")


async def test_a_lost_bind_of_a_deleted_pod_is_not_found(server, dispatcher):
    async def script(call):
        if call.method == "POST":
            call.cut()
        else:
            await call.refuse(404, "NotFound", 'pods "p" not found')

    server.script = script
    with pytest.raises(NotFound):
        await dispatcher.bind(POD, "n1")


async def test_verification_ends_in_bounded_time_if_the_apiserver_stays_down(server, client):
    server.script = cut
    window = RequestWindow()
    with pytest.raises(ResponseLost):
        await Dispatcher(client, window=window).bind(POD, "n1")
    assert len(server.seen("POST", BINDING)) == 1
    assert asyncio.get_running_loop().time() < 15
    assert window.in_flight == 0


async def test_a_refused_connection_needs_no_verification(unused_tcp_port):
    async with ApiClient(Credentials(f"http://127.0.0.1:{unused_tcp_port}")) as client:
        with pytest.raises(Unreachable):
            await Dispatcher(client).bind(POD, "n1")


async def test_429_with_retry_after_is_waited_out(server, wire):
    retries, loop, at = [], asyncio.get_running_loop(), []

    async def script(call):
        at.append(loop.time())
        if len(server.calls) < 3:
            await call.refuse(429, "TooManyRequests", "slow down", Retry_After="7")
        else:
            await call.answer(201, {})

    server.script = script
    hooks = RequestHooks(on_retry=lambda *args: retries.append(args))
    async with ApiClient(Credentials(server.url), hooks=hooks) as client:
        await Dispatcher(client).bind(POD, "n1")
    assert [round(b - a) for a, b in itertools.pairwise(at)] == [7, 7]
    assert [(code, verb) for code, verb, _ in retries] == [("429", "POST")] * 2


async def test_429_without_retry_after_is_an_error_at_once(server, dispatcher):
    async def script(call):
        await call.refuse(429, "TooManyRequests", "slow down")

    server.script = script
    with pytest.raises(TooManyRequests):
        await dispatcher.bind(POD, "n1")
    assert len(server.calls) == 1


async def test_429_is_retried_at_most_ten_times(server, dispatcher):
    async def script(call):
        await call.refuse(429, "TooManyRequests", "slow down", Retry_After="1")

    server.script = script
    with pytest.raises(TooManyRequests):
        await dispatcher.bind(POD, "n1")
    assert len(server.calls) == 11


PATCH = {
    "status": {
        "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]
    }
}


@pytest.mark.parametrize(
    "reason", [(500, "InternalError"), (503, "ServiceUnavailable"), (409, "Conflict")]
)
async def test_status_patch_is_tried_four_times_10_50_250_milliseconds_apart(
    server, dispatcher, reason
):
    loop, at = asyncio.get_running_loop(), []

    async def script(call):
        at.append(loop.time())
        await call.refuse(*reason)

    server.script = script
    with pytest.raises(ApiError):
        await dispatcher.patch_pod_status(POD, PATCH)
    gaps = [b - a for a, b in itertools.pairwise(at)]
    assert len(gaps) == 3
    for gap, least in zip(gaps, (0.01, 0.05, 0.25), strict=True):
        assert least <= gap <= least * 1.1 + 0.002
    (first, *_) = server.calls
    assert (first.method, first.path) == ("PATCH", f"{PATH}/status")
    assert first.headers["content-type"] == "application/strategic-merge-patch+json"
    assert first.json == PATCH


async def test_a_rejected_status_patch_is_not_retried(server, dispatcher):
    async def script(call):
        await call.refuse(422, "Invalid")

    server.script = script
    with pytest.raises(ApiError):
        await dispatcher.patch_pod_status(POD, PATCH)
    assert len(server.calls) == 1


@pytest.mark.parametrize("happened", [True, False])
async def test_a_lost_status_patch_is_verified(server, dispatcher, wire, happened):
    async def script(call):
        if call.method == "GET":
            pod = wire.pod("p")
            if happened:
                pod["status"]["conditions"] = [
                    {"type": "Ready", "status": "False"},
                    {**PATCH["status"]["conditions"][0], "lastProbeTime": None},
                ]
            await call.answer(200, pod)
        elif len(server.seen("PATCH", f"{PATH}/status")) == 1:
            call.cut()
        else:
            await call.answer(200, {})

    server.script = script
    await dispatcher.patch_pod_status(POD, PATCH)
    assert len(server.seen("PATCH", f"{PATH}/status")) == (1 if happened else 2)


async def test_status_patches_of_one_pod_are_sent_in_order(server, dispatcher):
    seen = []

    async def script(call):
        name = call.json["status"]["nominatedNodeName"]
        seen.append(name)
        if seen == ["first"]:
            await call.refuse(503, "ServiceUnavailable")
        else:
            await call.answer(200, {})

    server.script = script
    patches = [{"status": {"nominatedNodeName": name}} for name in ("first", "second")]
    await asyncio.gather(*(dispatcher.patch_pod_status(POD, patch) for patch in patches))
    assert seen == ["first", "first", "second"]
    assert not dispatcher._pod_patches


async def test_a_pod_that_fails_again_and_again_has_one_patch_in_flight_and_one_waiting(
    server, dispatcher
):
    """While the apiserver takes long to answer, patches do not pile up, and the last one counts."""

    async def script(call):
        await asyncio.sleep(10)
        await call.answer(200, {})

    def patch(number):
        condition = {"type": "PodScheduled", "status": "False", "message": f"try {number}"}
        nominated = {"nominatedNodeName": f"n{number}"} if number % 3 == 0 else {}
        return {"status": {"conditions": [condition], **nominated}}

    server.script = script
    loop = asyncio.get_running_loop()
    failures = []
    for number in range(20):
        failures.append(asyncio.create_task(dispatcher.patch_pod_status(POD, patch(number))))
        await asyncio.sleep(0.1)
    await asyncio.gather(dispatcher.bind(POD, "n1"), *failures)
    assert [call.path for call in server.calls] == [f"{PATH}/status", f"{PATH}/status", BINDING]
    assert server.calls[0].json == patch(0)
    assert server.calls[1].json["status"] == patch(19)["status"] | {"nominatedNodeName": "n18"}
    assert loop.time() == pytest.approx(30, abs=1)
    assert not dispatcher._pod_patches


async def test_a_binding_waits_for_earlier_status_patches(server, dispatcher):
    seen = []

    async def script(call):
        seen.append(call.path)
        if seen == [f"{PATH}/status"]:
            await call.refuse(503, "ServiceUnavailable")
        else:
            await call.answer(200, {})

    server.script = script
    await asyncio.gather(dispatcher.patch_pod_status(POD, PATCH), dispatcher.bind(POD, "n1"))
    assert seen == [f"{PATH}/status", f"{PATH}/status", BINDING]


async def test_binders_of_others_can_wait_for_status_patches(server, dispatcher):
    async def script(call):
        await asyncio.sleep(3)
        await call.answer(200, {})

    server.script = script
    loop = asyncio.get_running_loop()
    await dispatcher.wait_for_patches(POD)
    assert loop.time() == pytest.approx(0, abs=0.01)
    patching = asyncio.create_task(dispatcher.patch_pod_status(POD, PATCH))
    await asyncio.sleep(0)
    await dispatcher.wait_for_patches(POD)
    assert loop.time() >= 3
    await patching


async def test_a_status_that_was_held_after_a_refusal_is_for_this_pod_alone(server, dispatcher):
    async def script(call):
        if len(server.calls) == 1:
            await call.refuse(403, "Forbidden")
        else:
            await call.answer(200, {})

    server.script = script
    with pytest.raises(Forbidden):
        await dispatcher.patch_pod_status(POD, PATCH)
    with pytest.raises(StillRefused):
        await dispatcher.patch_pod_status(POD, PATCH)
    await asyncio.sleep(1.1)
    assert [call.json for call in server.calls] == [PATCH, {"metadata": {"uid": "uid-p"}, **PATCH}]


async def test_a_binding_drops_the_status_that_is_held(server, dispatcher):
    async def script(call):
        if len(server.calls) == 1:
            await call.refuse(403, "Forbidden")
        else:
            await call.answer(201, {})

    server.script = script
    for _ in range(2):
        with pytest.raises(ApiError):
            await dispatcher.patch_pod_status(POD, PATCH)
    await dispatcher.bind(POD, "n1")
    await asyncio.sleep(2)
    assert [call.path for call in server.calls] == [f"{PATH}/status", BINDING]


@pytest.mark.parametrize(("version", "patches"), [("8", 1), ("7", 2)])
async def test_a_lost_patch_with_a_resource_version_is_verified_by_its_content(
    server, dispatcher, wire, version, patches
):
    """The resourceVersion in the patch is outdated once the patch has been applied."""
    guarded = {"metadata": {"resourceVersion": "7", "labels": {"a": "b"}}}

    async def script(call):
        if call.method == "GET":
            pod = wire.pod("p", version)
            pod["metadata"]["labels"] = {"a": "b"} if version == "8" else {}
            await call.answer(200, pod)
        elif len(server.seen("PATCH", PATH)) == 1:
            call.cut()
        else:
            await call.answer(200, {"patched": True})

    server.script = script
    await dispatcher.patch(PODS, "default", "p", guarded)
    assert len(server.seen("PATCH", PATH)) == patches


async def test_delete_sends_no_preconditions_and_no_grace(server, dispatcher):
    async def script(call):
        await call.answer(200, {})

    server.script = script
    await dispatcher.delete_pod(POD)
    (call,) = server.calls
    assert (call.method, call.path) == ("DELETE", PATH)
    assert call.json == {"kind": "DeleteOptions", "apiVersion": "v1"}


async def test_delete_sends_the_preconditions_that_it_is_given(server, dispatcher):
    async def script(call):
        await call.refuse(409, "Conflict")

    server.script = script
    meta = POD.metadata
    with pytest.raises(Conflict):
        await dispatcher.delete(PODS, meta.namespace, meta.name, uid="u", version="7")
    (call,) = server.calls
    assert (call.method, call.path) == ("DELETE", PATH)
    assert call.json["preconditions"] == {"uid": "u", "resourceVersion": "7"}


async def test_delete_of_a_missing_pod_is_not_found(server, dispatcher):
    async def script(call):
        await call.refuse(404, "NotFound")

    server.script = script
    with pytest.raises(NotFound):
        await dispatcher.delete_pod(POD)


@pytest.mark.parametrize("after", ["gone", "going", "another of its name"])
async def test_a_lost_delete_that_was_done_does_not_delete_the_next_pod(
    server, dispatcher, wire, after
):
    async def script(call):
        if call.method == "DELETE":
            call.cut()
        elif after == "gone":
            await call.refuse(404, "NotFound")
        else:
            pod = wire.pod("p", uid="" if after == "going" else "another")
            if after == "going":
                pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
            await call.answer(200, pod)

    server.script = script
    await dispatcher.delete_pod(POD)
    assert [call.method for call in server.calls] == ["DELETE", "GET"]


NODE = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "spec": {"a": 1}}


@pytest.mark.parametrize("found", ["ours", "another", "nothing"])
async def test_a_lost_create_is_verified(server, dispatcher, found):
    async def script(call):
        if call.method == "GET" and found == "nothing":
            await call.refuse(404, "NotFound")
        elif call.method == "GET":
            spec = {"a": 1, "defaulted": True} if found == "ours" else {"a": 2}
            await call.answer(200, {**NODE, "spec": spec})
        elif len(server.seen("POST", "/api/v1/nodes")) == 1:
            call.cut()
        else:
            await call.answer(201, NODE)

    server.script = script
    if found == "another":
        with pytest.raises(Conflict, match="already exists"):
            await dispatcher.create(NODES, NODE)
    else:
        assert (await dispatcher.create(NODES, NODE))["spec"]["a"] == 1
    assert len(server.seen("POST", "/api/v1/nodes")) == (2 if found == "nothing" else 1)


@pytest.mark.parametrize("found", ["ours", "another", "nothing"])
async def test_a_lost_update_is_verified(server, dispatcher, found):
    wanted = {**NODE, "metadata": {"name": "n", "resourceVersion": "5"}, "spec": {"a": 2}}
    stored = {
        "ours": {"metadata": {"resourceVersion": "6"}, "spec": {"a": 2, "b": 1}},
        "another": {"metadata": {"resourceVersion": "6"}, "spec": {"a": 3}},
        "nothing": {"metadata": {"resourceVersion": "5"}, "spec": {"a": 1}},
    }[found]

    async def script(call):
        if call.method == "GET":
            await call.answer(200, {**NODE, **stored})
        elif len(server.calls) == 1:
            call.cut()
        else:
            await call.answer(200, wanted)

    server.script = script
    if found == "another":
        with pytest.raises(Conflict, match="the object has been modified"):
            await dispatcher.update(NODES, wanted)
    else:
        assert (await dispatcher.update(NODES, wanted))["spec"]["a"] == 2
    methods = [call.method for call in server.calls]
    assert methods == (["PUT", "GET", "PUT"] if found == "nothing" else ["PUT", "GET"])


async def test_patch_and_get_of_any_resource(server, dispatcher):
    async def script(call):
        await call.answer(200, NODE)

    server.script = script
    await dispatcher.patch(NODES, "", "n", {"metadata": {"labels": {"a": None}}})
    assert server.calls[0].headers["content-type"] == "application/merge-patch+json"
    assert (await dispatcher.get(NODES, "", "n")).metadata.name == "n"


async def test_all_objects_of_a_resource_are_read_with_one_request(server, dispatcher):
    async def script(call):
        await call.answer(200, {"kind": "NodeList", "items": [NODE, NODE | {"spec": None}]})

    server.script = script
    assert [node.metadata.name for node in await dispatcher.list_all(NODES)] == ["n", "n"]
    assert await dispatcher.list_all(PODS, "blue")
    assert [call.path for call in server.calls] == ["/api/v1/nodes", "/api/v1/namespaces/blue/pods"]


async def test_writes_pass_the_rate_limiter(server):
    loop, waits = asyncio.get_running_loop(), []

    async def script(call):
        await call.answer(201, {})

    server.script = script
    hooks = RequestHooks(on_throttle=lambda verb, host, seconds: waits.append(seconds))
    async with ApiClient(Credentials(server.url), hooks=hooks) as client:
        dispatcher = Dispatcher(client, rate_limiter=RateLimiter(10, 5, now=loop.time))
        started = loop.time()
        await asyncio.gather(*(dispatcher.bind(POD, "n1") for _ in range(25)))
    assert loop.time() - started == pytest.approx(2.0, abs=0.1)
    assert len(waits) == 25


async def test_no_more_writes_are_in_flight_than_the_window_has_room_for(server, client):
    now, most = 0, 0

    async def script(call):
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0.1)
        now -= 1
        await call.answer(201, {})

    server.script = script
    window = RequestWindow(4, largest=4)
    dispatcher = Dispatcher(client, window=window)
    binds = [asyncio.create_task(dispatcher.bind(POD, "n1")) for _ in range(12)]
    await asyncio.sleep(0.05)
    assert (window.in_flight, window.waiting(Priority.NORMAL)) == (4, 8)
    await asyncio.gather(*binds)
    assert most == 4
    assert window.in_flight == 0


async def test_a_namespace_whose_bindings_hang_does_not_stop_those_of_others(
    server, client, caplog
):
    """An admission webhook for it never answers: the apiserver gives up after 30 seconds."""

    async def script(call):
        if "/namespaces/hangs/" in call.path and call.method == "POST":
            await asyncio.sleep(25)
            await call.refuse(500, "InternalError", 'failed calling webhook "w.example.com"')
        else:
            await asyncio.sleep(0.02)
            await call.answer(201, {})

    server.script = script
    loop = asyncio.get_running_loop()
    window = RequestWindow(now=loop.time)
    dispatcher = Dispatcher(client, window=window)

    def bind(namespace, number):
        pod = Pod(metadata=ObjectMeta(name=f"p{number}", namespace=namespace, uid=f"u{number}"))
        return asyncio.create_task(dispatcher.bind(pod, "n1"))

    hanging = [bind("hangs", number) for number in range(1000)]
    await asyncio.sleep(0.1)
    for round_number in range(20):
        began = loop.time()
        await asyncio.gather(*(bind("a", number) for number in range(10)))
        # At first, until the hanging ones have given their places in the window to others.
        assert loop.time() - began < (1.5 if not round_number else 0.1)
        await asyncio.sleep(1)
    assert len(server.seen("POST", "/api/v1/namespaces/hangs/pods/p999/binding")) == 0
    assert window.in_flight == 256
    assert window.limit >= 64
    assert not window.shrinks
    await asyncio.sleep(10)
    slow, refused = [r.pairs for r in caplog.records if r.name.endswith("request_window")]
    assert slow["namespace"] == refused["namespace"] == "hangs"
    assert refused["err"] == 'failed calling webhook "w.example.com"'
    for task in hanging:
        task.cancel()
    await asyncio.gather(*hanging, return_exceptions=True)
    assert window.in_flight == window.waiting(Priority.NORMAL) == 0


async def test_rejections_by_priority_and_fairness_shrink_the_window(server, client):
    rejected = 0

    async def script(call):
        nonlocal rejected
        await asyncio.sleep(0.01)
        if rejected < 8:
            rejected += 1
            await call.answer(429, b"Too many requests", Retry_After="1")
        else:
            await call.answer(201, {})

    server.script = script
    window = RequestWindow(8, smallest=1, now=asyncio.get_running_loop().time)
    dispatcher = Dispatcher(client, window=window)
    await asyncio.gather(*(dispatcher.bind(POD, "n1") for _ in range(8)))
    assert window.shrinks["rejected"] == 1
    assert window.limit < 8
    assert asyncio.get_running_loop().time() >= 1
    assert window.in_flight == 0


async def test_writes_that_wait_for_the_rate_limiter_take_no_place_in_the_window(server, client):
    async def script(call):
        await call.answer(201, {})

    server.script = script
    loop = asyncio.get_running_loop()
    window = RequestWindow(1, smallest=1)
    slow = Dispatcher(client, rate_limiter=RateLimiter(1, 1, now=loop.time), window=window)
    fast = Dispatcher(client, window=window)
    binds = [asyncio.create_task(slow.bind(POD, "n1")) for _ in range(5)]
    await asyncio.sleep(0.5)
    await asyncio.wait_for(fast.bind(POD, "n1"), 0.4)
    await asyncio.gather(*binds)
    assert loop.time() == pytest.approx(4.0, abs=0.1)


@pytest.mark.parametrize("code", [404, 0])
async def test_errors_are_freed_without_the_garbage_collector(server, client, code):
    async def script(call):
        await call.answer(code, {"kind": "Status", "reason": "NotFound", "code": code})

    server.script = script
    if not code:
        client = ApiClient(Credentials("http://127.0.0.1:1"))
    error_ref = None
    gc.disable()
    try:
        await Dispatcher(client).patch_pod_status(POD, {"status": {}})
    except ApiError as error:
        error_ref = weakref.ref(error)
    finally:
        gc.enable()
    assert error_ref is not None
    assert error_ref() is None
    await client.close()


async def test_a_disruption_budget_does_not_shrink_the_window(server, client):
    async def script(call):
        await call.answer(429, {"kind": "Status", "reason": "TooManyRequests"})

    server.script = script
    window = RequestWindow()
    dispatcher = Dispatcher(client, window=window)
    body = {"metadata": {"namespace": "default", "name": "p"}}
    with pytest.raises(ApiError):
        await dispatcher.create(PODS, body, "eviction")
    assert not window.shrinks


def test_it_is_the_plugins_api_writer():
    from proreus.framework.handle import ApiWriter

    methods = [name for name in vars(ApiWriter) if name[0] != "_"]
    assert methods
    assert all(hasattr(Dispatcher, name) for name in methods)
    assert PODS.kind == "Pod"


async def test_status_patches_of_a_pod_that_are_cancelled_together_end_quietly(server, dispatcher):
    arrived = asyncio.Event()

    async def script(call):
        arrived.set()
        await asyncio.Event().wait()

    server.script = script
    patches = [asyncio.create_task(dispatcher.patch_pod_status(POD, PATCH)) for _ in range(3)]
    await arrived.wait()
    for patch in reversed(patches):
        patch.cancel()
    ends = await asyncio.gather(*patches, return_exceptions=True)
    assert [type(end) for end in ends] == [asyncio.CancelledError] * 3
