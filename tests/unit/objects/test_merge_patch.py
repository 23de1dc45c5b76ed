"""JSON merge patches."""

from __future__ import annotations

from proreus.objects.merge_patch import merge_patch


def test_objects_merge_null_removes_and_lists_are_replaced() -> None:
    old = {"a": "b", "c": {"d": "e", "f": "g"}, "l": [1, 2]}
    patch = {"a": "z", "c": {"f": None, "h": {"i": None, "j": 1}}, "l": [3]}
    assert merge_patch(old, patch) == {"a": "z", "c": {"d": "e", "h": {"j": 1}}, "l": [3]}
    assert old["c"] == {"d": "e", "f": "g"}


def test_values_other_than_objects_are_replaced() -> None:
    assert merge_patch({"a": 1}, [1]) == [1]
    assert merge_patch({"a": 1}, {"a": {"b": 2, "c": None}}) == {"a": {"b": 2}}
