"""Remote plugins that are dead, slow, restarted or violate the protocol."""

from __future__ import annotations

import asyncio

import pytest
from aiohttp import web

from proreus.base.errors import ConfigError
from proreus.base.metrics import SchedulerMetrics
from proreus.remote.handshake import connect

from ..networked_cluster import advance_loop_time
from .conftest import rejecting, resync, scoring, serve, until

DAY = 86400.0
"""A limit for ``until`` where ``hang`` moves the loop's time."""


@pytest.fixture
def short_pauses(monkeypatch):
    monkeypatch.setattr("proreus.remote.circuit.FIRST_PAUSE_SECONDS", 0.01)


async def hang(*_):
    """Never respond; the caller's time-out ends the wait."""
    advance_loop_time(60)
    await asyncio.Event().wait()


def total(world, path, result):
    family = world.endpoint.metrics._requests
    return family.labels("Far", path, result).value


# ---- silence -------------------------------------------------------------------------------------


async def test_a_hung_plugin_costs_one_timeout_and_then_pods_fail_at_once(make_cluster, start):
    served = await start("filter", "score", filter=hang, timeoutSeconds=8)
    world = await make_cluster(served)
    assert await world.place("a") == ""
    condition = world.condition("a")
    assert condition.reason == "SchedulerError"
    assert condition.message == (
        f'running "Far" filter plugin: {served.address}/v1/filter: no answer within 8 s'
    )
    for name in "bcd":
        assert await world.place(name) == ""
    assert "gets no requests until it responds" in world.condition("d").message
    assert len(served.asked("filter")) == 1
    assert total(world, "/v1/filter", "silent") == 1
    assert total(world, "/v1/filter", "left_out") == 3
    assert world.scheduler.queue.get("default/a").rejectors == set()


async def test_pods_go_on_without_one_that_may_be_ignored(make_cluster, start):
    served = await start(
        "preFilter",
        "filter",
        "score",
        "reserve",
        "permit",
        "preBind",
        pre_filter=hang,
        failureMode="ignore",
    )
    world = await make_cluster(served)
    for name in "abc":
        assert await world.place(name) != ""
        assert world.pod(name).spec.node_name
    assert served.paths() == ["profiles", "nodes", "pre-filter"]


async def test_cached_results_are_not_used_while_the_circuit_is_open(make_cluster, start):
    served = await start(
        "filter",
        filter=rejecting("n0", "n1"),
        rowLocal=True,
        podFields=["requests"],
        nodeColumns=["podCount"],
        failureMode="ignore",
    )
    world = await make_cluster(served)
    assert await world.place("a") == "n2"
    served.answers["filter"] = hang
    # n2 has the most pods now; without the plugin it is the worst.
    assert await world.place("b", cpu="1") in ("n0", "n1")


async def test_pods_that_it_rejected_are_retried_once_the_circuit_is_open(make_cluster, start):
    served = await start(
        "filter", filter=rejecting("n0", "n1", "n2"), failureMode="ignore", events=[]
    )
    world = await make_cluster(served, background=True)
    assert await world.place() == ""
    world.endpoint.open("a test says so", world.endpoint.connection)
    world.advance(30)
    assert await world.attempt() != ""


async def test_pods_that_it_rejected_are_tried_again_after_a_restart(make_cluster, start):
    served = await start("filter", filter=rejecting("n0", "n1", "n2"), events=[])
    world = await make_cluster(served, background=True)
    assert await world.place("a") == ""
    served.answers["filter"] = None  # another version of it, which rejects nothing
    served.forget()
    assert await world.place("b") != ""
    world.advance(30)
    assert await world.attempt() != ""
    assert world.pod("a").spec.node_name


async def test_it_comes_back_without_a_pod_as_probe(make_cluster, start, tmp_path):
    path = str(tmp_path / "plugin.sock")  # a port might be somebody else's meanwhile
    served = await start("filter", filter=rejecting("n0", "n2"), path=path)
    world = await make_cluster(served, background=True)
    assert await world.place("a") == "n1"
    await served.runner.cleanup()
    assert await world.place("b") == ""
    assert "connection refused" in world.condition("b").message
    assert world.endpoint.is_open
    served.forget()
    served.runner = await serve(served, path)
    await until(lambda: not world.endpoint.is_open)
    assert served.asked("nodes")[-1]["rows"] is None, "in step before any pod asks"
    before = len(served.asked("nodes"))
    assert await world.place("c") == "n1"
    assert len(served.asked("nodes")) == before


