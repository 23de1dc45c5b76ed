"""How a write is recognized in the object."""

import pytest

from proreus.client.writing.checked_writes import has_desired_state


@pytest.mark.parametrize(
    ("wanted", "found", "there"),
    [
        ({"a": 1}, {"a": 1, "b": 2}, True),
        ({"a": 1}, {"a": 2}, False),
        ({"a": 1}, {}, False),
        ({"a": None}, {}, True),
        ({"a": None}, {"a": ""}, True),
        ({"a": None}, {"a": "n1"}, False),
        ({"a": ""}, {}, True),
        ({"a": {"b": {}}}, {}, False),
        ({"a": {}}, {}, True),
        ({"$setElementOrder/c": [{"type": "x"}], "c": []}, {"c": [1]}, True),
        ([{"type": "x", "s": 1}], [{"type": "y"}, {"type": "x", "s": 1, "z": 0}], True),
        ([{"type": "x", "s": 1}], [{"type": "x", "s": 2}], False),
        ([{"name": "c", "i": 1}], [{"name": "c", "i": 1, "d": 2}], True),
        (["a", "b"], ["b", "a"], True),
        (["a"], None, False),
        ({"a": 1}, "text", False),
        ({"metadata": {"resourceVersion": "7"}}, {"metadata": {"resourceVersion": "8"}}, True),
        ({"metadata": {"resourceVersion": "7", "uid": "u"}}, {"metadata": {"uid": "v"}}, False),
        ({"ref": {"resourceVersion": "7"}}, {"ref": {"resourceVersion": "8"}}, False),
    ],
)
def test_has_desired_state(wanted, found, there):
    assert has_desired_state(wanted, found) is there
