"""Arguments of in-tree plugins that a plugin of somebody else extends."""

from __future__ import annotations

import gc
import weakref
from typing import Literal

import pytest

from proreus.base.errors import ConfigError
from proreus.config.arg_fields import describe_args
from proreus.config.decoding import decode_fields
from proreus.plugins.default_preemption import DefaultPreemptionArgs


class Extended(DefaultPreemptionArgs, kw_only=True):
    mode: Literal["fast", "slow"]
    tries: int = 3
    limit: int | str | None = None


def test_fields_are_added():
    args, unknown = decode_fields(Extended, {"mode": "fast", "minCandidateNodesAbsolute": 5})
    assert args == Extended(mode="fast", min_candidate_nodes_absolute=5)
    assert unknown == ()


@pytest.mark.parametrize("limit", [3, "3", None])
def test_an_added_field_may_have_several_types(limit):
    args, _ = decode_fields(Extended, {"mode": "fast", "limit": limit})
    assert args.limit == limit


def test_a_class_that_a_reload_replaced_is_forgotten():
    class Reloaded(DefaultPreemptionArgs):
        pass

    decode_fields(Reloaded, {})
    forgotten = weakref.ref(Reloaded)
    del Reloaded
    gc.collect()
    assert forgotten() is None


@pytest.mark.parametrize(
    ("fields", "problems"),
    [
        ({}, ["mode: Required value"]),
        ({"mode": "idle"}, ["mode: Invalid enum value 'idle'"]),
        (
            {"tries": "x", "minCandidateNodesAbsolute": True},
            [
                "tries: Expected `int`, got `str`",
                "json: cannot unmarshal bool into Go struct field "
                "DefaultPreemptionArgs.minCandidateNodesAbsolute of type int32",
                "mode: Required value",
            ],
        ),
    ],
)
def test_wrong_values_of_added_fields_are_refused(fields, problems):
    with pytest.raises(ConfigError) as caught:
        decode_fields(Extended, fields)
    assert list(caught.value.problems) == problems


def test_added_fields_are_described():
    assert describe_args(Extended).endswith(
        "has the fields minCandidateNodesPercentage: integer = 10, minCandidateNodesAbsolute: "
        "integer = 100, mode: fast or slow required, tries: integer = 3, "
        "limit: integer or string or null = null"
    )
