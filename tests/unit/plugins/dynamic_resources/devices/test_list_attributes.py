"""Constraints over attributes that are lists (gate DRAListTypeAttributes)."""

from __future__ import annotations

from typing import Any

import pytest

from proreus.objects.codec import decoder_for
from proreus.objects.devices import Device
from proreus.objects.resource_claims import DeviceConstraint
from proreus.plugins.dynamic_resources.devices.kinds import DeviceKind, DeviceKinds
from proreus.plugins.dynamic_resources.features import Features
from proreus.plugins.dynamic_resources.search.constraints import (
    DistinctAttribute,
    DistinctAttributeOf136,
    MatchAttribute,
)
from proreus.plugins.dynamic_resources.search.prepared_claims import PreparedClaim

KINDS = DeviceKinds(Features(list_attributes=True))


def kind(attribute: dict[str, Any] | None, name: str = "x.com/m") -> DeviceKind:
    attributes = {} if attribute is None else {name: attribute}
    raw = {"name": "d", "attributes": attributes}
    return KINDS.kind_of("drv.com", decoder_for(Device).convert(raw))


A, B, AB, BC = ({"strings": list(values)} for values in ("a", "b", "ab", "bc"))


@pytest.mark.parametrize(
    ("attributes", "accepted"),
    [
        ([AB, BC, B], [True, True, True]),
        ([AB, A, BC], [True, True, False]),
        ([AB, {"string": "a"}, {"string": "b"}], [True, True, False]),
        ([{"ints": [1]}, {"int": 1}, {"strings": ["1"]}], [True, True, False]),
        ([{"strings": []}, None, {"bools": [True]}], [False, False, True]),
        ([{"versions": ["1.0.0", "2.0.0"]}, {"version": "2.0.0"}], [True, True]),
    ],
)
def test_devices_match_that_have_a_value_in_common(
    attributes: list[dict[str, Any] | None], accepted: list[bool]
) -> None:
    constraint = MatchAttribute("x.com/m", (), lists=True)
    assert [constraint.add("r", "", kind(one)) for one in attributes] == accepted


def test_a_removed_device_leaves_the_common_values_as_before() -> None:
    constraint = MatchAttribute("x.com/m", ("r",), lists=True)
    assert constraint.add("r", "", kind(AB))
    assert constraint.add("r", "", kind(A))
    constraint.remove("r", "")
    assert constraint.add("r", "", kind(B))
    constraint.remove("r", "")
    constraint.remove("r", "")
    assert constraint.add("r", "", kind({"int": 1}))
    assert constraint.add("another", "", kind(None))
    constraint.remove("another", "")
    assert not constraint.add("r", "", kind(A))


def test_distinct_devices_share_no_value() -> None:
    constraint = DistinctAttribute("drv.com/m", (), lists=True)
    bare = "m"  # the driver's own name for it
    assert constraint.add("r", "", kind(A, bare))
    assert not constraint.add("r", "", kind(AB, bare))
    assert not constraint.add("r", "", kind(None))
    assert constraint.add("r", "", kind(BC, bare))
    assert not constraint.add("r", "", kind({"string": "c"}, bare))
    constraint.remove("r", "")
    assert constraint.add("r", "", kind({"string": "c"}, bare))


def test_in_1_36_a_list_is_distinct_from_nothing_but_may_come_first() -> None:
    constraint = DistinctAttributeOf136("x.com/m", ())
    kinds = DeviceKinds(Features())
    raw = {"name": "d", "attributes": {"x.com/m": AB}}
    listed = kinds.kind_of("drv.com", decoder_for(Device).convert(raw))
    assert constraint.add("r", "", listed)
    assert not constraint.add("s", "", listed)
    constraint.remove("r", "")
    assert constraint.add("s", "", listed)


@pytest.mark.parametrize(
    ("features", "match", "distinct"),
    [
        (Features(), [True, False], [True, False]),
        (Features(list_attributes=True), [True, True], [True, False]),
        (Features(list_attributes=True, allocator_of_1_37=False), [True, False], [True, False]),
    ],
)
def test_lists_count_with_the_gate_and_the_allocator_of_1_37(
    features: Features, match: list[bool], distinct: list[bool]
) -> None:
    for written, accepted in (
        (DeviceConstraint(match_attribute="x.com/m"), match),
        (DeviceConstraint(distinct_attribute="x.com/m"), distinct),
    ):
        [made] = PreparedClaim((), (), (), (written,)).new_constraints(features)
        assert [made.add("r", "", kind(AB)) for _ in accepted] == accepted
