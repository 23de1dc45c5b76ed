from typing import Any

import pytest

from proreus.workbench.sandbox.api_errors import StatusError
from proreus.workbench.sandbox.patch import (
    JSON_PATCH,
    STRATEGIC_MERGE_PATCH,
    apply_json_patch,
    apply_patch,
    merge_strategically,
)


def test_conditions_are_merged_by_type() -> None:
    ready = {"type": "Ready", "status": "True", "message": "m"}
    old = {"status": {"conditions": [ready]}}
    patch = {
        "status": {
            "$setElementOrder/conditions": [{"type": "Ready"}, {"type": "PodScheduled"}],
            "conditions": [
                {"type": "Ready", "status": "False", "message": None},
                {"type": "PodScheduled", "status": "True", "lastProbeTime": None},
            ],
        }
    }
    assert merge_strategically(old, patch) == {
        "status": {
            "conditions": [
                {"type": "Ready", "status": "False"},
                {"type": "PodScheduled", "status": "True"},
            ]
        }
    }
    assert ready["status"] == "True"


def test_list_items_are_deleted_and_lists_replaced() -> None:
    old = {"spec": {"containers": [{"name": "a"}, {"name": "b"}], "tolerations": [{"key": "x"}]}}
    patch: dict[str, Any] = {
        "spec": {
            "containers": [{"name": "a", "$patch": "delete"}, {"name": "c"}],
            "tolerations": [{"key": "y"}],
        }
    }
    assert merge_strategically(old, patch) == {
        "spec": {"containers": [{"name": "b"}, {"name": "c"}], "tolerations": [{"key": "y"}]}
    }
    patch = {"spec": {"containers": [{"$patch": "replace"}, {"name": "z"}]}}
    assert merge_strategically(old, patch)["spec"]["containers"] == [{"name": "z"}]


def test_maps_can_be_replaced_or_emptied() -> None:
    old = {"metadata": {"labels": {"a": "1", "b": "2"}, "finalizers": ["x", "y"]}}
    patch = {
        "metadata": {
            "labels": {"$patch": "replace", "c": "3"},
            "$deleteFromPrimitiveList/finalizers": ["x"],
        }
    }
    assert merge_strategically(old, patch) == {
        "metadata": {"labels": {"c": "3"}, "finalizers": ["y"]}
    }


def test_an_item_without_its_merge_key_is_rejected() -> None:
    with pytest.raises(StatusError, match="does not contain declared merge key: name"):
        merge_strategically({}, {"containers": [{"image": "i"}]})


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        ({"op": "add", "path": "/l/1", "value": 9}, {"l": [1, 9, 2], "m": {"a": 1}}),
        ({"op": "add", "path": "/l/-", "value": 9}, {"l": [1, 2, 9], "m": {"a": 1}}),
        ({"op": "replace", "path": "/m/a", "value": 9}, {"l": [1, 2], "m": {"a": 9}}),
        ({"op": "remove", "path": "/l/0"}, {"l": [2], "m": {"a": 1}}),
        ({"op": "move", "from": "/m/a", "path": "/m/b"}, {"l": [1, 2], "m": {"b": 1}}),
        ({"op": "copy", "from": "/l", "path": "/m/l"}, {"l": [1, 2], "m": {"a": 1, "l": [1, 2]}}),
        ({"op": "test", "path": "/m/a", "value": 1}, {"l": [1, 2], "m": {"a": 1}}),
    ],
)
def test_json_patch_is_rfc_6902(step: dict[str, Any], expected: dict[str, Any]) -> None:
    old = {"l": [1, 2], "m": {"a": 1}}
    assert apply_json_patch(old, [step]) == expected
    assert old == {"l": [1, 2], "m": {"a": 1}}


@pytest.mark.parametrize(
    "step",
    [
        {"op": "replace", "path": "/none", "value": 1},
        {"op": "remove", "path": "/none"},
        {"op": "test", "path": "/a", "value": 2},
        {"op": "add", "path": "/l/5", "value": 1},
        {"op": "frob", "path": "/a"},
        {"path": "/a"},
        {"op": "add", "path": "a", "value": 1},
    ],
)
def test_a_json_patch_that_cannot_be_applied_is_rejected(step: dict[str, Any]) -> None:
    with pytest.raises(StatusError) as refused:
        apply_json_patch({"a": 1, "l": []}, [step])
    assert refused.value.code == 422


@pytest.mark.parametrize(
    ("content_type", "patch", "code"),
    [("text/plain", {}, 415), (STRATEGIC_MERGE_PATCH, [], 400), (JSON_PATCH, {}, 400)],
)
def test_patches_of_the_wrong_kind(content_type: str, patch: Any, code: int) -> None:
    with pytest.raises(StatusError) as refused:
        apply_patch(content_type, {}, patch, custom=False)
    assert refused.value.code == code
