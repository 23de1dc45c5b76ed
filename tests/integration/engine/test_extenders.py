"""Every verb over a real socket: what is sent, what is made of the answer (core.md 8)."""

import asyncio
import gzip
import json

import pytest
from aiohttp import web

from proreus.framework.events import ADD, PERSISTENT_VOLUME_CLAIM, ClusterEvent
from proreus.framework.pod_info import PodInfo
from proreus.framework.post_filter_result import Victims

from ..networked_cluster import StandingStill, advance_loop_time
from ..reserved_ports import reserved_port

REFUSE_ALL = {"NodeNames": []}


def only(*names):
    return {"NodeNames": list(names)}


@pytest.fixture
def nobody():
    """The address of a port where nobody listens."""
    with reserved_port() as port:
        yield f"127.0.0.1:{port}"


async def hang(call):
    """Never answer; whoever waits has waited for long enough."""
    advance_loop_time(60)
    await asyncio.Event().wait()


# ---- filter --------------------------------------------------------------------------------------


async def test_filter_by_name(make_cluster, configured, start_extender):
    extender = await start_extender(filter=only("n1"))
    world = make_cluster(configured(extender, "filter", urlPrefix=extender.url + "//"))
    world.add_pod(labels={"a": "b"})
    assert await world.attempt() == "n1"
    (call,) = extender.calls
    assert call.json.keys() == {"Pod", "Nodes", "NodeNames"}
    assert call.json["Nodes"] is None
    assert sorted(call.json["NodeNames"]) == ["n0", "n1", "n2"]
    assert call.json["Pod"]["metadata"]["labels"] == {"a": "b"}
    assert call.headers["Content-Type"] == "application/json"
    assert call.headers["Accept-Encoding"] == "gzip"


async def test_filter_by_object(make_cluster, configured, start_extender):
    extender = await start_extender(
        filter=lambda call: {"Nodes": {"items": call.json["Nodes"]["items"][1:2]}}
    )
    world = make_cluster(configured(extender, "filter", nodeCacheCapable=False))
    world.add_pod()
    chosen = await world.attempt()
    (call,) = extender.calls
    assert call.json["NodeNames"] is None
    assert call.json["Nodes"]["metadata"] == {}
    nodes = call.json["Nodes"]["items"]
    assert sorted(node["metadata"]["name"] for node in nodes) == ["n0", "n1", "n2"]
    assert chosen == nodes[1]["metadata"]["name"]


async def test_rejections_are_reported_and_any_event_wakes_the_pod(
    make_cluster, configured, start_extender
):
    answer = {
        "NodeNames": [],
        "FailedNodes": {"n0": "too busy", "n1": "not this", "unknown": "what"},
        "FailedAndUnresolvableNodes": {"n1": "never"},
    }
    extender = await start_extender(filter=answer)
    world = make_cluster(configured(extender, "filter"))
    world.add_pod()
    assert await world.attempt() == ""
    condition = world.condition()
    assert condition.reason == "Unschedulable"
    # n2 is missing without a reason.
    assert condition.message.startswith("0/3 nodes are available: 1 never, 1 too busy.")
    assert world.queued().unschedulable_plugins == {"Extender"}

    world.advance(30)
    answer["NodeNames"] = ["n2"]
    event = ClusterEvent(PERSISTENT_VOLUME_CLAIM, ADD)
    world.scheduler.queue.move_all_to_active_or_backoff(event, None, object())
    assert await world.attempt() == "n2"


async def test_plugins_come_first_and_one_node_is_asked_about_too(
    make_cluster, configured, start_extender
):
    extender = await start_extender(filter=REFUSE_ALL)
    world = make_cluster(configured(extender, "filter"), nodes=1)
    world.add_nodes("full", cpu="1")
    world.add_pod(cpu="2")
    assert await world.attempt() == ""
    assert extender.calls[0].json["NodeNames"] == ["n0"]
    assert "1 Insufficient cpu" in world.condition().message
    assert world.queued().unschedulable_plugins == {"Extender", "NodeResourcesFit"}


