"""Every extension point of a remote plugin, over real sockets."""

from __future__ import annotations

import contextlib

import pytest

from proreus.remote.connection import Connection
from proreus.testing.builders import make_pod

from .conftest import rejecting, scoring, until


async def test_filter_sees_the_nodes_once_and_then_what_changed(make_cluster, start):
    served = await start(
        "filter",
        filter=rejecting("n0", "n2"),
        nodeColumns=["requested.cpu", "labels.zone", "taints", "unschedulable", "podCount"],
        podFields=["metadata.name", "metadata.labels", "requests"],
    )
    world = await make_cluster(served, args={"limit": 3})
    world.add_nodes("n3", labels={"zone": "b"}, unschedulable=True)
    assert await world.place("p", cpu="1", labels={"a": "b"}) == "n1"
    assert await world.place("q", cpu="1") == "n1"

    assert served.profiles == {"default-scheduler": {"limit": 3}}
    whole, change = served.asked("nodes")
    assert (whole["rows"], whole["base"], whole["size"]) == (None, None, 4)
    assert served.columns["labels.zone"] == [None, None, None, "b"]
    assert served.columns["unschedulable"] == [0, 0, 0, 1]
    row = served.columns["name"].index("n1")
    assert (change["rows"], change["base"]) == ([row], whole["version"])
    assert change["columns"]["requested.cpu"] == [1000]
    first, second = served.asked("filter")
    assert first["pod"] == {
        "metadata": {"name": "p", "labels": {"a": "b"}},
        "requests": {"cpu": 1000},
    }
    assert first["profile"] == "default-scheduler"
    assert first["rows"] is second["rows"] is None
    assert second["version"] == change["version"]


async def test_nodes_that_come_and_go(make_cluster, start):
    served = await start("filter", nodeColumns=["labels.zone"])
    world = await make_cluster(served)
    await world.place("a")
    world.add_nodes("late", labels={"zone": "z"})
    await world.place("b")
    assert sorted(served.columns["name"]) == ["late", "n0", "n1", "n2"]
    world.api.remove("Node", "n0")
    await world.place("c")
    assert sorted(served.columns["name"]) == ["late", "n1", "n2"]
    named = dict(zip(served.columns["name"], served.columns["labels.zone"], strict=True))
    assert named == {"n1": None, "n2": None, "late": "z"}


async def test_reasons_are_reported_and_earlier_plugins_come_first(make_cluster, start):
    def evaluate(served, question):
        rows = {name: row for row, name in enumerate(served.names(question))}
        return {
            "rejected": [rows["small"], rows["n1"], rows["n0"]],
            "status": [1, 1, 0],
            "statuses": [
                {"code": "Unschedulable", "reasons": ["node(s) are too hot"]},
                {"code": "UnschedulableAndUnresolvable", "reasons": ["node(s) are on fire"]},
            ],
        }

    served = await start("filter", filter=evaluate)
    world = await make_cluster(served, nodes=2)
    world.add_nodes("small", cpu="1")
    assert await world.place(cpu="2") == ""
    assert world.condition().message.startswith(
        "0/3 nodes are available: 1 Insufficient cpu, 1 node(s) are on fire, 1 node(s) are too hot."
    )


async def test_scores_decide_and_are_weighted(make_cluster, start):
    served = await start("score", score=scoring(n2=100))
    world = await make_cluster(served)
    assert await world.place() == "n2"
    assert served.paths() == ["profiles", "nodes", "score"]


@pytest.mark.parametrize(("normalize", "best"), [("highest", "n1"), ("lowest", "n0")])
async def test_scores_of_any_size(normalize, best, make_cluster, start):
    served = await start("score", score=scoring(n0=7, n1=4000, n2=900), normalize=normalize)
    world = await make_cluster(served)
    assert await world.place() == best


async def test_only_feasible_nodes_are_scored(make_cluster, start):
    served = await start("score", score=scoring())
    world = await make_cluster(served)
    world.add_nodes("small", cpu="1")
    await world.place(cpu="2")
    (question,) = served.asked("score")
    assert sorted(served.names(question)) == ["n0", "n1", "n2"]


