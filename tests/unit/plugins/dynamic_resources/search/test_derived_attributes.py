"""Attributes that requests derive of devices, for constraints (gate DRADerivedAttributes).

``derived_attributes_answers.jsonl.gz`` has results of kube-scheduler 1.37.1 for random clusters.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from conformance import compare
from proreus.base.feature_gates import FeatureGates
from proreus.base.kubernetes_version import V1_36, V1_37
from proreus.engine.runtime.registry import Registry
from proreus.objects.codec import decoder_for
from proreus.objects.devices import Device, DeviceAttribute, DeviceClass
from proreus.objects.meta import ObjectMeta
from proreus.objects.resource_claims import DerivedAttribute, ExactDeviceRequest
from proreus.offline.evaluate import evaluate, read_cases
from proreus.plugins import IN_TREE_PLUGINS
from proreus.plugins.dynamic_resources.cel.attributes import compile_derived_attribute
from proreus.plugins.dynamic_resources.cel.cost import LIMIT_EXCEEDED
from proreus.plugins.dynamic_resources.cel.expressions import CelError
from proreus.plugins.dynamic_resources.devices.kinds import DeviceKind, DeviceKinds
from proreus.plugins.dynamic_resources.features import Features
from proreus.plugins.dynamic_resources.search.allocating_devices import DerivedAttributes
from proreus.plugins.dynamic_resources.search.allocation_error import AllocationError
from proreus.plugins.dynamic_resources.search.alternative import Alternative
from proreus.plugins.dynamic_resources.search.constraints import (
    Constraint,
    DistinctAttribute,
    MatchAttribute,
)

FEATURES = Features(derived_attributes=True)
RESULTS = {
    case["id"]: case
    for case in read_cases(Path(__file__).with_name("derived_attributes_answers.jsonl.gz"))
}
OWN = 'device.attributes["drv.com"]'


def kind(**attributes: dict[str, Any]) -> DeviceKind:
    raw = {"name": "d", "attributes": attributes, "capacity": {"mem": {"value": "8Gi"}}}
    return DeviceKinds(FEATURES).kind_of("drv.com", decoder_for(Device).convert(raw))


SLOTS = {number: kind(slot={"int": number}) for number in range(8)}


def request(features: Features = FEATURES, **derived: str) -> Alternative:
    """Return a request that derives ``drv.com/<name>`` for each name."""
    attributes = tuple(DerivedAttribute(f"drv.com/{name}", text) for name, text in derived.items())
    wanted = ExactDeviceRequest(derived_attributes=attributes)
    return Alternative(0, "r", "r", wanted, DeviceClass(metadata=ObjectMeta(name="c")), features)


def attributes_of(one: Alternative, device: DeviceKind) -> DerivedAttributes:
    return DerivedAttributes(one, device, lambda: None)


@pytest.mark.parametrize("case_id", RESULTS)
def test_claims_are_allocated_as_upstream(case_id: str) -> None:
    case = RESULTS[case_id]
    (result,) = evaluate([case], Registry(IN_TREE_PLUGINS))
    assert not compare.differences(case["expect"], json.loads(json.dumps(result["expect"])))


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (f"{OWN}.slot / 4", DeviceAttribute(int_value=1)),
        (f"{OWN}.slot > 4", DeviceAttribute(bool_value=True)),
        ('device.driver + "/" + string(1)', DeviceAttribute(string_value="drv.com/1")),
        ('semver("1.2.0")', DeviceAttribute(version_value="1.2.0")),
        (
            'device.capacity["drv.com"].mem.compareTo(quantity("1Gi"))',
            DeviceAttribute(int_value=1),
        ),
        (f"[{OWN}.slot, {OWN}.slot + 1]", DeviceAttribute(int_values=(5, 6))),
        ('[semver("1.0.0")]', DeviceAttribute(version_values=("1.0.0",))),
        ("[true]", DeviceAttribute(bool_values=(True,))),
        ("[]", DeviceAttribute(string_values=())),
        ("device.allowMultipleAllocations", DeviceAttribute(bool_value=False)),
    ],
)
def test_results_are_attributes(expression: str, expected: DeviceAttribute) -> None:
    assert compile_derived_attribute(expression).error == ""
    assert SLOTS[5].derive(expression) == expected


@pytest.mark.parametrize(
    ("expression", "error"),
    [
        ("dyn(1.5)", "unsupported CEL return type: float64"),
        ('dyn(device.capacity["drv.com"].mem)', "unsupported CEL return type: *resource.Quantity"),
        ("dyn(optional.of(1))", "unsupported CEL return type"),
        ("dyn([1.5])", "unsupported list element type: float64"),
        ('dyn([dyn(1), dyn("a")])', "expected list element at index 1 to be int, got string"),
        (f"{OWN}.missing", "no such key: missing"),
    ],
)
def test_other_results_are_errors(expression: str, error: str) -> None:
    with pytest.raises(CelError) as raised:
        SLOTS[5].derive(expression)
    assert error in str(raised.value)


@pytest.mark.parametrize(
    ("expression", "spelled"),
    [
        ("1.5", "double"),
        ("[[1]]", "list(list(int))"),
        ('device.capacity["drv.com"].mem', "kubernetes.Quantity"),
        ('{"a": 1}', "map(string, int)"),
        ('duration("1s")', "google.protobuf.Duration"),
    ],
)
def test_other_types_do_not_compile(expression: str, spelled: str) -> None:
    one = request(group=expression)
    with pytest.raises(AllocationError) as raised:
        attributes_of(one, SLOTS[1]).attribute_values("drv.com/group", False)
    assert raised.value.text == (
        "compile derived attribute drv.com/group failed: must evaluate to a primitive scalar "
        f"(string, integer, boolean, semver) or a list of these scalars, not {spelled}"
    )


def accepted(constraint: Constraint, one: Alternative, slots: list[int]) -> list[bool]:
    return [constraint.add("r", "", attributes_of(one, SLOTS[slot])) for slot in slots]


def test_constraints_compare_what_the_request_derives() -> None:
    one = request(group=f"{OWN}.slot / 4")
    assert accepted(MatchAttribute("drv.com/group", ()), one, [5, 3, 7]) == [True, False, True]
    assert accepted(DistinctAttribute("drv.com/group", ()), one, [5, 3, 7]) == [True, True, False]


def test_a_derived_attribute_comes_before_the_devices_own() -> None:
    assert accepted(MatchAttribute("drv.com/slot", ()), request(), [1, 5]) == [True, False]
    one = request(slot=f"{OWN}.slot % 4")
    assert accepted(MatchAttribute("drv.com/slot", ()), one, [1, 5]) == [True, True]


def test_lists_match_with_their_gate_only() -> None:
    one = request(group=f"[{OWN}.slot, {OWN}.slot + 1]")
    assert accepted(MatchAttribute("drv.com/group", (), lists=True), one, [1, 2, 5]) == [
        True,
        True,
        False,
    ]
    # As upstream, without the gate a list is accepted as the first value only.
    assert accepted(MatchAttribute("drv.com/group", ()), one, [1, 1]) == [True, False]
    assert accepted(DistinctAttribute("drv.com/group", ()), one, [1, 5]) == [True, False]


def test_an_error_names_attribute_and_device() -> None:
    one = request(group=f"{OWN}.missing")
    with pytest.raises(AllocationError) as raised:
        attributes_of(one, SLOTS[1]).attribute_values("drv.com/group", True)
    assert raised.value.text == (
        "evaluate derived attribute drv.com/group on device {device} failed: no such key: missing"
    )


def test_an_expression_is_evaluated_once_for_a_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    expression = f"{OWN}.slot * 1000"
    device = kind(slot={"int": 2})
    assert device.derive(expression).int_value == 2000
    monkeypatch.setattr(DeviceKind, "_cel_view", None)
    assert device.derive(expression).int_value == 2000


def test_the_search_may_be_ended_before_an_expression_is_evaluated() -> None:
    class Ended(Exception):
        pass

    def check() -> None:
        raise Ended

    one = request(group=f"{OWN}.slot")
    with pytest.raises(Ended):
        DerivedAttributes(one, SLOTS[1], check).attribute_values("drv.com/group", False)


def test_results_are_limited_in_size() -> None:
    text = '"' + "a" * 700 + '"'
    large = f'{text}.replace("a", "{"b" * 700}")'
    assert len(SLOTS[1].derive(large).string_value or "") == 490_000
    with pytest.raises(CelError, match=LIMIT_EXCEEDED):
        SLOTS[1].derive(f'{large}.replace("b", "{"c" * 700}")')


@pytest.mark.parametrize(("version", "derives"), [(V1_36, False), (V1_37, True)])
def test_the_gate_is_of_1_37(version: Any, derives: bool) -> None:
    gates = FeatureGates.from_list(
        ["DRADerivedAttributes=true"] if derives else [], emulation_version=version
    )
    assert Features.of(gates).derived_attributes is derives
    assert bool(request(Features.of(gates), slot="1").derived) is derives