async def test_each_sees_what_the_last_one_left_and_ignorable_ones_come_last(
    make_cluster, configured, start_extender
):
    first = await start_extender(filter=only("n2", "n1"))
    second = await start_extender(filter=only("n1"))
    third = await start_extender(filter=REFUSE_ALL)
    world = make_cluster(
        configured(third, "filter", ignorable=True),
        configured(first, "filter"),
        configured(second, "filter"),
    )
    world.add_pod()
    assert await world.attempt() == ""
    seen = [sorted(one.calls[0].json["NodeNames"]) for one in (first, second, third)]
    assert seen == [["n0", "n1", "n2"], ["n1", "n2"], ["n1"]]


async def test_nobody_is_asked_about_no_nodes(make_cluster, configured, start_extender):
    first = await start_extender(filter=REFUSE_ALL)
    second = await start_extender(filter=REFUSE_ALL)
    world = make_cluster(configured(first, "filter"), configured(second, "filter"))
    world.add_pod()
    await world.attempt()
    assert (len(first.calls), second.calls) == (1, [])


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ({"Error": "no luck today"}, "no luck today"),
        (503, "failed filter with extender at URL {url}/filter, code 503"),
        (
            only("n0", "n9"),
            'extender "{url}" claims a filtered node "n9" which is not found in the input node '
            "list",
        ),
    ],
)
async def test_an_error_fails_the_pod_unless_it_is_ignorable(
    answer, message, make_cluster, configured, start_extender
):
    def give(call):
        return web.Response(status=503) if answer == 503 else answer

    extender = await start_extender(filter=give)
    world = make_cluster(configured(extender, "filter"))
    world.add_pod()
    assert await world.attempt() == ""
    condition = world.condition()
    assert condition.reason == "SchedulerError"
    assert condition.message == message.format(url=extender.url)
    assert world.queued().rejectors == set()

    lenient = make_cluster(configured(extender, "filter", ignorable=True))
    lenient.add_pod()
    assert await lenient.attempt() != ""


async def test_only_pods_with_a_managed_resource(make_cluster, configured, start_extender):
    extender = await start_extender(filter=only("n0"))
    managed = [{"name": "example.com/gpu", "ignoredByScheduler": True}]
    world = make_cluster(configured(extender, "filter", managedResources=managed))
    world.add_pod("plain")
    await world.attempt()
    assert extender.calls == []
    # The nodes know nothing of the resource: NodeResourcesFit leaves it to the extender.
    world.add_pod("gpu", resources={"example.com/gpu": 0})
    assert await world.attempt() == "n0"
    limits = {"initContainers": [{"name": "i", "resources": {"limits": {"example.com/gpu": 1}}}]}
    world.add_pod("init", spec=limits)
    assert await world.attempt() == "n0"
    assert len(extender.calls) == 2


async def test_the_nominated_node_first(make_cluster, configured, start_extender):
    extender = await start_extender(filter=lambda call: only(*call.json["NodeNames"][:1]))
    world = make_cluster(configured(extender, "filter"))
    world.add_pod(status={"nominatedNodeName": "n2"})
    assert await world.attempt() == "n2"
    assert [call.json["NodeNames"] for call in extender.calls] == [["n2"]]


async def test_a_nominated_node_that_is_refused(make_cluster, configured, start_extender, capsys):
    def without_n2(call):
        names = call.json["NodeNames"]
        return {"Error": "not alone"} if len(names) == 1 else only(*names[:1])

    extender = await start_extender(filter=without_n2)
    world = make_cluster(configured(extender, "filter"))
    world.add_pod(status={"nominatedNodeName": "n2"})
    assert await world.attempt() != ""
    assert [len(call.json["NodeNames"]) for call in extender.calls] == [1, 3]


async def test_one_node_is_not_enough_where_an_extender_may_refuse_it(
    make_cluster, configured, start_extender
):
    extender = await start_extender(filter=lambda call: only(*call.json["NodeNames"]))
    minimal = {"enabled": [{"name": "PrioritySort"}, {"name": "DefaultBinder"}]}
    profile = {"plugins": {"multiPoint": {**minimal, "disabled": [{"name": "*"}]}}}
    world = make_cluster(configured(extender, "filter"), profiles=[profile])
    world.add_pod()
    await world.attempt()
    assert len(extender.calls[0].json["NodeNames"]) == 3


