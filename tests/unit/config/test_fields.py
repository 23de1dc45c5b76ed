"""The values that fields of configuration models accept, and arguments that extend others."""

from __future__ import annotations

import gc
import weakref
from typing import Literal

import pytest
from pydantic import Field

from proreus.base.errors import ConfigError
from proreus.base.feature_gates import FeatureGates
from proreus.config.arg_fields import describe_args
from proreus.config.fields import PluginArgs
from proreus.config.model_decoding import decode_model
from proreus.plugins.default_preemption import DefaultPreemptionArgs


class Args(PluginArgs):
    parts: dict[str, tuple[str, ...]] = {}
    deep: dict[str, dict[str, tuple[int, ...]]] = {}


def test_lists_in_a_mapping_become_tuples() -> None:
    args = Args.model_validate_json('{"parts": {"a": ["x", "y"]}, "deep": {"a": {"b": [1]}}}')
    assert args == Args(parts={"a": ("x", "y")}, deep={"a": {"b": (1,)}})


class Extended(DefaultPreemptionArgs):
    mode: Literal["fast", "slow"]
    tries: int = Field(3, ge=1, lt=10)
    limit: int | str | None = None


def test_fields_are_added():
    args, unknown = decode_model(
        Extended, {"mode": "fast", "minCandidateNodesAbsolute": 5}, FeatureGates()
    )
    assert args == Extended(mode="fast", min_candidate_nodes_absolute=5)
    assert unknown == ()


@pytest.mark.parametrize("limit", [3, "3", None])
def test_an_added_field_may_have_several_types(limit):
    args, _ = decode_model(Extended, {"mode": "fast", "limit": limit}, FeatureGates())
    assert args.limit == limit


def test_a_class_that_a_reload_replaced_is_forgotten():
    class Reloaded(DefaultPreemptionArgs):
        pass

    decode_model(Reloaded, {}, FeatureGates())
    forgotten = weakref.ref(Reloaded)
    del Reloaded
    gc.collect()
    assert forgotten() is None


@pytest.mark.parametrize(
    ("fields", "problems"),
    [
        ({}, ["mode: Required value"]),
        ({"mode": "idle"}, ["mode: Input should be 'fast' or 'slow'"]),
        ({"mode": "fast", "tries": 0}, ["tries: Invalid value: 0: must be >= 1"]),
        ({"mode": "fast", "tries": 10}, ["tries: Invalid value: 10: must be < 10"]),
        (
            {"tries": "x", "minCandidateNodesAbsolute": True},
            [
                "tries: Input should be a valid integer",
                "json: cannot unmarshal bool into Go struct field "
                "DefaultPreemptionArgs.minCandidateNodesAbsolute of type int32",
                "mode: Required value",
            ],
        ),
    ],
)
def test_wrong_values_of_added_fields_are_refused(fields, problems):
    with pytest.raises(ConfigError) as caught:
        decode_model(Extended, fields, FeatureGates())
    assert list(caught.value.problems) == problems


def test_added_fields_are_described():
    assert describe_args(Extended).endswith(
        "has the fields minCandidateNodesPercentage: integer = 10, minCandidateNodesAbsolute: "
        "integer = 100, mode: fast or slow required, tries: integer = 3, "
        "limit: integer or string or null = null"
    )