async def test_prefilter_names_nodes_skips_and_rejects(make_cluster, start):
    answers = iter(
        [
            {"nodes": ["n1", "n9"]},
            {"status": {"code": "Skip"}},
            {"status": {"code": "UnschedulableAndUnresolvable", "reasons": ["no rack left"]}},
        ]
    )
    served = await start("preFilter", "filter", pre_filter=lambda *_: next(answers))
    world = await make_cluster(served)
    assert await world.place("a") == "n1"
    assert len(served.asked("filter")) == 1
    assert served.names(served.asked("filter")[0]) == ["n1"]
    assert await world.place("b") != ""
    assert len(served.asked("filter")) == 1, "a skipped plugin is not asked"
    assert await world.place("c") == ""
    assert world.condition("c").message.startswith("0/3 nodes are available: no rack left.")


async def test_reserve_may_refuse_and_is_undone(make_cluster, start):
    answers = iter([{"status": {"code": "Unschedulable", "reasons": ["no licence"]}}, {}])
    served = await start("reserve", reserve=lambda *_: next(answers))
    world = await make_cluster(served, background=True)
    assert await world.place() == ""
    assert "no licence" in world.condition().message
    (question,) = served.asked("reserve")
    assert question["identity"]["metadata"] == {
        "name": "p",
        "namespace": "default",
        "uid": world.pod().metadata.uid,
    }
    world.advance(30)
    world.scheduler.queue.activate(["default/p"])
    node = await world.attempt()
    assert node != ""
    assert served.paths() == ["profiles", "reserve", "unreserve", "reserve"]
    assert served.asked("reserve")[1]["node"] == node


async def test_permit_holds_a_pod_until_the_plugin_allows_it(make_cluster, start):
    served = await start(
        "permit",
        permit={"status": {"code": "Wait", "timeoutSeconds": 60}},
        waiting=lambda _, question: {"allowed": [p["metadata"]["uid"] for p in question["pods"]]},
    )
    world = await make_cluster(served, background=True)
    assert await world.place() != ""
    assert world.pod().spec.node_name
    assert served.paths() == ["profiles", "permit", "waiting"]


async def test_permit_turns_down_later(make_cluster, start):
    def refuse(_, question):
        uid = question["pods"][0]["metadata"]["uid"]
        return {"rejected": [{"uid": uid, "reason": "the gang is not complete"}]}

    served = await start("permit", permit={"status": {"code": "Wait"}}, waiting=refuse)
    served.answers["permit"]["status"]["timeoutSeconds"] = 60
    world = await make_cluster(served, background=True)
    await world.place()
    assert not world.pod().spec.node_name
    assert "the gang is not complete" in world.condition().message


async def test_prebind_has_its_own_time_out_and_postbind_is_notified(
    make_cluster, start, monkeypatch
):
    allowed = {}
    post = Connection.post

    async def noting(self, path, body, seconds):
        allowed[path] = seconds
        return await post(self, path, body, seconds)

    monkeypatch.setattr(Connection, "post", noting)
    served = await start("preBind", "postBind", timeoutSeconds=9, preBindTimeoutSeconds=99)
    world = await make_cluster(served, background=True)
    node = await world.place()
    await until(lambda: len(served.asked("post-bind")) == 1)
    assert served.asked("post-bind")[0]["node"] == node
    assert world.pod().spec.node_name == node
    assert (allowed["/v1/pre-bind"], allowed["/v1/post-bind"]) == (99, 9)


async def test_prebind_may_refuse(make_cluster, start):
    refusal = {"status": {"code": "Unschedulable", "reasons": ["volume is gone"]}}
    served = await start("preBind", pre_bind=refusal)
    world = await make_cluster(served)
    await world.place()
    assert not world.pod().spec.node_name
    assert "volume is gone" in world.condition().message


async def test_unix_sockets_and_base64(make_cluster, start, tmp_path):
    import base64
    import struct

    def packed(served, question):
        count = 4 if question["rows"] is None else -1
        return {"scores": base64.b64encode(struct.pack(f"<{count}q", 0, 0, 100, 0)).decode()}

    def unpack(text):
        raw = base64.b64decode(text)
        return list(struct.unpack(f"<{len(raw) // 8}q", raw))

    sent = []

    def nodes(_, news):
        sent.append(unpack(news["columns"]["allocatable.cpu"]))
        return {}

    served = await start(
        "score",
        path=str(tmp_path / "plugin.sock"),
        arrays="base64",
        nodeColumns=["allocatable.cpu"],
        nodes=nodes,
        score=packed,
    )
    world = await make_cluster(served, nodes=4)
    chosen = await world.place()
    assert sent == [[4000] * 4]
    assert chosen == world.scheduler.cache.table[2].name