# ---- prioritize ----------------------------------------------------------------------------------


async def test_scores_count_ten_times_their_weight(make_cluster, configured, start_extender):
    """Least and balanced allocation prefer the empty node by less than 2 x 3 x 10 points."""
    scores = [{"Host": "small", "Score": 3}, {"Host": "n0", "Score": 0}, {"Host": "x", "Score": 9}]
    extender = await start_extender(prioritize=scores)
    world = make_cluster(configured(extender, "prioritize", weight=2), nodes=1)
    world.add_nodes("small", cpu="2")
    world.add_pod(cpu="1")
    assert await world.attempt() == "small"
    assert sorted(extender.calls[0].json["NodeNames"]) == ["n0", "small"]

    scores[0]["Score"] = -3
    world.add_pod("q", cpu="1")
    assert await world.attempt() == "n0"


async def test_scores_add_up(make_cluster, configured, start_extender):
    one = await start_extender(prioritize=[{"Host": "n0", "Score": 6}, {"Host": "n1", "Score": 5}])
    other = await start_extender(
        prioritize=[{"Host": "n2", "Score": 10}, {"Host": "n1", "Score": 6}]
    )
    world = make_cluster(configured(one, "prioritize"), configured(other, "prioritize"))
    world.add_pod()
    assert await world.attempt() == "n1"


async def test_extenders_prioritize_at_the_same_time(make_cluster, configured, start_extender):
    both = asyncio.Barrier(2)

    async def together(call):
        async with asyncio.timeout(60):
            await both.wait()
        return [{"Host": "n1", "Score": 1}]

    one = await start_extender(prioritize=together)
    other = await start_extender(prioritize=together)
    world = make_cluster(configured(one, "prioritize"), configured(other, "prioritize"))
    world.add_pod()
    assert await world.attempt() == "n1"


async def test_errors_of_prioritize_are_passed_over(make_cluster, configured, start_extender):
    bad = await start_extender(prioritize=web.Response(status=500))
    good = await start_extender(prioritize=[{"Host": "n2", "Score": 1}])
    world = make_cluster(configured(bad, "prioritize"), configured(good, "prioritize"))
    world.add_pod()
    assert await world.attempt() == "n2"


async def test_a_single_node_is_not_prioritized(make_cluster, configured, start_extender):
    extender = await start_extender(filter=only("n1"), prioritize=[])
    world = make_cluster(configured(extender, "filter", "prioritize"))
    world.add_pod()
    assert await world.attempt() == "n1"
    assert extender.verbs() == ["filter"]


@pytest.mark.parametrize(("by_name", "prefers"), [(True, {"idle"}), (False, {"busy", "idle"})])
async def test_nodes_sent_back_as_objects_count_as_empty(
    by_name, prefers, make_cluster, configured, start_extender
):
    """kubernetes/kubernetes#141781, which 1.36 has."""

    def as_they_came(call):
        return {"NodeNames": call.json["NodeNames"], "Nodes": call.json["Nodes"]}

    extender = await start_extender(filter=as_they_came)
    world = make_cluster(configured(extender, "filter", nodeCacheCapable=by_name), nodes=0)
    world.add_nodes("busy", "idle", cpu="20", pods=1000)
    world.add_pod("filler", node_name="busy", cpu="8")
    seen = set()
    for number in range(30):
        world.add_pod(f"p{number}", cpu="1m", memory="1Ki")
        seen.add(await world.attempt())
    assert seen == prefers


# ---- preempt -------------------------------------------------------------------------------------


def crowded(world):
    for number, name in enumerate(["n0", "n1", "n2"]):
        world.add_pod(f"victim-{name}", node_name=name, cpu="4", priority=number)
    world.add_pod("vip", cpu="4", priority=100)


