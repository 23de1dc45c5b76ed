"""Both forms of each add-on, and its cached results, agree on random clusters."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from importlib import import_module
from typing import Any, Literal, NamedTuple

import pytest

from proreus.addons import ADD_ONS
from proreus.addons.node_resources_allocatable import NodeResourcesAllocatable
from proreus.addons.pod_state import PodState
from proreus.framework import FilterPlugin, Plugin, ScorePlugin
from proreus.testing.agreement import agree
from proreus.testing.vocabulary import Vocabulary


class Case(NamedTuple):
    plugin: type[Plugin]
    name: str = ""
    args: Mapping[str, Any] | None = None
    drawn_from: Any = None
    vocabulary: Vocabulary | None = None
    constant: Collection[Literal["Filter", "Score"]] = ()


CASES = (
    Case(NodeResourcesAllocatable),
    Case(
        NodeResourcesAllocatable,
        "most",
        {"mode": "Most", "resources": [{"name": "example.com/gpu", "weight": 5}]},
    ),
    Case(PodState, constant=("Score",)),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.plugin.name}-{case.name}")
def test_forms_agree(case: Case) -> None:
    agree(
        case.plugin,
        case.args,
        drawn_from=case.drawn_from,
        vocabulary=case.vocabulary,
        may_be_constant=case.constant,
    )


@pytest.mark.parametrize("name", ADD_ONS)
def test_every_add_on_is_covered(name: str) -> None:
    plugin = getattr(import_module(ADD_ONS[name]), name)
    assert plugin.name == name
    asked_about_nodes = issubclass(plugin, (FilterPlugin, ScorePlugin))
    assert asked_about_nodes == (plugin in {case.plugin for case in CASES})