async def test_a_healthy_process_whose_requests_hang_costs_one_timeout(
    make_cluster, start, short_pauses
):
    served = await start("filter", filter=hang, nodeColumns=["podCount"])
    world = await make_cluster(served, background=True)
    assert await world.place("a") == ""
    assert "no answer within" in world.condition("a").message
    for name in "bcd":
        asked = len(served.asked("filter"))
        await until(lambda asked=asked: len(served.asked("filter")) > asked, DAY)
        assert world.endpoint.is_open, "the health check does not close it"
        assert await world.place(name) == ""
        assert "gets no requests until it responds" in world.condition(name).message
    served.answers["filter"] = rejecting("n0", "n2")
    await until(lambda: not world.endpoint.is_open, DAY)
    assert await world.place("e") == "n1"


async def test_one_pod_whose_request_hangs_does_not_stop_the_others(
    make_cluster, start, short_pauses
):
    async def hang_for_one(served, question):
        return await hang() if question["pod"]["metadata"]["name"] == "evil" else {}

    served = await start("filter", filter=hang_for_one)
    world = await make_cluster(served, background=True)
    assert await world.place("a") != ""
    assert await world.place("evil") == ""
    await until(lambda: not world.endpoint.is_open, DAY)
    assert await world.place("b") != ""
    asked = len(served.asked("filter"))
    world.advance(30)
    assert await world.attempt() == ""
    assert "no response about this pod, but one about another" in (world.condition("evil").message)
    assert len(served.asked("filter")) == asked
    assert not world.endpoint.is_open
    served.health["epoch"] = "another"
    await world.endpoint.health_error()
    served.health["epoch"] = "a third"
    await world.endpoint.health_error()
    served.answers["filter"] = None
    world.advance(30)
    assert await world.attempt() != "", "with another epoch it is asked again"


async def test_one_that_comes_back_in_between_is_not_held_against_the_pod(
    make_cluster, start, short_pauses
):
    served = await start("filter")
    world = await make_cluster(served, background=True)
    assert await world.place("a") != ""
    served.answers["filter"] = lambda *_: hang() if len(served.asked("filter")) < 4 else {}
    assert await world.place("b") == ""
    await until(lambda: not world.endpoint.is_open, DAY)
    named = [question["pod"]["metadata"]["name"] for question in served.asked("filter")]
    assert named == ["a", "b", "b", "a", "b"]
    world.advance(30)
    assert await world.attempt() != ""


async def test_a_request_that_acts_for_a_pod_is_not_repeated(make_cluster, start, short_pauses):
    served = await start("filter", "reserve", reserve=hang)
    world = await make_cluster(served, background=True)
    assert await world.place("a") == ""
    await until(lambda: not world.endpoint.is_open, DAY)
    assert len(served.asked("reserve")) == 1
    assert len(served.asked("filter")) == 2, "the last one that was answered, again"


async def test_bad_health_opens_the_circuit_before_any_pod_waits(make_cluster, start, monkeypatch):
    monkeypatch.setattr("proreus.remote.recovery.HEALTH_SECONDS", 0.05)
    served = await start("filter", filter=hang, failureMode="ignore")
    world = await make_cluster(served, background=True)
    served.ill = True
    await until(lambda: world.endpoint.is_open)
    assert await world.place() != ""
    assert served.asked("filter") == []


async def test_messages_wait_until_it_is_back(make_cluster, start):
    served = await start("reserve", "preBind")
    world = await make_cluster(served, background=True)
    served.answers["pre-bind"] = {"status": {"code": "Unschedulable", "reasons": ["no"]}}
    served.answers["unreserve"] = web.Response(status=200, body=b"{}")
    world.endpoint.open("a test says so", world.endpoint.connection)
    assert await world.place("a") == ""
    assert served.asked("unreserve") == []
    await until(lambda: not world.endpoint.is_open)
    # What was asked while it was left alone may have arrived: that it is undone must arrive too.
    await until(lambda: len(served.asked("unreserve")) == 1)


# ---- forgetting ----------------------------------------------------------------------------------


