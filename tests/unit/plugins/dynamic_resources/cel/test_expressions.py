"""Device selectors: what Kubernetes' CEL environment has, and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest

from proreus.plugins.dynamic_resources.cel.cost import LIMIT_EXCEEDED
from proreus.plugins.dynamic_resources.cel.expressions import CelError, DeviceView, compile_selector
from proreus.plugins.dynamic_resources.cel.values import quantity, semver

DEVICE = DeviceView(
    "gpu.example.com",
    {
        "gpu.example.com": {
            "model": "h100",
            "numa": 1,
            "healthy": True,
            "version": semver("2.1.0+build"),
        },
        "vendor.com": {"family": "hopper"},
    },
    {"gpu.example.com": {"memory": quantity("40Gi")}},
    True,
)
OWN = 'device.attributes["gpu.example.com"]'
MEMORY = 'device.capacity["gpu.example.com"].memory'


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ('device.driver == "gpu.example.com"', True),
        ("device.allowMultipleAllocations", True),
        (f"{OWN}.healthy", True),
        (f"{OWN}.numa in [0, 2]", False),
        (f'{OWN}.model.startsWith("h") && {OWN}.model.matches("^h[0-9]+$")', True),
        (f"{OWN}.numa == '1'", False),
        (f"{OWN}.numa < 1.5", True),
        ("1 < 1.5", True),
        # absent things
        ('"vendor.com" in device.attributes', True),
        ('"other.com" in device.attributes', False),
        ('has(device.attributes["other.com"].x)', False),
        (f"has({OWN}.missing)", False),
        (f"{OWN}.?missing.orValue(7) == 7", True),
        ('device.attributes["other.com"].?x.hasValue()', False),
        (f'{OWN}.missing == 1 || device.driver == "gpu.example.com"', True),
        (f'cel.bind(own, {OWN}, own.model == "h100" && own.numa == 1)', True),
        ("cel.bind(d, device, d.driver.endsWith('.com'))", True),
        # quantities
        (f'{MEMORY}.compareTo(quantity("40960Mi")) == 0', True),
        (f'{MEMORY} == quantity("40Gi")', True),
        (f'{MEMORY}.isGreaterThan(quantity("40G"))', True),
        (f'{MEMORY}.sub(quantity("39Gi")).asInteger() == 1073741824', True),
        (f"{MEMORY}.add(1).isLessThan({MEMORY})", False),
        ('quantity("1500m").isInteger()', False),
        ('sign(quantity("-1")) == -1', True),
        ('quantity("1500m").asApproximateFloat() == 1.5', True),
        ('isQuantity("1.5Gi") && !isQuantity("1.5GB")', True),
        # versions
        (f'{OWN}.version.isGreaterThan(semver("2.1.0-rc.1"))', True),
        (f'{OWN}.version == semver("2.1.0")', True),
        (f'{OWN}.version.compareTo(semver("2.10.0")) == -1', True),
        (f"{OWN}.version.major() == 2 && {OWN}.version.minor() == 1", True),
        ('semver("1.0.0-alpha.2").isLessThan(semver("1.0.0-alpha.10"))', True),
        ('semver("1.0.0-1").isLessThan(semver("1.0.0-a"))', True),
        ('semver("1.0.0-a").isLessThan(semver("1.0.0-a.b"))', True),
        ('semver("v1.02", true).patch() == 0', True),
        ('isSemver("v1.0.0")', False),
        ('isSemver("v1.0", true)', True),
        # other libraries
        ('"a-b".find("[a-z]$") == "b"', True),
        ('"a1b22".findAll("[0-9]+") == ["1", "22"]', True),
        ("[1, 3, 2].max() == 3 && [1, 2].isSorted() && [1, 2].sum() == 3", True),
        ('sets.contains(["a", "b"], ["a"]) && sets.intersects([1], [1, 2])', True),
        ("'A'.lowerAscii() == 'a' && 'a,b'.split(',').size() == 2", True),
        (f'{OWN}.exists(name, name == "numa")', True),
        (f'{OWN}.model.includes({OWN}.model) && !{OWN}.model.includes("none")', True),
        (f'{OWN}.numa.includes("0") || {OWN}.numa.includes(true)', False),
        ('["a", "b"].includes("b") && ![1].includes(2) && [1].includes(1.0)', True),
        (f'{OWN}.version.includes(semver("2.1.0"))', True),
    ],
)
def test_matches(expression: str, expected: bool) -> None:
    selector = compile_selector(expression)
    assert not selector.error
    assert selector.matches(DEVICE) is expected


@pytest.mark.parametrize(
    "expression",
    [
        "1",
        '"text"',
        "device.other",
        "device.driver == 1",
        f"{MEMORY} > 3",
        f'{MEMORY}.isGreaterThan(semver("1.0.0"))',
        'quantity("1") == semver("1.0.0")',
        "device.driver ==",
        "unknown(1)",
    ],
)
def test_refused_when_compiled(expression: str) -> None:
    assert compile_selector(expression).error


@pytest.mark.parametrize(
    ("expression", "kind"), [("device.driver", "string"), ("1", "int"), ("2.5", "double")]
)
def test_an_expression_of_another_type_is_refused_in_kube_schedulers_words(
    expression: str, kind: str
) -> None:
    expected = f"must evaluate to bool or the unknown type, not {kind}"
    assert compile_selector(expression).error == expected


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        (f"{OWN}.missing == 1", "no such key: missing"),
        (f"{OWN}.model", "expected bool"),
        (f'{OWN}.model.isGreaterThan(semver("1.0.0"))', "No matching overloads"),
        (f"{OWN}.version.isGreaterThan({MEMORY})", "no such overload"),
        ('quantity("x").isInteger()', "quantities must match"),
        ("1 / 0 == 1", "divide by zero"),
    ],
)
def test_fails_at_the_device(expression: str, text: str) -> None:
    selector = compile_selector(expression)
    assert not selector.error
    with pytest.raises(CelError, match=text):
        selector.matches(DEVICE)


@pytest.mark.parametrize(("length", "text"), [(25, "budget"), (100, LIMIT_EXCEEDED)])
def test_an_expression_cannot_run_for_long(length: int, text: str) -> None:
    numbers = str(list(range(length)))
    nested = f"{numbers}.all(a, {numbers}.all(b, {numbers}.all(c, a + b + c >= 0)))"
    with pytest.raises(CelError, match=text):
        compile_selector(nested).matches(DEVICE)


def test_expressions_are_taken_as_stored_ones_whatever_gates_are_on(cluster: Any) -> None:
    """kube-scheduler compiles them as an API server does that has accepted them before."""
    devices = cluster("n1", gates=["DRAConsumableCapacity=false"])
    devices.device_class("gpu", "!device.allowMultipleAllocations")
    devices.slice("a")
    devices.claim("x")
    assert devices.filter(devices.pod("x")) == {}
