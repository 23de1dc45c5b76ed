"""Scores by storage in use (gate StorageCapacityScoring)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from proreus.framework.status import Status
from proreus.framework.verdicts import Verdicts
from proreus.plugins.volume_binding import scoring
from proreus.plugins.volume_binding.scoring import Usage, usage_score
from proreus.testing import make_node
from proreus.testing.agreement import assert_agreement
from proreus.testing.volumes import (
    DRIVER,
    make_capacity,
    make_claim,
    make_storage_class,
    make_volume,
)

GATE = ("StorageCapacityScoring=true",)
ON_A1 = {"kubernetes.io/hostname": ["a1"]}

Make = Callable[..., Any]


@pytest.mark.parametrize(
    ("usages", "score"),
    [
        ([("x", 50, 100)], 50),
        ([("x", 50, 100), ("y", 10, 100)], 70),
        ([("x", 5, 10), ("y", 333, 1000)], 59),
        ([("x", 120, 100)], 0),
        ([("x", 0, 0)], 0),
        ([], 0),
    ],
)
def test_worked_examples(usages: list[Usage], score: int) -> None:
    assert usage_score(usages, lambda percent: 100 - percent) == score


def scores(one: Any) -> dict[str, int]:
    nodes = one.handle.nodes
    assert one.pre_filter() is None
    one.plugin.filter_all(one.state, one.pod, nodes, Verdicts(len(nodes), one.plugin.name))
    assert one.plugin.pre_score(one.state, one.pod, nodes) is None
    assert_agreement(one.plugin, one.pod, nodes)
    return {node.name: one.plugin.score(one.state, one.pod, node) for node in nodes}


def test_without_its_gate_nothing_is_scored(attempt: Make) -> None:
    off = ("StorageCapacityScoring=false",)
    one = attempt([make_storage_class(), make_claim("c")], "c", gates=off)
    one.pre_filter()
    assert one.plugin.pre_score(one.state, one.pod, one.handle.nodes) == Status.skip()


def test_where_filter_is_configured_out_nothing_is_scored(attempt: Make) -> None:
    objects = [make_storage_class(), make_volume("large", "40Gi"), make_claim("c")]
    one = attempt(objects, "c", gates=GATE)
    assert one.pre_filter() is None
    nodes = one.handle.nodes
    assert one.plugin.pre_score(one.state, one.pod, nodes) is None
    assert one.plugin.score_all(one.state, one.pod, nodes) == 0
    assert [one.plugin.score(one.state, one.pod, node) for node in nodes] == [0, 0, 0]
    assert scores(one) == {"a1": 75, "a2": 75, "b1": 75}


def test_pods_without_claims_score_nothing(attempt: Make) -> None:
    one = attempt([], volumes=[], gates=GATE)
    one.pre_filter()
    assert one.plugin.pre_score(one.state, one.pod, one.handle.nodes) is None
    scored = [one.plugin.score(one.state, one.pod, node) for node in one.handle.nodes]
    assert one.plugin.score_all(one.state, one.pod, one.handle.nodes) == 0, "not node by node"
    assert set(scored) == {0}


def test_static_volumes(attempt: Make) -> None:
    volumes = [make_volume("small", "20Gi", where=ON_A1), make_volume("large", "40Gi")]
    one = attempt([make_storage_class(), *volumes, make_claim("c")], "c", gates=GATE)
    assert scores(one) == {"a1": 50, "a2": 75, "b1": 75}


def test_the_shape_may_prefer_the_fullest(attempt: Make) -> None:
    shape = [{"utilization": 0, "score": 0}, {"utilization": 100, "score": 10}]
    volumes = [make_volume("small", "20Gi", where=ON_A1), make_volume("large", "40Gi")]
    objects = [make_storage_class(), *volumes, make_claim("c")]
    one = attempt(objects, "c", gates=GATE, args={"shape": shape})
    assert scores(one) == {"a1": 50, "a2": 25, "b1": 25}


def test_volumes_to_provision(attempt: Make) -> None:
    driver = {"kind": "CSIDriver", "metadata": {"name": DRIVER}, "spec": {"storageCapacity": True}}
    objects = [
        make_storage_class(),
        driver,
        make_capacity("a", "40Gi", {"zone": "a"}),
        make_capacity("b", "100Gi", {"zone": "b"}, largest="20Gi"),
    ]
    claims = [make_claim("c"), make_claim("d")]
    one = attempt([*objects, *claims], "c", "d", gates=GATE)
    assert scores(one) == {"a1": 50, "a2": 50, "b1": 80}


def test_volumes_that_do_not_count(attempt: Make) -> None:
    for objects in (
        [make_storage_class(), make_claim("c")],
        [make_claim("c", volume="pv"), make_volume("pv")],
    ):
        one = attempt(objects, "c", gates=GATE)
        assert scores(one) == {"a1": 0, "a2": 0, "b1": 0}
        assert one.plugin.score_all(one.state, one.pod, one.handle.nodes) == 0, "not node by node"


def test_a_volume_where_there_is_one_else_capacity(attempt: Make) -> None:
    driver = {"kind": "CSIDriver", "metadata": {"name": DRIVER}, "spec": {"storageCapacity": True}}
    objects = [
        make_storage_class(),
        driver,
        make_volume("disk", "20Gi", where=ON_A1),
        make_capacity("a", "40Gi", {"zone": "a"}),
    ]
    one = attempt([*objects, make_claim("c")], "c", gates=GATE)
    assert scores(one) == {"a1": 50, "a2": 75, "b1": 0}


def test_one_node_of_each_kind_is_scored(attempt: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = tuple(
        make_node(f"n{number}", labels={"kubernetes.io/hostname": f"n{number}"})
        for number in range(12)
    )
    disks = [
        make_volume(
            f"disk-{number}",
            "20Gi" if number % 3 else "40Gi",
            where={"kubernetes.io/hostname": [f"n{number}"]},
        )
        for number in range(10)
    ]
    one = attempt([make_storage_class(), *disks, make_claim("c")], "c", nodes=nodes, gates=GATE)
    expected = {f"n{number}": 50 if number % 3 else 75 for number in range(10)}
    assert scores(one) == expected | {"n10": 0, "n11": 0}
    scored = []
    monkeypatch.setattr(scoring, "volume_score", lambda volumes, rate: scored.append(volumes) or 0)
    one.plugin.score_all(one.state, one.pod, one.handle.nodes)
    assert len(scored) == 3