async def test_preempt_by_name(make_cluster, configured, start_extender):
    meta = {"Pods": [{"UID": "uid-of-default-victim-n2"}], "NumPDBViolations": 0}
    extender = await start_extender(preempt={"NodeNameToMetaVictims": {"n2": meta}})
    world = make_cluster(configured(extender, "preempt"))
    crowded(world)
    assert await world.attempt() == ""
    (call,) = extender.calls
    assert call.json["NodeNameToVictims"] is None
    proposed = call.json["NodeNameToMetaVictims"]
    assert sorted(proposed) == ["n0", "n1", "n2"]
    assert proposed["n2"] == meta
    # Left to itself it would have taken n0, where the least important pod is.
    assert world.api.deleted == ["default/victim-n2"]
    assert world.pod("vip").status.nominated_node_name == "n2"


async def test_preempt_by_object(make_cluster, configured, start_extender):
    def least(call):
        proposed = call.json["NodeNameToVictims"]
        assert call.json["NodeNameToMetaVictims"] is None
        (pod,) = proposed["n1"]["Pods"]
        assert pod["spec"]["nodeName"] == "n1"
        uids = [{"uid": pod["metadata"]["uid"]}]
        return {"nodeNameToMetaVictims": {"n1": {"pods": uids, "numPDBViolations": 1}}}

    extender = await start_extender(preempt=least)
    world = make_cluster(configured(extender, "preempt", nodeCacheCapable=False))
    crowded(world)
    await world.attempt()
    assert world.api.deleted == ["default/victim-n1"]


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ({}, "no candidate node for preemption"),
        (
            {"NodeNameToMetaVictims": {"n0": {"Pods": [{"UID": "u"}]}}},
            "extender: {url} claims to preempt pod (UID: &{{u}}) on node: n0, but the pod is not "
            "found on that node",
        ),
        (
            {"NodeNameToMetaVictims": {"n0": {"Pods": []}}},
            'expected at least one victim pod on node "n0"',
        ),
        (
            {"NodeNameToMetaVictims": {"n9": {"Pods": []}}},
            'nodeinfo not found for node name "n9"',
        ),
    ],
)
async def test_preemption_that_comes_to_nothing(
    answer, message, make_cluster, configured, start_extender
):
    extender = await start_extender(preempt=answer)
    world = make_cluster(configured(extender, "preempt"))
    crowded(world)
    await world.attempt()
    condition_message = world.condition("vip").message
    assert condition_message.endswith(f" preemption: {message.format(url=extender.url)}")
    assert world.api.deleted == []


async def test_an_ignorable_extender_cannot_stop_preemption(
    make_cluster, configured, start_extender
):
    victims = {"Pods": [{"UID": "uid-of-default-victim-n2"}]}
    answer = {"NodeNameToMetaVictims": {"n0": {"Pods": []}, "n2": victims}}
    fair = await start_extender(preempt=answer)
    broken = await start_extender(preempt=web.Response(status=500))
    world = make_cluster(
        configured(broken, "preempt", ignorable=True),
        configured(fair, "preempt", ignorable=True),
    )
    crowded(world)
    await world.attempt()
    assert (len(broken.calls), len(fair.calls)) == (1, 1)
    assert world.api.deleted == ["default/victim-n2"]


async def test_candidates_without_victims_are_dropped_if_the_extender_that_may_add_some_fails(
    make_cluster, configured, start_extender
):
    broken = await start_extender(preempt=web.Response(status=500))
    world = make_cluster(configured(broken, "preempt", ignorable=True))
    crowded(world)
    victims = Victims((PodInfo(world.pod("victim-n1")),), 0)
    extenders = world.scheduler.scheduling_cycle.extenders
    proposed = {"n0": Victims((), 0), "n1": victims}
    assert await extenders.preempt(world.pod("vip"), proposed) == {"n1": victims}


# ---- bind ----------------------------------------------------------------------------------------


async def test_an_extender_binds(make_cluster, configured, start_extender):
    extender = await start_extender(bind={})
    world = make_cluster(configured(extender, "bind"), nodes=1)
    world.add_pod()
    assert await world.attempt() == "n0"
    (call,) = extender.calls
    expected = {
        "PodName": "p",
        "PodNamespace": "default",
        "PodUID": "uid-of-default-p",
        "Node": "n0",
    }
    assert call.json == expected
    assert world.pod().spec.node_name == "", "binding is the extender's business"
    assert world.scheduler.cache.is_assumed("uid-of-default-p")
    reasons = [reason for _, reason, _ in world.events.events]
    assert reasons == ["Scheduled"]


