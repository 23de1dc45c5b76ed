"""What a share of a device consumes: rounding, format, and amounts that cannot be represented."""

from __future__ import annotations

import pytest

from proreus.base.feature_gates import FeatureGates
from proreus.base.kubernetes_version import V1_36, V1_37
from proreus.objects.devices import CapacityRange, CapacityRequestPolicy, Device, DeviceCapacity
from proreus.plugins.dynamic_resources.devices.capacity import (
    CapacityError,
    consumed_as_written,
    consumed_capacities,
    quantity_text,
)
from proreus.plugins.dynamic_resources.devices.kinds import DeviceKind
from proreus.plugins.dynamic_resources.features import Features

OLD = Features.of(FeatureGates(emulation_version=V1_36))
NEW = Features.of(FeatureGates(emulation_version=V1_37))
FRACTIONAL = Features.of(
    FeatureGates.from_list(["DRAFractionalCapacityRange=true"], emulation_version=V1_37)
)


def capacity(value: str, features: Features = NEW, **policy: object) -> DeviceKind:
    bounds = policy.pop("range", None)
    if bounds:
        policy["valid_range"] = CapacityRange(*bounds)
    request_policy = CapacityRequestPolicy(**policy) if policy else None
    device = Device(name="d", capacity={"c": DeviceCapacity(value, request_policy)})
    return DeviceKind("driver", device, features)


def text(kind: DeviceKind, requested: str | None, features: Features = NEW) -> str:
    return quantity_text(*consumed_as_written(kind.capacity["c"], requested, features))


@pytest.mark.parametrize(
    ("nano", "like", "expected"),
    [
        (3 * 10**18, "1G", "3G"),
        (3 * 10**18, "1", "3G"),
        (3 * 10**18, "1Ki", "3000000000"),
        (3 * 2**30 * 10**9, "1Mi", "3Gi"),
        (3 * 2**30 * 10**9, "1M", "3221225472"),
        (3 * 10**18, "1e3", "3e9"),
        (1500 * 10**6, "1e3", "1500e-3"),
        (1500 * 10**6, "1Ki", "1500m"),
        (1500 * 10**9, "1e3", "1500"),
        (1000 * 10**9, "1Ki", "1k"),
        (1, "1", "1n"),
        (0, "1Gi", "0"),
        (10**9 * 10**18, "1E", "1E"),
    ],
)
def test_quantities_are_written_in_the_format_of_another(nano, like, expected) -> None:
    assert quantity_text(nano, like) == expected


def test_rounded_amounts_have_the_format_of_the_step_since_1_37() -> None:
    kind = capacity("40G", range=("1G", None, "1G"))
    assert text(kind, "2500M") == "3G"
    assert text(kind, "2500M", OLD) == "3000000000"
    kind = capacity("40Gi", range=("1Gi", None, "1Gi"))
    assert text(kind, "2500Mi") == text(kind, "2500Mi", OLD) == "3Gi"


@pytest.mark.parametrize("features", [OLD, NEW])
def test_other_amounts_have_the_format_of_where_they_are_from(features) -> None:
    kind = capacity("40Gi", range=("1Gi", None, None), default="8G")
    assert text(kind, None, features) == "8G"
    assert text(kind, "1", features) == "1Gi"
    assert text(kind, "3G", features) == "3G"
    assert text(capacity("40Gi"), None, features) == "40Gi"
    assert text(capacity("40Gi"), "3G", features) == "3G"
    kind = capacity("40Gi", valid_values=("1Gi", "2G"))
    assert text(kind, "1500M", features) == "2G"
    assert text(kind, "1M", features) == "1Gi"
    assert text(kind, "3G", features) == "3G"


def fault(kind: DeviceKind, requested: str, features: Features = NEW) -> str:
    with pytest.raises(CapacityError) as raised:
        consumed_capacities(kind, {"c": requested}, features)
    return str(raised.value)


NOT = 'capacity "c": capacity request cannot be represented in the device\'s range arithmetic: '


def test_amounts_that_int64_cannot_hold_end_the_attempt_since_1_37() -> None:
    kind = capacity("8E", range=("1", None, "5E"))
    assert fault(kind, "7E") == (NOT + "rounding request 7E up to the next step passes MaxInt64")
    assert consumed_capacities(kind, {"c": "7E"}, OLD) is None
    assert fault(capacity("-1"), "-1") == 'capacity "c": capacity value is negative'


def test_fractional_ranges() -> None:
    kind = capacity("2", range=("100m", "2", "250m"))
    assert text(kind, "300m", FRACTIONAL) == "350m"
    assert text(kind, "1", FRACTIONAL) == "1100m"
    assert text(capacity("2", range=("500m", None, "500m")), "700m", FRACTIONAL) == "1"
    assert consumed_capacities(kind, {"c": "300m"}, FRACTIONAL) == {"c": 350 * 10**6}
    assert consumed_capacities(kind, {"c": "1900m"}, FRACTIONAL) is None  # 2100m: above max
    # Without the gate, steps are whole units: 250m is a step of 1.
    assert text(kind, "1200m") == "2"
    # Amounts of less than a milli-unit: whole units again.
    tiny = capacity("2", range=("100u", "2", "1"))
    assert text(tiny, "1500m", FRACTIONAL) == text(tiny, "1500m") == "2"


def test_amounts_that_milli_units_cannot_hold() -> None:
    kind = capacity("2", range=("100m", None, "250m"))
    assert fault(kind, "100500u", FRACTIONAL) == (
        NOT + "request 100500u is not a representable milli value"
    )
    assert fault(kind, "1E", FRACTIONAL) == (NOT + "request 1E is not a representable milli value")
    assert fault(kind, "9223372036854775807m", FRACTIONAL) == (
        NOT + "rounding request 9223372036854775807m up to the next step passes the "
        "milli-value range"
    )


def test_the_gate_of_fractional_ranges() -> None:
    assert not NEW.fractional_capacity_range
    newest = FeatureGates(emulation_version=V1_37, min_compatibility=V1_37)
    assert Features.of(newest).fractional_capacity_range
    assert not OLD.fractional_capacity_range
