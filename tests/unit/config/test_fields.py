"""The values that fields of configuration models accept."""

from __future__ import annotations

from proreus.config.fields import PluginArgs


class Args(PluginArgs):
    parts: dict[str, tuple[str, ...]] = {}
    deep: dict[str, dict[str, tuple[int, ...]]] = {}


def test_lists_in_a_mapping_become_tuples() -> None:
    args = Args.model_validate_json('{"parts": {"a": ["x", "y"]}, "deep": {"a": {"b": [1]}}}')
    assert args == Args(parts={"a": ("x", "y")}, deep={"a": {"b": (1,)}})
