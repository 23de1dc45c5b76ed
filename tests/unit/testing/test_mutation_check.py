"""A plugin that changes what it is given fails its test, and is stopped in a scheduler."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

from proreus.framework.node_table_views import Fork
from proreus.framework.plugin import (
    FilterPlugin,
    PermitPlugin,
    PreBindPlugin,
    PreFilterPlugin,
    ScorePlugin,
)
from proreus.framework.read_only import ReadOnlyDict, ReadOnlyError, ReadOnlySet
from proreus.testing import Harness, HarnessOptions, make_node, make_pod, make_table
from proreus.testing.agreement import agree
from proreus.testing.mutation_check import fail_on_mutation

READ_ONLY = [
    lambda pod, node: node.allocatable.__setitem__("cpu", 0),
    lambda pod, node: node.allocatable.update(cpu=0),
    lambda pod, node: node.requested.pop("cpu"),
    lambda pod, node: node.requested.clear(),
    lambda pod, node: node.requested.__ior__({"cpu": 1}),
    lambda pod, node: node.nonzero_requested.setdefault("x", 0),
    lambda pod, node: node.pods.popitem(),
    lambda pod, node: node.pvc_ref_counts.__setitem__("a/b", 1),
    lambda pod, node: node.used_ports.add(("0.0.0.0", "TCP", 80)),
    lambda pod, node: node.used_ports.__ior__({1}),
    lambda pod, node: pod.requests.amounts.__setitem__("cpu", 0),
    lambda pod, node: pod.requests.scoring.__delitem__("cpu"),
]


def filtering(change: Any) -> type[FilterPlugin]:
    class Changes(FilterPlugin):
        def filter(self, state: Any, pod: Any, node: Any) -> None:
            change(pod, node)

    return Changes


def cluster(*plugins: Any, **options: Any) -> Harness:
    node = make_node("n", cpu="4", labels={"zone": "a"})
    return Harness(plugins, [node], options=HarnessOptions(**options))


@pytest.mark.parametrize("change", READ_ONLY)
def test_plugins_cannot_change_their_arguments(change):
    harness = cluster(filtering(change), raise_errors=False)
    outcome = harness.schedule(make_pod("p", cpu="1"))
    assert outcome.node is None or outcome.node == ""
    harness.scheduler.cache.validate()
    assert harness.node("n").allocatable["cpu"] == 4000
    with pytest.raises(
        AssertionError, match=r"plugin Changes must not change what filter is given"
    ):
        cluster(filtering(change)).schedule(make_pod("p", cpu="1"))


@pytest.mark.parametrize("labels", [lambda p, n: p.labels, lambda p, n: n.labels])
def test_labels_cannot_be_changed(labels):
    def change(pod: Any, node: Any) -> None:
        labels(pod, node)["zone"] = "b"

    with pytest.raises(AssertionError, match=r"Changes .* filter .*test_mutation_check.py:\d+"):
        cluster(filtering(change)).schedule(make_pod("p", cpu="1"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda pod, node: pod.pod.metadata.labels.update(zone="b"),
            "pod default/p, metadata, labels, zone was 'a' and is now 'b'",
        ),
        (
            lambda pod, node: node.node.status.allocatable.update(cpu="8"),
            "node n, status, allocatable, cpu was '4' and is now '8'",
        ),
        (
            lambda pod, node: setattr(node, "requested", {"cpu": 9}),
            "requested of node n, cpu was None and is now 9",
        ),
    ],
)
def test_the_harness_names_who_changed_what(change, message):
    with pytest.raises(AssertionError) as raised:
        cluster(filtering(change)).schedule(make_pod("p", cpu="1", labels={"zone": "a"}))
    expected = f"plugin Changes must not change what filter is given: {message}"
    assert str(raised.value).splitlines()[0] == expected


class ScalesColumn(ScorePlugin):
    """Normalizes free cpu in place."""

    def score_all(self, state: Any, pod: Any, nodes: Any) -> Any:
        column = nodes.allocatable["cpu"]
        column += 1
        return column


class Overcommits(PreFilterPlugin):
    """Allows for more than there is."""

    def pre_filter(self, state: Any, pod: Any, nodes: Any) -> None:
        nodes.allocatable["cpu"][0] += 1


class LabelsPod(PreBindPlugin):
    async def pre_bind(self, state: Any, pod: Any, node_name: str) -> None:
        pod.pod.metadata.labels["bound"] = node_name


class Waits(PermitPlugin):
    """Reads only."""

    def permit(self, state: Any, pod: Any, node_name: str) -> None:
        assert dict(pod.labels) == {}
        assert pod.requests.amounts["cpu"] == 1000


def test_columns_are_checked():
    nodes = [make_node("m", cpu="4"), make_node("n", cpu="4")]
    with pytest.raises(
        AssertionError,
        match=r"Overcommits must not change what pre_filter is given \(.*py:\d+\): .* read-only",
    ):
        Harness([Overcommits], nodes).schedule(make_pod("p", cpu="1"))
    with pytest.raises(AssertionError, match="plugin ScalesColumn must not change"):
        agree(ScalesColumn, examples=20)


class OvercommitsFork(FilterPlugin):
    """Allows for more than there is on nodes without their pods."""

    def filter_all(self, state: Any, pod: Any, nodes: Any, verdicts: Any) -> None:
        nodes.fork(np.arange(len(nodes))).allocatable["cpu"][:] += 1
        if isinstance(nodes, Fork):
            nodes.allocatable["cpu"][0] += 1


def test_columns_of_forks_are_compared():
    plugin = OvercommitsFork(None, None)  # type: ignore[arg-type]
    fail_on_mutation(plugin)
    table = make_table([make_node("m", cpu="4"), make_node("n", cpu="4")])
    plugin.filter_all(None, None, table, None)  # type: ignore[arg-type]
    assert table.allocatable["cpu"].tolist() == [4000, 4000]
    with pytest.raises(
        AssertionError, match=r"column allocatable\['cpu'\]\[0\] was 4000 and is now 4001"
    ):
        plugin.filter_all(None, None, table.fork(np.arange(2)), None)  # type: ignore[arg-type]


def test_coroutines_are_checked_for_pods():
    with pytest.raises(AssertionError, match=r"plugin LabelsPod must not change what pre_bind"):
        cluster(LabelsPod).schedule(make_pod("p", cpu="1"))


def test_a_plugin_that_reads_passes():
    assert cluster(Waits).schedule(make_pod("p", cpu="1")).node == "n"


def test_copies_can_be_changed():
    amounts, ports = ReadOnlyDict(cpu=1), ReadOnlySet({1})
    for copied in (dict(amounts), amounts.copy(), copy.copy(amounts), copy.deepcopy(amounts)):
        copied["cpu"] = 2
    for some in (set(ports), ports.copy(), copy.copy(ports), copy.deepcopy(ports), ports | {2}):
        some.add(3)
    assert (amounts, ports) == ({"cpu": 1}, {1})
    with pytest.raises(ReadOnlyError, match="change a copy"):
        amounts["cpu"] = 2