async def test_a_binding_that_fails(make_cluster, configured, start_extender):
    extender = await start_extender(bind={"Error": "cannot bind"})
    world = make_cluster(configured(extender, "bind"), nodes=1)
    world.add_pod()
    await world.attempt()
    condition = world.condition()
    assert (condition.reason, condition.message) == ("SchedulerError", "cannot bind")
    assert world.scheduler.cache.pod_count == 0


async def test_bind_plugins_stand_in_for_an_ignorable_extender(
    make_cluster, configured, start_extender
):
    extender = await start_extender(bind={"Error": "cannot bind"})
    world = make_cluster(configured(extender, "bind", ignorable=True), nodes=1)
    world.add_pod()
    await world.attempt()
    assert len(extender.calls) == 1
    assert world.pod().spec.node_name == "n0"


# ---- the network ---------------------------------------------------------------------------------


async def test_a_refused_connection(make_cluster, configured, nobody):
    world = make_cluster(configured(f"http://{nobody}", "filter"))
    world.add_pod()
    await world.attempt()
    assert world.condition().message == (
        f'Post "http://{nobody}/filter": dial tcp {nobody}: connect: connection refused'
    )


async def test_a_time_out(make_cluster, configured, start_extender):
    extender = await start_extender(filter=hang)
    world = make_cluster(configured(extender, "filter"))
    world.add_pod()
    await world.attempt()
    assert world.condition().message == (
        f'Post "{extender.url}/filter": context deadline exceeded (Client.Timeout exceeded while '
        "awaiting headers)"
    )


@pytest.mark.parametrize(("allowed", "chosen"), [("30s", "n1"), ("10s", "")])
async def test_how_long_is_waited(allowed, chosen, make_cluster, configured, start_extender):
    async def later(call):
        advance_loop_time(20)
        for _ in range(100):
            await asyncio.sleep(0)
        return only("n1")

    extender = await start_extender(filter=later)
    world = make_cluster(configured(extender, "filter", httpTimeout=allowed))
    world.add_pod()
    assert await world.attempt() == chosen


async def test_a_body_that_does_not_end(make_cluster, configured, start_extender):
    async def half(call):
        response = web.StreamResponse()
        response.content_length = 100
        await response.prepare(call.request)
        await response.write(b'{"NodeNames":')
        for _ in range(100):  # so much has arrived
            await asyncio.sleep(0)
        await hang(call)

    extender = await start_extender(filter=half)
    world = make_cluster(configured(extender, "filter"))
    world.add_pod()
    await world.attempt()
    assert world.condition().message == (
        "context deadline exceeded (Client.Timeout or context cancellation while reading body)"
    )


async def test_a_connection_that_is_cut(make_cluster, configured, start_extender):
    def cut(call):
        call.request.transport.close()
        return web.Response()

    extender = await start_extender(filter=cut, bind=cut)
    world = make_cluster(configured(extender, "filter"))
    world.add_pod()
    await world.attempt()
    assert world.condition().message == f'Post "{extender.url}/filter": EOF'
    assert len(extender.calls) == 2, "an idle connection may have broken: it was tried anew"

    world = make_cluster(configured(extender, "bind"), nodes=1)
    world.add_pod()
    await world.attempt()
    assert world.condition().message == f'Post "{extender.url}/bind": EOF'
    assert extender.verbs().count("bind") == 1, "it may have happened"


@pytest.mark.parametrize("hangs", [True, False])
async def test_a_dead_ignorable_extender_costs_one_time_out(
    hangs, make_cluster, configured, start_extender, nobody
):
    extender = await start_extender(filter=hang, prioritize=hang, bind=hang)
    url = extender.url if hangs else f"http://{nobody}"
    verbs = ("filter", "prioritize", "bind")
    world = make_cluster(configured(url, *verbs, ignorable=True))
    for number in range(20):
        world.add_pod(f"p{number}")
        assert await world.attempt() != ""
    assert extender.verbs() == (["filter"] if hangs else [])


