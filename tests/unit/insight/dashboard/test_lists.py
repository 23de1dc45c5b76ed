"""Nodes, pods and scores as the pages list them."""

import pytest
from aiohttp.test_utils import make_mocked_request

from proreus.insight.dashboard.listing import SHOWN, Listing
from proreus.insight.dashboard.node_cells import label_keys, node_cells, node_rows, resources
from proreus.insight.dashboard.pod_list import COLUMNS, FILTERS, READY, list_pods, short_reasons
from proreus.insight.dashboard.rendering import (
    amount,
    breakable,
    duration,
    instant,
    segment,
    since,
    when,
)
from proreus.insight.dashboard.score_bars import COLORS, WIDTH, score_bars
from proreus.insight.explain.explanation import NodeChoice, PluginScore, ScoredNode

ZONE = "topology.kubernetes.io/zone"


@pytest.fixture
def table(world):
    return world.scheduler.cache.table


async def test_a_node_without_a_resource_is_neither_full_nor_empty(world, table):
    gpu = world.node("gpu", pool="a")
    gpu["status"]["allocatable"]["example.org/gpu"] = "2"
    world.cluster.api.add(gpu)
    await world.schedule()
    assert resources(table) == ["cpu", "memory", "pods", "example.org/gpu"]
    cells = node_cells(table, "example.org/gpu", ZONE)
    assert dict(zip(cells.names, cells.percent, strict=True)) == {
        "n0": -1,
        "n1": -1,
        "n2": -1,
        "gpu": 0,
    }
    assert cells.groups == ["", "z0", "z1"]
    assert [cells.groups[one] for one in cells.group] == ["z0", "z1", "z0", ""]


async def test_cordoned_nodes_and_the_fullest_first(world, table):
    cordoned = world.node("cordoned")
    cordoned["spec"] = {"unschedulable": True}
    world.cluster.api.add(cordoned)
    await world.schedule(world.pod("a", "3"))
    cells = node_cells(table, "cpu", ZONE)
    assert [cells.names[row] for row in cells.unschedulable] == ["cordoned"]
    rows, count = node_rows(table, "cpu", True, ZONE, "", ["cpu", "pods"])
    assert count == 4
    assert rows[0].name == world.node_of("a")
    assert rows[0].percent == [75, 1]
    assert rows[0].pods == 1
    rows, count = node_rows(table, "cpu", True, ZONE, "cord", ["cpu"])
    assert (count, rows[0].unschedulable, rows[0].group) == (1, True, "")


async def test_labels_that_tell_every_node_apart_make_no_groups(world, table):
    for number in range(4):
        labels = {"kubernetes.io/hostname": f"h{number}", "pool": "a" if number < 2 else "b"}
        world.cluster.api.add(world.node(f"m{number}", **labels))
    await world.schedule()
    assert label_keys(table) == [ZONE, "pool"]


async def test_an_empty_cluster_has_cells_too():
    from proreus.framework.cluster_table import ClusterTable

    cells = node_cells(ClusterTable(), "cpu", ZONE)
    assert (cells.names, cells.groups) == ([], [])
    assert node_rows(ClusterTable(), "cpu", True, ZONE, "", ["cpu"]) == ([], 0)


def listed(world, **asked):
    query = "&".join(f"{name}={value}" for name, value in asked.items())
    listing = Listing(make_mocked_request("GET", f"/?{query}"), "pods", COLUMNS, FILTERS)
    sources = world.sources
    message_of = sources.explainer.why_waiting
    return list_pods(world.scheduler.queue, sources.pods, sources.clock, message_of, listing)


async def test_pods_that_wait_longest_come_first_and_all_are_counted(world):
    for number in range(SHOWN + 5):
        await world.schedule(world.pod(f"large-{number:03}", "64"))
        world.cluster.clock.advance(0.001)
    world.cluster.api.add(world.pod("gated", schedulingGates=[{"name": "example.org/quota"}]))
    world.cluster.api.add(world.pod("next"))
    await world.cluster.settle()
    found = listed(world)
    assert len(found.pods) == SHOWN
    assert found.count == SHOWN + 7
    assert found.pods[0].name == "large-000"
    assert found.placed_count == 0, "only where something is searched"
    assert found.reasons == [("NodeResourcesFit", SHOWN + 5), ("SchedulingGates", 1), (READY, 1)]
    [gated] = listed(world, reason="SchedulingGates").pods
    assert (gated.name, gated.place) == ("gated", "gated")
    assert gated.reasons == "scheduling gates: example.org/quota"
    [ready] = listed(world, reason=READY).pods
    assert (ready.name, ready.place, ready.attempts) == ("next", "active", 0)


