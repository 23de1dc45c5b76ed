"""The updates of a process add up to the node table."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from proreus.base.clock import FakeClock
from proreus.engine.cache.cache import Cache
from proreus.remote import wire
from proreus.remote.columns import column_problem, is_numeric, numbers, values
from proreus.remote.snapshot import Snapshot
from proreus.testing.builders import make_node, make_pod

COLUMNS = (
    "allocatable.cpu",
    "requested.memory",
    "nonzeroRequested.cpu",
    "podCount",
    "allowedPods",
    "unschedulable",
    "labels.zone",
    "annotations.a",
    "taints",
)


class Mirror:
    """The other side: what a process makes of the news."""

    def __init__(self) -> None:
        self.at: tuple[str, int] | None = None
        self.columns: dict[str, list[Any]] = {}

    def take(self, next_update: dict[str, Any]) -> None:
        size, rows = next_update["size"], next_update["rows"]
        if rows is None:
            self.columns = {}
            rows = range(size)
        else:
            assert self.at == (next_update["snapshot"], next_update["base"])
            rows = wire.int_array("rows", rows).tolist()
        for name, sent in next_update["columns"].items():
            if isinstance(sent, dict):
                codes = wire.int_array("codes", sent["codes"]).tolist()
                sent = [sent["values"][code] if code >= 0 else None for code in codes]
            elif name != "name":
                sent = wire.int_array(name, sent).tolist()
            column = self.columns.setdefault(name, [])
            column[size:] = [None] * (size - len(column))
            for row, value in zip(rows, sent, strict=True):
                column[row] = value
        self.at = (next_update["snapshot"], next_update["version"])


class World:
    """A cache to which random things happen."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.cache = Cache(FakeClock())
        self.nodes: dict[str, Any] = {}
        self.pods: dict[str, Any] = {}
        self.made = 0

    def happen(self) -> None:
        self.chance.choice((self.add_node, self.add_node, self.change, self.remove, self.pod))()

    def add_node(self) -> None:
        self.made += 1
        name = f"n{self.made}"
        self.nodes[name] = self.node(name)
        self.cache.add_node(self.nodes[name])

    def node(self, name: str) -> Any:
        zone = self.chance.choice(("a", "b", None))
        return make_node(
            name,
            cpu=self.chance.randint(1, 3),
            labels={"zone": zone} if zone else {},
            taints=["k=v:NoSchedule"] if self.chance.random() < 0.3 else [],
            unschedulable=self.chance.random() < 0.2,
        )

    def change(self) -> None:
        if self.nodes:
            name = self.chance.choice(sorted(self.nodes))
            self.nodes[name] = self.node(name)
            self.cache.update_node(self.nodes[name])

    def remove(self) -> None:
        if self.nodes:
            name = self.chance.choice(sorted(self.nodes))
            del self.nodes[name]
            self.cache.remove_node(name)

    def pod(self) -> None:
        if self.nodes:
            self.made += 1
            pod = make_pod(f"p{self.made}", "100m", "1Mi")
            self.cache.assume(pod, self.chance.choice(sorted(self.nodes)))


@pytest.mark.parametrize("arrays", ["json", "base64"])
@pytest.mark.parametrize("seed", range(15))
def test_news_add_up_to_the_table(seed: int, arrays: wire.Arrays) -> None:
    world, mirror = World(seed), Mirror()
    snapshot = Snapshot(COLUMNS, arrays)
    for _ in range(40):
        for _ in range(world.chance.randint(0, 4)):
            world.happen()
        next_update = snapshot.next_update(world.cache.table)
        if next_update is not None:
            mirror.take(next_update)
        table = world.cache.table
        everything = np.arange(table.size)
        assert mirror.at == (snapshot.id, snapshot.version)
        for name in ("name", *COLUMNS):
            if is_numeric(name):
                expected: list[Any] = numbers(table, name, everything).tolist()
            else:
                expected = values(table, name, everything)
            assert [v or None for v in mirror.columns[name]] == [v or None for v in expected], name
        assert len(snapshot.changed_at) == snapshot.size == table.size
        assert snapshot.next_update(table) is None


def test_a_row_is_news_only_where_a_wanted_column_changed() -> None:
    world = World(0)
    for _ in range(3):
        world.add_node()
    labels, pods = Snapshot(("labels.zone",), "json"), Snapshot(("podCount",), "json")
    for snapshot in (labels, pods):
        assert snapshot.next_update(world.cache.table)["base"] is None
    world.cache.assume(make_pod("p"), "n2")
    assert labels.next_update(world.cache.table) is None
    next_update = pods.next_update(world.cache.table)
    assert (next_update["rows"], next_update["columns"]["podCount"]) == ([1], [1])
    assert pods.changed_at.tolist() == [1, 2, 1]


def test_another_table_is_sent_whole() -> None:
    one, other = World(1), World(2)
    one.add_node()
    other.add_node()
    snapshot = Snapshot((), "json")
    assert snapshot.next_update(one.cache.table)["base"] is None
    assert snapshot.next_update(other.cache.table)["base"] is None


@pytest.mark.parametrize(
    "name", ["", "labels", "labels.", "requested", "nonzeroRequested.gpu", "taints.x", "cpu"]
)
def test_columns_that_there_are_not(name: str) -> None:
    assert column_problem(name) is not None