async def test_it_is_asked_again_after_a_while(make_cluster, configured, start_extender):
    extender = await start_extender(filter=hang)
    world = make_cluster(configured(extender, "filter", ignorable=True, httpTimeout="10s"))
    world.add_pod("a")
    assert await world.attempt() != ""
    extender.answers["filter"] = only("n1")
    world.add_pod("b")
    assert await world.attempt() != ""
    assert len(extender.calls) == 1
    world.advance(40)
    for name in ("c", "d"):
        world.add_pod(name)
        assert await world.attempt() == "n1"
    assert len(extender.calls) == 3


async def test_an_extender_that_matters_is_asked_for_every_pod(
    make_cluster, configured, start_extender
):
    extender = await start_extender(filter=hang)
    world = make_cluster(configured(extender, "filter"))
    for name in ("a", "b", "c"):
        world.add_pod(name)
        await world.attempt()
        assert "context deadline exceeded" in world.condition(name).message
    assert len(extender.calls) == 3


async def test_redirects_and_compression(make_cluster, configured, start_extender):
    body = gzip.compress(json.dumps(only("n2")).encode())
    headers = {"Content-Encoding": "gzip", "Content-Type": "application/json"}

    def moved(call):
        location = extender.url + "/elsewhere"
        return web.Response(status=307, headers={"Location": location})

    extender = await start_extender(
        filter=moved, elsewhere=lambda call: web.Response(body=body, headers=headers)
    )
    world = make_cluster(configured(extender, "filter"))
    world.add_pod()
    assert await world.attempt() == "n2"
    first, second = extender.calls
    assert first.body == second.body


async def test_a_scheme_that_is_none(make_cluster, configured):
    world = make_cluster(configured("", "filter"))
    world.add_pod()
    await world.attempt()
    assert world.condition().message == 'Post "/filter": unsupported protocol scheme ""'


async def test_a_name_that_is_not_known(make_cluster, configured):
    world = make_cluster(configured("http://no-such-host.invalid:80", "filter"))
    world.add_pod()
    await world.attempt()
    expected = "dial tcp: lookup no-such-host.invalid: no such host"
    assert world.condition().message == f'Post "http://no-such-host.invalid:80/filter": {expected}'


async def test_connections_are_used_again(make_cluster, configured, start_extender):
    extender = await start_extender(filter=only("n0"))
    world = make_cluster(configured(extender, "filter"))
    for number in range(3):
        world.add_pod(f"p{number}")
        await world.attempt()
    peers = {call.request.transport.get_extra_info("peername") for call in extender.calls}
    assert (len(extender.calls), len(peers)) == (3, 1)


# ---- while an answer is awaited ------------------------------------------------------------------


async def test_the_world_stands_still_from_the_first_question_to_the_assumption(
    make_cluster, configured, start_extender
):
    stopped = StandingStill()

    def drop_nodes(call):
        # Would make every row number meaningless.
        stopped.change(lambda: world.api.remove("Node", "n0"))
        return only(*call.json["NodeNames"])

    def drop_more(call):
        assert stopped.depth == 1
        return [{"Host": "n2", "Score": 10}]

    extender = await start_extender(filter=drop_nodes, prioritize=drop_more)
    world = make_cluster(configured(extender, "filter", "prioritize"))
    world.scheduler.scheduling_cycle._paused = stopped.paused
    world.add_pod()
    assert await world.attempt() == "n2"
    assert stopped.depth == 0
    assert sorted(node.name for node in world.scheduler.cache.table) == ["n1", "n2"]


async def test_the_world_goes_on_after_an_error(make_cluster, configured, nobody):
    stopped = StandingStill()
    world = make_cluster(configured(f"http://{nobody}", "filter"))
    world.scheduler.scheduling_cycle._paused = stopped.paused
    world.add_pod()
    await world.attempt()
    assert stopped.depth == 0


async def test_whatever_may_help_is_watched(make_cluster, configured):
    plain, extended = make_cluster(), make_cluster(configured("http://x", "filter"))
    watched = [set(world.api._handlers) for world in (plain, extended)]
    assert watched[0] <= watched[1]
    assert {"PersistentVolume", "CSIDriver", "DeviceClass", "ResourceClaim"} <= watched[1]
