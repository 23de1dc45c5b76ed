"""NodeTable: columns agree with the nodes after any history; views and forks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proreus.base.bounded_cache import age_caches
from proreus.framework.cluster_table import ClusterTable
from proreus.framework.node_info import NodeInfo
from proreus.framework.node_table import NodeTable
from proreus.framework.pod_label_groups import PodMatch, PodQuery
from proreus.framework.read_only import ReadOnlyError
from proreus.objects.codec import decoder_for
from proreus.objects.node import LABEL_HOSTNAME, Node
from proreus.objects.selectors import EVERYTHING, Requirement, Selector
from proreus.testing import make_node, make_pod, make_table
from proreus.testing.clusters import KEYS, VALUES

NAMES = tuple(f"n{index}" for index in range(5))
GPU = "example.com/gpu"
KINDS: tuple[dict[str, Any], ...] = (
    {},
    {"labels": {"zone": "a", "disk": "b"}, "images": {"a": 5, "b": 6}},
    {"labels": {"zone": "b"}, "taints": ["k:NoSchedule"], "pods": 3},
    {"labels": {"size": "7"}, "images": {"a": 7}, "resources": {GPU: 4}, "unschedulable": True},
    {"cpu": 0, "memory": "1Gi", "taints": ["k:NoSchedule", "k:NoExecute"]},
)
REQUESTS: tuple[dict[str, Any], ...] = (
    {},
    {"cpu": "1", "memory": "1Gi"},
    {"cpu": "1m", "host_ports": [80]},
    {"resources": {GPU: 1, "example.com/rare": 2}, "host_ports": [80, 443]},
)

Operation = tuple[str, int, int]


def operations() -> st.SearchStrategy[list[Operation]]:
    """Draw what may happen to a table; what makes no sense when its turn comes is passed over."""
    kinds = ("put node", "remove node", "add pod", "add pod", "remove pod", "look at label", "age")
    small = st.integers(0, 99)
    return st.lists(st.tuples(st.sampled_from(kinds), small, small), min_size=5, max_size=40)


def begun() -> NodeTable:
    """Return a table with three nodes and a pod, so that something can happen."""
    nodes = [make_node(name, **kind) for name, kind in zip(NAMES[:3], KINDS, strict=False)]
    return make_table(nodes, [make_pod("p0", "1", node_name="n1")])


def apply(table: NodeTable, operation: Operation) -> None:
    kind, one, other = operation
    name = NAMES[one % len(NAMES)]
    row = table.rows.get(name)
    placed = [(info.row, uid) for info in table for uid in info.pods]
    match kind:
        case "put node":
            put(table, make_node(name, **KINDS[other % len(KINDS)]))
        case "remove node" if row is not None:
            table.remove_node(table[row])
        case "add pod" if row is not None:
            pod = make_pod(f"p{other}", **REQUESTS[other % len(REQUESTS)])
            if pod.uid not in (uid for _, uid in placed):
                table.add_pod(row, pod)
        case "remove pod" if placed:
            table.remove_pod(*placed[one % len(placed)])
        case "look at label":
            table.label(KEYS[one % len(KEYS)])
        case "age":
            assert isinstance(table, ClusterTable)
            table.age()


def put(table: NodeTable, node: Node) -> None:
    row = table.rows.get(node.metadata.name)
    info = NodeInfo(node.metadata.name) if row is None else table[row]
    info.set_node(node)
    if row is None:
        table.add_node(info)
    else:
        table.update_node(info)


@settings(deadline=None, max_examples=80)
@given(operations())
def test_columns_stay_in_step(steps: list[Operation]) -> None:
    table = begun()
    for step in steps:
        apply(table, step)
        table.validate()


def picture(table: NodeTable, row: int) -> tuple[object, ...]:
    """Return all that columns say of a row, in words that outlive renumbering."""
    labels = []
    for key in KEYS:
        code = int(table.label(key)[row])
        labels.append(None if code < 0 else table.label_values(key).values[code])
    return (
        table[row].name,
        tuple(
            int(columns[name][row])
            for columns in (table.allocatable, table.requested, table.nonzero_requested)
            for name in ("cpu", "memory", "example.com/gpu")
        ),
        int(table.pod_count[row]),
        int(table.allowed_pods[row]),
        bool(table.unschedulable[row]),
        table.taint_sets.values[table.taint_set[row]],
        table.port_sets.values[table.port_set[row]],
        tuple(sorted(table.image_sets.values[table.image_set[row]].items())),
        tuple(labels),
    )


@settings(deadline=None, max_examples=80)
@given(operations(), operations())
def test_every_row_that_changed_is_reported(
    before: list[Operation], after: list[Operation]
) -> None:
    table = begun()
    for step in before:
        apply(table, step)
    old = [picture(table, row) for row in range(len(table))]
    position = table.position

    for step in after:
        apply(table, step)

    changed = table.changes_since(position)
    assert changed is not None
    assert len(changed) == len(set(changed))
    for row in range(len(table)):
        if row not in changed:
            assert picture(table, row) == old[row]


@settings(deadline=None, max_examples=60)
@given(operations(), st.data())
def test_parts_and_forks_show_their_rows(steps: list[Operation], data: st.DataObject) -> None:
    table = begun()
    for step in steps:
        apply(table, step)
    rows = np.array(data.draw(_rows(len(table))), dtype=np.intp)
    again = np.array(data.draw(_rows(len(rows))), dtype=np.intp)
    expected = [picture(table, row) for row in rows[again].tolist()]

    for part in (
        table.take(rows).take(again),
        table.take(rows).fork(again),
        table.fork(rows).take(again),
        table.fork(rows[again]),
    ):
        assert [picture(part, row) for row in range(len(part))] == expected
        assert [node.name for node in part] == [said[0] for said in expected]
        assert part.rows == {said[0]: row for row, said in enumerate(expected)}


def _rows(size: int) -> st.SearchStrategy[list[int]]:
    if not size:
        return st.just([])
    return st.lists(st.integers(0, size - 1), unique=True, max_size=size)


def test_a_fork_is_its_own() -> None:
    there = make_pod("there", "1", host_ports=[80], node_name="n1")
    table = make_table([make_node("n0"), make_node("n1")], [there])
    fork = table.fork(np.array([1]))

    fork.remove_pod(0, there.uid)
    fork.add_pod(0, make_pod("added", "2", host_ports=[443, 80]))

    assert fork.requested["cpu"].tolist() == [2000]
    assert fork[0].requested["cpu"] == 2000
    assert len(fork.port_sets.values[fork.port_set[0]]) == 2
    assert table.requested["cpu"].tolist() == [0, 1000]
    assert list(table[1].pods) == [there.uid]
    assert len(table.port_sets.values[table.port_set[1]]) == 1
    table.validate()


def test_a_fork_of_a_fork_is_its_own() -> None:
    table = make_table([make_node("n0"), make_node("n1")])
    outer = table.fork(np.array([1, 0]))
    outer.add_pod(0, make_pod("outer", "1"))
    inner = outer.fork(np.array([0]))
    inner.add_pod(0, make_pod("inner", "1"))

    assert inner.requested["cpu"].tolist() == [2000]
    assert outer.requested["cpu"].tolist() == [1000, 0]
    assert inner.label("kubernetes.io/hostname").tolist() == [
        table.label_values("kubernetes.io/hostname").find("n1")
    ]


def test_a_part_follows_its_table() -> None:
    table = make_table([make_node("n0"), make_node("n1")])
    part = table.take(np.array([1]))

    table.add_pod(1, make_pod("a", "1"))

    assert part.requested["cpu"].tolist() == [1000]
    assert part.pod_count.tolist() == [1]


def test_resources_that_nobody_has_read_as_zeros() -> None:
    table = make_table([make_node("n0"), make_node("n1")])

    assert table.allocatable["example.com/gpu"].tolist() == [0, 0]
    assert "example.com/gpu" not in table.allocatable
    assert table.take(np.array([1])).allocatable["example.com/gpu"].tolist() == [0]


def test_a_resource_that_a_node_loses_becomes_zero() -> None:
    table = make_table([make_node("n0", resources={"example.com/gpu": 2})])

    put(table, make_node("n0"))

    assert table.allocatable["example.com/gpu"].tolist() == [0]


def test_tables_grow() -> None:
    table = make_table(make_node(f"n{i}", labels={"zone": f"z{i % 3}"}) for i in range(40))
    table.label("zone")
    for i in range(40, 200):
        put(table, make_node(f"n{i}", labels={"zone": f"z{i % 3}"}))

    table.validate()
    assert len(table) == 200
    assert table.rows_of(["n199", "gone", "n3"]).tolist() == [3, 199]


def test_a_long_history_is_forgotten() -> None:
    table = make_table([make_node("n0")])
    position = table.position
    for _ in range(5000):
        put(table, make_node("n0"))

    assert table.changes_since(position) is None
    assert table.changes_since(table.position) == []


def labelled(*labels: dict[str, str]) -> NodeTable:
    return make_table(make_node(f"n{i}", labels=one) for i, one in enumerate(labels))


@settings(deadline=None, max_examples=60)
@given(
    st.lists(
        st.dictionaries(st.sampled_from(KEYS), st.sampled_from(VALUES)), min_size=1, max_size=6
    ),
    st.lists(
        st.one_of(
            st.builds(
                Requirement,
                st.sampled_from(KEYS),
                st.sampled_from(("In", "NotIn")),
                st.frozensets(st.sampled_from((*VALUES, "gone")), min_size=1),
            ),
            st.builds(
                Requirement, st.sampled_from(KEYS), st.sampled_from(("Exists", "DoesNotExist"))
            ),
            st.builds(
                Requirement,
                st.sampled_from(KEYS),
                st.sampled_from(("Gt", "Lt")),
                st.sampled_from((frozenset({"7"}), frozenset({"9"}))),
            ),
        ),
        max_size=3,
    ),
)
def test_selectors_see_the_same_in_columns(
    labels: list[dict[str, str]], requirements: list[Requirement]
) -> None:
    table, selector = labelled(*labels), Selector(tuple(requirements))

    assert table.matches(selector).tolist() == [selector.matches(node.labels) for node in table]


def test_nothing_is_selected_by_nothing() -> None:
    assert labelled({}, {}).matches(Selector(nothing=True)).tolist() == [False, False]


def images_of(*entries: tuple[Iterable[str], int]) -> dict[str, object]:
    return {"images": [{"names": list(names), "sizeBytes": size} for names, size in entries]}


def test_images_are_counted_by_node_and_name() -> None:
    table = make_table(
        [
            make_node("n0", status=images_of((["a", "a@digest"], 10))),
            make_node("n1", status=images_of((["a"], 30), (["b"], 5))),
        ]
    )
    assert table.images.num_nodes == {"a": 2, "a@digest": 1, "b": 1}

    version = table.images.version
    put(table, make_node("n1", status=images_of((["a"], 30), (["b"], 5))))
    assert table.images.version == version

    put(table, make_node("n1", status=images_of((["b"], 5))))
    assert table.images.num_nodes == {"a": 1, "a@digest": 1, "b": 1}
    assert table.images.version > version

    table.remove_node(table[0])
    assert table.images.num_nodes == {"b": 1}
    table.validate()


def test_sets_that_no_node_has_any_more_are_forgotten() -> None:
    table = make_table([make_node("n0"), make_node("n1", images={"kept": 1})])
    for port in range(1, 3000):
        pod = make_pod("p", host_ports=[port], node_name="n0")
        table.add_pod(0, pod)
        if port % 2:
            table.remove_pod(0, pod.uid)
        else:
            table.remove_pod(0, pod.uid)
            put(table, make_node("n0", images={f"image{port}": port}))

    assert len(table.port_sets) < 1100
    age_caches()
    assert len(table.image_sets) == 3
    assert table.image_sets.values[table.image_set[1]] == {"kept": 1}
    table.validate()


def test_forks_survive_when_sets_are_forgotten() -> None:
    first = make_pod("first", host_ports=[1], node_name="n0")
    table = make_table([make_node("n0")], [first])
    fork = table.fork(np.array([0]))
    for port in range(2, 3000):
        pod = make_pod("p", host_ports=[port], node_name="n0")
        table.add_pod(0, pod)
        table.remove_pod(0, pod.uid)

    assert fork.port_sets.values[fork.port_set[0]] == set(first.host_ports)


def test_amounts_beyond_int64_are_cut() -> None:
    table = make_table([make_node("n0", memory="16E")])
    for index in range(3):
        table.add_pod(0, make_pod(f"p{index}", memory="7E"))

    assert table.requested["memory"].tolist() == [2**63 - 1]


def test_validate_notices() -> None:
    table = make_table([make_node("n0")])
    table[0].add_pod(make_pod("behind the back", "1"))

    with pytest.raises(AssertionError):
        table.validate()


def test_labels_may_be_anything() -> None:
    node = decoder_for(Node).convert({"metadata": {"name": "n0", "labels": {"": "", "é": "ü"}}})
    table = make_table([node])

    assert table.label_values("").values == [""]
    assert table.label("é").tolist() == [0]


def test_sets_of_thousands_of_ports_go_with_their_pods() -> None:
    table = make_table([make_node("n0"), make_node("n1")])
    for number in range(3):
        ports = [{"containerPort": 1, "hostPort": 2 * n + number} for n in range(1, 2_000)]
        many = make_pod("many", spec={"containers": [{"name": "c", "ports": ports}]})
        table.add_pod(0, many)
        assert table.port_sets.values[table.port_set[0]] == set(many.host_ports)
        table.remove_pod(0, many.uid)

        assert table.port_set.tolist() == [0, 0]
        assert len(table.port_sets) == 1


def test_large_sets_of_nodes_that_are_gone_are_forgotten_with_age() -> None:
    table = make_table([make_node("n0", taints=["k:NoSchedule"], images={"kept": 1})])
    large = make_node(
        "n1",
        taints=[f"t{number}:NoSchedule" for number in range(3_000)],
        images={f"i{number}": number for number in range(3_000)},
    )
    put(table, large)
    fork = table.fork(np.array([1]))
    table.remove_node(table[1])
    age_caches()

    assert (len(table.taint_sets), len(table.image_sets)) == (2, 2)
    assert len(fork.taint_sets.values[fork.taint_set[0]]) == 3_000
    table.validate()


def test_label_keys_of_nodes_that_are_gone_are_forgotten_with_age() -> None:
    table = make_table([make_node("n0", labels={"kept": ""}), make_node("n1", labels={"gone": ""})])
    assert table.label("gone").tolist() == [-1, 0]
    table.remove_node(table[1])
    for _ in range(3):
        age_caches()
    assert table.has_label("kept")
    assert not table.has_label("gone")
    table.validate()


@pytest.mark.parametrize("count", [2, 300])
def test_columns_refuse_writes_and_follow_the_table(count: int) -> None:
    gpu = "example.com/gpu"
    nodes = [make_node(f"n{i}", cpu="4", resources={gpu: 1}) for i in range(count)]
    table = make_table(nodes, [make_pod("p", "1", node_name="n1")])
    assert table.label("nobody/has-it").tolist() == [-1] * count
    columns = [
        *(table.label(key) for key in (LABEL_HOSTNAME, "nobody/has-it")),
        *(
            getattr(table, name)["cpu"]
            for name in ("allocatable", "requested", "nonzero_requested")
        ),
        *(table.pod_count, table.allowed_pods, table.unschedulable, table.taint_set),
        *(table.port_set, table.image_set),
        table.count_pods(PodQuery((PodMatch(frozenset({"default"}), EVERYTHING),))),
    ]
    if count > 256:
        columns.append(table.allocatable[gpu])
    for column in columns:
        with pytest.raises(ValueError, match="read-only"):
            column[0] = column[1]
    put(table, make_node("n0", cpu="2", resources={gpu: 3}))
    assert table.allocatable["cpu"][:2].tolist() == [2000, 4000]
    assert table.allocatable[gpu][:2].tolist() == [3, 1]
    for number in range(100):  # the columns grow
        put(table, make_node(f"more-{number}"))
        with pytest.raises(ValueError, match="read-only"):
            table.label(LABEL_HOSTNAME)[0] = 7
    hostnames = table.label_values(LABEL_HOSTNAME).values
    assert [hostnames[code] for code in table.label(LABEL_HOSTNAME)] == [one.name for one in table]
    table.validate()
    table.clear()
    put(table, make_node("n0", cpu="1"))
    assert table.allowed_pods.tolist() == [110]
    assert table.allocatable["cpu"].tolist() == [1000]


def test_rows_by_name_are_read_only() -> None:
    table = make_table([make_node(name) for name in "abc"], [])
    for nodes in (table, table.fork(np.array([1]))):
        with pytest.raises(ReadOnlyError):
            nodes.rows.pop("b")
        with pytest.raises(ReadOnlyError):
            nodes.rows["x"] = 5
        assert "b" in nodes
