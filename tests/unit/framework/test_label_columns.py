"""Label columns: codes stand for values, and values that are gone are forgotten."""

from __future__ import annotations

from proreus.framework.node_info import NodeInfo
from proreus.framework.node_table import NodeTable
from proreus.objects.node import LABEL_HOSTNAME
from proreus.testing import make_node, make_table


def join(table: NodeTable, name: str, **labels: str) -> None:
    info = NodeInfo(name)
    info.set_node(make_node(name, labels=labels))
    table.add_node(info)


def read(table: NodeTable, key: str) -> list[str | None]:
    values = table.label_values(key).values
    return [None if code < 0 else values[code] for code in table.label(key).tolist()]


def test_names_of_nodes_that_are_gone_are_forgotten() -> None:
    table = make_table([make_node("stays")])
    assert read(table, "zone") == [None]
    assert read(table, LABEL_HOSTNAME) == ["stays"]

    for number in range(5000):
        join(table, f"n{number}", zone=f"z{number}")
        if number % 10:
            table.remove_node(table[table.rows[f"n{number}"]])

    assert len(table) == 501
    assert len(table.label_values(LABEL_HOSTNAME)) < 4000
    assert read(table, LABEL_HOSTNAME) == [info.name for info in table]
    assert read(table, "zone") == [info.labels.get("zone") for info in table]
    table.validate()
