from __future__ import annotations

import pytest

from proreus.framework import ConfigError
from proreus.testing import FakeHandle, Harness, make_node, make_plugin, make_pod
from proreus.testing.agreement import agree

MODEL = "example.com/power-model"


def test_busy_nodes_are_filled_and_efficient_ones_first(plugin, config) -> None:
    nodes = [
        make_node("old-awake"),
        make_node("old"),
        make_node("new", labels={MODEL: "efficient"}),
    ]
    cluster = Harness([plugin], nodes, [make_pod("x", "1", node_name="old-awake")], config=config)
    # A pod of one CPU of four: 70 W more on an old node that is awake, 190 W on a sleeping one,
    # 60 + 40 W on the efficient one.
    first = cluster.schedule(make_pod("a", cpu="1"))
    assert {n: first.score(n, "Energy") for n in first.feasible} == {
        "new": 480,
        "old": 0,
        "old-awake": 640,
    }
    assert first.node == "old-awake"
    placed = [cluster.schedule(make_pod(name, cpu="1")).node for name in "bcdefg"]
    assert placed == ["old-awake"] * 2 + ["new"] * 4


def test_a_model_must_make_sense(plugin) -> None:
    wrong = {"models": {"*": {"idle": 100, "max": 50}}}
    with pytest.raises(ConfigError, match=r"max: Invalid value: 50: must not be less than idle"):
        make_plugin(plugin, FakeHandle(), wrong)
    with pytest.raises(ConfigError, match=r"models\.\*: Required value"):
        make_plugin(plugin, FakeHandle(), {"models": {}})


def test_both_forms_agree(plugin) -> None:
    models = {"*": {"idle": 100, "max": 300}, "a": {"idle": 7, "max": 50}}
    agree(plugin, {"nodeLabel": "disk", "models": models, "asleepBelow": 2}, examples=50)