async def test_a_list_of_pods_has_the_reasons_beside_the_plugins(world):
    await world.schedule(world.pod("large", "64"))
    [large] = listed(world).pods
    assert (large.rejected_by, large.reasons) == (
        "NodeResourcesFit",
        "0/3 nodes are available: 3 Insufficient cpu",
    )


async def test_pods_are_filtered_by_namespace_and_profile_and_sorted_by_any_column(world):
    for name, namespace, priority in (("a", "one", 5), ("b", "two", 7), ("c", "two", 6)):
        made = world.pod(name, "64", priority=priority)
        made["metadata"]["namespace"] = namespace
        await world.schedule(made)
    assert [one.name for one in listed(world, namespace="two").pods] == ["b", "c"]
    assert [one.name for one in listed(world, sort="-priority").pods] == ["b", "c", "a"]
    assert [one.name for one in listed(world, sort="priority").pods] == ["a", "c", "b"]
    assert listed(world, profile="other").count == 0
    assert listed(world, profile="default-scheduler").count == 3
    assert listed(world).namespaces == [("two", 2), ("one", 1)]


def test_a_column_is_sorted_the_other_way_round_by_a_second_click():
    def asked(query):
        request = make_mocked_request("GET", f"/?{query}")
        return Listing(request, "pods", COLUMNS, FILTERS)

    assert asked("").sort == "-waits"
    assert asked("sort=none").sort == "-waits"
    first = asked("namespace=a%20b")
    assert first.by("attempts") == "namespace=a+b&sort=-attempts"
    assert asked("sort=-attempts").by("attempts") == "sort=attempts"
    assert asked("sort=-attempts").direction("attempts") == "descending"
    assert asked("sort=pod").by("pod") == "sort=-pod"
    assert asked("sort=pod").direction("attempts") == "none"


def test_reasons_are_those_of_filter_without_preemption():
    message = (
        "0/3 nodes are available: 1 Insufficient cpu, 2 node(s) had untolerated taint(s). no new "
        "claims to deallocate, preemption: 0/3 nodes are available: 3 Preemption is not helpful."
    )
    assert short_reasons(message) == (
        "0/3 nodes are available: 1 Insufficient cpu, 2 node(s) had untolerated taint(s)"
    )
    assert short_reasons("a plugin's own words.") == "a plugin's own words"
    assert short_reasons("") == ""


def scored(name, **weighted):
    parts = tuple(
        PluginScore(plugin=plugin, weight=1, normalized=score, weighted=score, raw=score)
        for plugin, score in weighted.items()
    )
    return ScoredNode(name=name, total=sum(weighted.values()), plugins=parts)


def test_the_longest_bar_has_the_whole_width():
    choice = NodeChoice(node="a", feasible=2, nodes=(scored("a", x=300, y=100), scored("b", x=100)))
    bars = score_bars(choice)
    assert [(one.plugin, one.x, one.width) for one in bars.bars["a"]] == [
        ("x", 0.0, 0.75 * WIDTH),
        ("y", 0.75 * WIDTH, 0.25 * WIDTH),
    ]
    assert [one.width for one in bars.bars["b"]] == [0.25 * WIDTH]
    assert bars.legend == [("x", 0), ("y", 1)]
    assert not bars.truncated


def test_scores_below_zero_have_no_length_and_colours_repeat():
    many = {f"p{number}": 1 for number in range(COLORS + 1)}
    bars = score_bars(NodeChoice(node="a", feasible=1, nodes=(scored("a", minus=-50, **many),)))
    assert bars.truncated
    assert bars.bars["a"][0].width == 0
    assert bars.legend[COLORS][1] == 0


def test_without_scores_there_are_no_bars():
    assert score_bars(NodeChoice(node="a", feasible=1)) is None


def test_figures_for_people():
    assert [duration(one) for one in (0.25, 12.7, 185, 3600, 7261, 273600)] == [
        "250 ms",
        "12 s",
        "3 min 5 s",
        "1 h",
        "2 h 1 min",
        "3 d 4 h",
    ]
    assert instant(1.0) == "1970-01-01T00:00:01Z"
    assert when(1.0, 34.0).endswith("1970-01-01T00:00:01Z</time> <small>(33 s ago)</small>")
    assert "(in 1 min 5 s)" in when(100.0, 35.0)
    assert "(now)" in when(1.0, 1.5)
    assert since(1.0, 34.0).endswith(">33 s</time>")
    assert breakable("<NodeResourcesFit") == "&lt;Node<wbr>Resources<wbr>Fit"
    assert amount(1500, "cpu") == "1.5"
    assert amount(16 * 2**30, "memory") == "16 GiB"
    assert amount(-1536, "ephemeral-storage") == "-1.5 KiB"
    assert amount(110_000, "pods") == "110,000"
    assert segment("a/b c") == "a%2Fb%20c"