async def test_a_restarted_plugin_gets_a_whole_snapshot(make_cluster, start):
    served = await start("filter", "score")
    world = await make_cluster(served, args={"a": 1})
    assert await world.place("a") != ""
    served.forget()
    served.calls.clear()
    assert await world.place("b") != ""
    assert served.paths() == ["filter", "profiles", "nodes", "filter", "score"]
    assert served.profiles == {"default-scheduler": {"a": 1}}
    assert served.asked("nodes")[-1]["rows"] is None


async def test_one_that_forgets_again_and_again_is_a_bad_answer(make_cluster, start):
    served = await start("filter", filter=lambda *_: resync())
    world = await make_cluster(served)
    assert await world.place() == ""
    assert "got all nodes and reports it again" in world.condition().message
    assert len(served.asked("filter")) == 2
    assert not world.endpoint.is_open


async def test_a_descriptor_may_change_but_not_its_points(make_cluster, start):
    served = await start("filter", filter=rejecting("n0"))
    world = await make_cluster(served)
    await world.place("a")
    served.descriptor["nodeColumns"] = ["labels.zone"]
    served.answers["filter"] = None
    served.forget()
    await world.place("b")
    assert served.columns["labels.zone"] == [None, None, None]
    served.descriptor["points"] = ["score"]
    served.forget()
    assert await world.place("c") == ""
    assert "was Far (filter) and is now Far (score): that needs a restart" in (
        world.condition("c").message
    )


async def test_scores_may_have_another_range_after_a_restart(make_cluster, start):
    served = await start("score", score=scoring(n1=100))
    world = await make_cluster(served)
    assert await world.place("a") == "n1"
    served.descriptor["normalize"] = "highest"
    answers = iter([resync(), scoring(n2=4000)])
    served.answers["score"] = lambda *asked: (
        answer(*asked) if callable(answer := next(answers)) else answer
    )
    assert await world.place("b") == "n2"


async def test_other_events_count_from_the_next_reload_on(make_cluster, start, caplog):
    served = await start("filter", events=[{"resource": "Node"}])
    world = await make_cluster(served)
    await world.place("a")
    served.descriptor["events"] = [{"resource": "AssignedPod"}]
    served.forget()
    assert await world.place("b") != ""
    message = "Plugin registers other events, which take effect at the next reload"
    assert [record.getMessage() for record in caplog.records] == [message]


# ---- nonsense ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (web.Response(body=b"<html>"), "/v1/filter: the answer cannot be read: JSON is malformed"),
        ({"rejected": "%%%"}, "rejected: not an array of int64"),
        (
            {"rejected": [7], "statuses": [{"code": "Unschedulable"}]},
            "[7] are not among the requested rows",
        ),
        ({"rejected": [-1], "statuses": [{"code": "Unschedulable"}]}, "[-1] are not among"),
        ({"rejected": [0, 1], "status": [0]}, "status: 1 entries for 2 rejected rows"),
        ({"rejected": [0]}, "status: must be indices of the 0 statuses"),
        (
            {"rejected": [0], "status": [3], "statuses": [{"code": "Unschedulable"}]},
            "status: must be indices of the 1 statuses",
        ),
        ({"statuses": [{"code": "Nope"}]}, 'statuses[0].code: "Nope" is not allowed here'),
        ({"statuses": [{"code": "Success"}]}, 'statuses[0].code: "Success" is not allowed here'),
        (lambda *_: web.json_response({"error": "no luck"}, status=500), "status 500: no luck"),
        (lambda *_: web.Response(status=302, headers={"Location": "/x"}), "status 302"),
    ],
)
async def test_nonsense_fails_the_pod_and_opens_nothing(answer, error, make_cluster, start):
    def given(*_):
        if isinstance(answer, web.Response):
            return web.Response(body=answer.body)
        return answer(*_) if callable(answer) else answer

    served = await start("filter", filter=given)
    world = await make_cluster(served)
    assert await world.place() == ""
    assert world.condition().reason == "SchedulerError"
    assert error in world.condition().message
    assert not world.endpoint.is_open
    assert total(world, "/v1/filter", "bad") + total(world, "/v1/filter", "answered") == 1


async def test_an_answer_without_end_is_not_kept(make_cluster, start, monkeypatch):
    monkeypatch.setattr("proreus.remote.connection._MOST_BYTES", 10_000)
    served = await start("filter", filter=lambda *_: web.Response(body=b" " * 10_001))
    world = await make_cluster(served)
    assert await world.place("a") == ""
    assert "/v1/filter: the answer has more than 10000 bytes" in world.condition("a").message
    served.answers["filter"] = None
    assert await world.place("b") != "", "nothing of it is in the way of the next answer"