# ---- what is not asked again -----------------------------------------------------------------


async def test_a_row_local_plugin_is_asked_about_changed_rows_only(make_cluster, start):
    served = await start(
        "filter",
        "score",
        filter=rejecting("n0"),
        score=scoring(n1=50, n2=50),
        rowLocal=True,
        nodeColumns=["podCount"],
        podFields=["requests"],
    )
    world = await make_cluster(served)
    first = await world.place("a")
    await world.place("b")
    row = served.columns["name"].index(first)
    assert [question["rows"] for question in served.asked("filter")] == [None, [row]]
    assert served.asked("score")[1]["rows"] == [row]
    await world.place("other", cpu="1")
    assert served.asked("filter")[2]["rows"] is None, "a pod that looks different"


async def test_columns_that_did_not_change_are_no_news(make_cluster, start):
    served = await start("filter", filter=rejecting("n0"), rowLocal=True, podFields=["requests"])
    world = await make_cluster(served)
    for name in "abc":
        assert await world.place(name) in ("n1", "n2")
    assert served.paths() == ["profiles", "nodes", "filter"]


async def test_a_new_epoch_ends_what_was_known_and_wakes_pods(make_cluster, start):
    served = await start(
        "filter",
        filter=rejecting("n0", "n1", "n2", epoch="1"),
        rowLocal=True,
        podFields=["requests"],
        events=[],
    )
    served.health = {"epoch": "1"}
    world = await make_cluster(served, background=True)
    assert await world.place() == ""
    assert len(served.asked("filter")) == 1
    served.answers["filter"] = rejecting("n0", epoch="2")
    served.health = {"epoch": "2"}
    assert world.scheduler.queue.pop() is None
    assert await world.endpoint.health_error() is None
    world.advance(30)
    assert await world.attempt() in ("n1", "n2")


# ---- preemption --------------------------------------------------------------------------------


async def test_preemption_evicts_nothing_where_the_plugin_rejects(make_cluster, start):
    served = await start("filter", filter=rejecting("n0"))
    world = await make_cluster(served, nodes=0)
    world.add_nodes("n0", "n1", cpu="2")
    world.add_pod("low0", cpu="2", node_name="n0", priority=1)
    world.add_pod("low1", cpu="2", node_name="n1", priority=1)
    assert await world.place("high", cpu="2", priority=10) == ""
    assert world.pod("high").status.nominated_node_name == "n1"


# ---- while an answer is awaited ----------------------------------------------------------------


async def test_the_world_stands_still_until_the_pod_is_assumed(make_cluster, start):
    depth, most, held = 0, 0, []

    @contextlib.contextmanager
    def paused():
        nonlocal depth, most
        depth, most = depth + 1, max(most, depth + 1)
        yield
        depth -= 1
        for change in held:
            change()

    def dropping(served, question):
        held.append(lambda: world.api.remove("Node", "n0"))
        return rejecting("n0", "n1")(served, question)

    served = await start("filter", "reserve", filter=dropping)
    world = await make_cluster(served)
    world.scheduler.scheduling_cycle._paused = paused
    assert await world.place() == "n2"
    assert (depth, most) == (0, 1)
    assert sorted(node.name for node in world.scheduler.cache.table) == ["n1", "n2"]


async def test_a_pod_that_goes_while_an_answer_is_awaited(make_cluster, start):
    """A binding that fails during the request removes its pod from a row that was sent with it."""
    looks = {"rowLocal": True, "nodeColumns": ["podCount"], "podFields": ["requests"]}
    served = await start("filter", **looks)
    world = await make_cluster(served)
    cache, gone = world.scheduler.cache, make_pod("gone")
    cache.assume(gone, "n1")
    row = cache.table.rows["n1"]

    def forgetting(served, question):
        cache.forget(gone, "n1")
        return served.by_the_book("filter", question)

    served.answers["filter"] = forgetting
    elsewhere = {"kubernetes.io/hostname": "n2"}
    first = cache.table.rows[await world.place("a", node_selector=elsewhere)]
    assert served.columns["podCount"][row] == 1
    served.answers["filter"] = None
    await world.place("b")
    assert served.asked("filter")[1]["rows"] == sorted({row, first})
