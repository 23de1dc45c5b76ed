"""Resource columns: resources of few nodes are sparse, and read like all others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proreus.base.clock import FakeClock
from proreus.engine.cache.cache import Cache
from proreus.framework.columns import ResourceColumns
from proreus.framework.node_info import NodeInfo
from proreus.framework.node_table import NodeTable
from proreus.testing import make_node, make_pod, make_table

NODES = 640


def own(number: int) -> str:
    return f"example.com/thing-{number}"


def table_of_individualists() -> NodeTable:
    """Every node has a resource of its own, and a pod that takes some of it."""
    return make_table(
        [make_node(f"n{number}", resources={own(number): 4}) for number in range(NODES)],
        [
            make_pod(f"p{number}", node_name=f"n{number}", resources={own(number): 3})
            for number in range(NODES)
        ],
    )


def test_a_resource_of_one_node_takes_no_column() -> None:
    table = table_of_individualists()
    for columns in (table.allocatable, table.requested):
        assert len(columns.arrays) < 6
        assert own(7) in columns
        assert columns[own(7)].tolist() == [
            (4 if columns is table.allocatable else 3) * (number == 7) for number in range(NODES)
        ]
    assert own(NODES) not in table.allocatable
    assert not table.allocatable[own(NODES)].any()
    table.validate()


def test_a_resource_that_spreads_gets_a_column() -> None:
    table = make_table([make_node(f"n{number}") for number in range(NODES)])
    for number in range(NODES):
        info = table[number]
        info.set_node(make_node(info.name, resources={"example.com/gpu": number}))
        table.update_node(info)
        assert table.allocatable["example.com/gpu"].sum() == number * (number + 1) // 2
    assert "example.com/gpu" in table.allocatable.arrays
    table.validate()


def test_it_goes_with_its_node_and_its_pod() -> None:
    table = table_of_individualists()
    table.remove_pod(3, next(iter(table[3].pods)))
    assert own(3) not in table.requested
    moved = table[NODES - 1].name
    for name in ("n3", "n4", "n5"):
        table.remove_node(table[table.rows[name]])
        table.validate()
    assert own(3) not in table.allocatable
    assert own(4) not in table.requested
    assert np.flatnonzero(table.allocatable[own(NODES - 1)]).tolist() == [table.rows[moved]]
    for number in range(4000):
        info = NodeInfo(f"guest-{number}")
        info.set_node(make_node(info.name, resources={own(10_000 + number): 1}))
        table.add_node(info)
        table.remove_node(info)
    assert len([*table.allocatable]) < NODES + 10
    table.validate()


def test_parts_and_forks_have_it_too() -> None:
    table = table_of_individualists()
    rows = np.array([9, 2, 600])
    assert table.take(rows).allocatable[own(2)].tolist() == [0, 4, 0]
    assert table.take(rows).take(np.array([1])).requested[own(2)].tolist() == [3]
    fork = table.fork(rows)
    fork.remove_pod(1, next(iter(fork[1].pods)))
    fork.add_pod(0, make_pod("more", resources={own(2): 1, own(9): 1}))
    assert fork.requested[own(2)].tolist() == [1, 0, 0]
    assert fork.requested[own(9)].tolist() == [4, 0, 0]
    assert fork.requested[own(600)].tolist() == [0, 0, 3]
    assert table.requested[own(2)][2] == 3


ROWS = 4
AMOUNTS = st.dictionaries(st.sampled_from(["cpu", "a", "b", "c", "d"]), st.integers(0, 2))
CHANGES = st.one_of(
    st.tuples(st.just("put"), st.integers(0, ROWS - 1), AMOUNTS),
    st.tuples(st.just("put_some"), st.integers(0, ROWS - 1), AMOUNTS),
    st.tuples(st.just("move"), st.integers(0, ROWS - 1), st.integers(0, ROWS - 1)),
    st.tuples(st.just("clear"), st.integers(0, ROWS - 1), AMOUNTS),
    st.tuples(st.sampled_from(["shrink", "densify"]), st.just(0), st.just({})),
)


@given(st.lists(CHANGES, max_size=30))
def test_any_history(changes: list[tuple[str, int, Any]]) -> None:
    table = make_table([make_node(f"n{number}") for number in range(ROWS)])
    columns = ResourceColumns(table)
    rows: list[dict[str, int]] = [{} for _ in range(ROWS)]
    for what, row, argument in changes:
        match what:
            case "put":
                columns.put(row, argument)
                rows[row] = argument
            case "put_some":
                columns.put_some(row, tuple(argument), argument)
                rows[row] = rows[row] | argument
            case "move":
                columns.move(row, argument)
                rows[argument] = rows[row]
            case "clear":
                columns.clear(row)
                rows[row] = {}
            case _:
                getattr(columns, what)()
        for resource in ("cpu", "a", "b", "c", "d"):
            expected = [of_row.get(resource, 0) for of_row in rows]
            assert columns[resource].tolist() == expected
            assert resource in columns or not any(expected)
        for number, of_row in enumerate(rows):
            assert columns.row(number) == {name: n for name, n in of_row.items() if n}
    copy = columns.gather(table, np.array([2, 0, 1, 1]))
    assert [copy.row(row) for row in range(ROWS)] == [columns.row(row) for row in (2, 0, 1, 1)]
    for row in range(ROWS):
        columns.clear(row)
    columns.shrink()
    assert set(columns) <= {"cpu"}


def test_what_every_plugin_looks_at_is_a_column_from_the_first_pod_on() -> None:
    table = make_table([make_node(f"n{number}") for number in range(NODES)])
    table.add_pod(3, make_pod("first", cpu="1", memory="1Gi"))
    assert np.shares_memory(table.requested["memory"], table.requested["memory"])
    assert np.shares_memory(table.requested["cpu"], table.requested["cpu"])


@pytest.mark.parametrize("nodes", [1, 3])
def test_resources_that_are_gone_have_no_columns(nodes: int) -> None:
    many = {own(number): 1 for number in range(20_000)}
    cache = Cache(FakeClock())
    pods = [make_pod(f"p{n}", node_name=f"n{n}", resources=many) for n in range(nodes)]
    for number, pod in enumerate(pods):
        cache.add_node(make_node(f"n{number}", resources=many, images=many))
        cache.add_pod(pod)
    table = cache.table
    # What three nodes of at most 64 have is common: it has columns.
    assert (len(table.allocatable.arrays) > len(many)) == (nodes == 3)

    for number, pod in enumerate(pods):
        cache.remove_pod(pod.pod)
        cache.remove_node(f"n{number}")
    table.age()
    for columns in (table.allocatable, table.requested, table.nonzero_requested):
        assert set(columns.arrays) <= {"cpu", "memory", "ephemeral-storage"}
        assert not columns._sparse
        assert not columns._rows_with
    assert "cpu" in table.allocatable.arrays
    assert own(0) not in table.allocatable
    assert not table.allocatable[own(0)].any()
    cache.validate()