@pytest.mark.parametrize("count", [0, 2, 4])
async def test_as_many_scores_as_rows(count, make_cluster, start):
    served = await start("score", score={"scores": [1] * count})
    world = await make_cluster(served)
    assert await world.place() == ""
    assert f"scores: {count} entries for 3 rows" in world.condition().message


async def test_scores_out_of_range(make_cluster, start):
    served = await start("score", score=scoring(n0=101))
    world = await make_cluster(served)
    assert await world.place() == ""
    assert "returns an invalid score 101" in world.condition().message


# ---- connecting ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("descriptor", "error"),
    [
        ({"protocol": "v2"}, 'protocol: "v2" is not supported, allowed is "v1"'),
        ({"name": "a b"}, 'name: "a b" must begin with a letter'),
        ({"points": []}, "points: at least one is needed"),
        ({"points": ["bind"]}, 'points[0]: "bind" is unknown, allowed are preFilter, filter'),
        ({"points": ["filter", "filter"]}, 'points[1]: "filter" is listed twice'),
        ({"nodeColumns": ["label.x"]}, 'nodeColumns[0]: "label.x" is unknown'),
        ({"podFields": ["spec.nodes"]}, 'podFields[0]: "spec.nodes" is unknown'),
        ({"timeoutSeconds": 0}, "timeoutSeconds: 0 must be more than 0 and at most 10"),
        ({"events": [{"resource": "Node", "actions": ["Born"]}]}, 'events[0].actions[0]: "Born"'),
        ({"failureMode": "maybe"}, "Invalid enum value 'maybe'"),
        ({"typo": 1}, "typo: is unknown, allowed are protocol, name"),
    ],
)
async def test_a_bad_descriptor_is_refused_with_what_is_allowed(descriptor, error, start):
    served = await start("filter", **descriptor)
    served.descriptor |= descriptor
    with pytest.raises(ConfigError) as caught:
        await connect(served.address, SchedulerMetrics(), 0.0)
    assert served.address in str(caught.value)
    assert error in str(caught.value)


async def test_no_process_at_the_address():
    with pytest.raises(ConfigError, match="/v1/descriptor: connect"):
        await connect("http://127.0.0.1:9", SchedulerMetrics(), 0.0)


async def test_one_that_comes_late_is_waited_for(tmp_path, start):
    connecting = asyncio.create_task(
        connect(f"unix://{tmp_path}/late.sock", SchedulerMetrics(), 10.0)
    )
    await asyncio.sleep(0)
    served = await start("filter", path=f"{tmp_path}/late.sock")
    endpoint = await connecting
    assert endpoint.descriptor.name == served.descriptor["name"]
    await endpoint.close()


@pytest.mark.parametrize(
    "address",
    ["http://example.com:80", "http://127.0.0.1", "https://127.0.0.1:1", "unix://x/y", "file:///x"],
)
async def test_addresses_that_are_not_allowed(address):
    with pytest.raises(ConfigError, match="allowed are unix:///path/to/"):
        await connect(address, SchedulerMetrics(), 0.0)


async def test_args_that_the_plugin_refuses(start):
    def refuse(_, question):
        return web.json_response({"error": "args.limit: must be positive"}, status=400)

    served = await start("filter", profiles=refuse)
    endpoint = await connect(served.address, SchedulerMetrics(), 0.0)
    with pytest.raises(ConfigError, match=r'plugin "Far": .*args.limit: must be positive'):
        await endpoint.check_args({"default-scheduler": {"limit": -1}})
    await endpoint.close()


@pytest.mark.parametrize("heeds", [True, False])
async def test_arguments_that_are_checked_are_not_in_force(heeds, make_cluster, start):
    def profiles(served, question):
        if not (heeds and question.get("check")):
            served.profiles = question["profiles"]
        return {}

    served = await start("filter", profiles=profiles)
    world = await make_cluster(served, args={"limit": 1})
    await world.place("a")
    await world.endpoint.check_args({"default-scheduler": {"limit": 2}})
    assert served.asked("profiles")[-1] == {
        "profiles": {"default-scheduler": {"limit": 2}},
        "check": True,
    }
    await world.place("b")
    assert served.paths()[-1] == "filter"
    assert served.profiles == {"default-scheduler": {"limit": 1}}
