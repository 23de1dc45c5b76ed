"""Small claims, classes, slices and taint rules that an apiserver stores, with odd values."""

from __future__ import annotations

import random
from typing import Any

from hostile.odd_json import odd_json

from hostile_run.odd_values import CLASS, DRIVER, INT64, KEYS, QUANTITIES, VALUES, node_term

Json = dict[str, Any]

_EXPRESSIONS = [
    "true",
    "1/0 == 1",
    f'device.driver == "{DRIVER}"',
    f'device.attributes["{DRIVER}"].gone == 1',
    f'device.attributes["{DRIVER}"].number > -9223372036854775807',
    f'device.capacity["{DRIVER}"].memory.isGreaterThan(quantity("1Ei"))',
    '"\\u0000".size() == 1',
    "[1, 2, 3].all(x, [1, 2, 3].all(y, x + y < 9223372036854775807))",
    f'"{"a" * 700}".replace("a", "{"b" * 700}").size() > 3',
    '"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa".matches("(a+)+$")',
]


def _selectors(rng: random.Random) -> list[Json]:
    return [{"cel": {"expression": rng.choice(_EXPRESSIONS)}} for _ in range(rng.randrange(4))]


def _device_config(rng: random.Random) -> list[Json]:
    parameters = {"a": odd_json(rng)}
    return [
        {"opaque": {"driver": DRIVER, "parameters": parameters}} for _ in range(rng.randrange(3))
    ]


def resource_claim(rng: random.Random, _number: int) -> Json:
    """Return a claim for up to 32 devices, or alternatives."""

    def exactly() -> Json:
        mode = rng.choice([{"allocationMode": "All"}, {"count": rng.choice([1, 2, 32])}])
        return {
            "deviceClassName": rng.choice([CLASS, "gone"]),
            "selectors": _selectors(rng),
            **mode,
        }

    names = [f"r{n}" for n in range(rng.choice([1, 1, 2, 15, 32]))]
    requests: list[Json] = [
        {"name": name, "exactly": exactly()}
        if rng.random() < 0.8
        else {"name": name, "firstAvailable": [{"name": f"s{n}", **exactly()} for n in range(8)]}
        for name in names
    ]
    attribute = f"{DRIVER}/{rng.choice(['side', 'number', 'gone'])}"
    constraint = {rng.choice(["matchAttribute", "distinctAttribute"]): attribute}
    devices = {"requests": requests, "config": _device_config(rng)}
    if rng.random() < 0.5:
        devices["constraints"] = [constraint]
    return {"spec": {"devices": devices}}


def device_class(rng: random.Random, _number: int) -> Json:
    """Return a device class."""
    return {"spec": {"selectors": _selectors(rng), "config": _device_config(rng)}}


def resource_slice(rng: random.Random, number: int) -> Json:
    """Return a slice of up to 128 devices."""
    where: Json = rng.choice(
        [
            {"allNodes": True},
            {"nodeName": "gone"},
            {"nodeSelector": {"nodeSelectorTerms": [node_term(rng)]}},
        ]
    )
    attributes = [
        {"int": -(2**63)},
        {"int": INT64},
        {"bool": False},
        {"string": "\u0000"},
        {"string": ""},
        {"version": "1.0.0-a+b"},
    ]
    devices = [
        {
            "name": f"d{n}",
            "attributes": {f"a{i}": rng.choice(attributes) for i in range(rng.choice([0, 9, 25]))},
            "capacity": {"memory": {"value": rng.choice(QUANTITIES)}},
        }
        for n in range(rng.choice([0, 1, 8, 128]))
    ]
    pool = {
        "name": f"pool-{number}",
        "generation": rng.choice([1, INT64]),
        "resourceSliceCount": rng.choice([1, INT64]),
    }
    return {
        "spec": {
            "driver": rng.choice([DRIVER, "other.example.com"]),
            "pool": pool,
            **where,
            "devices": devices,
        }
    }


def device_taint_rule(rng: random.Random, _number: int) -> Json:
    """Return a rule that applies to no device."""
    # A rule for all devices would be no odd object, but an order to leave them alone.
    selector = {"pool": "gone"}
    if rng.random() < 0.7:
        selector |= rng.choice([{"driver": "none.example.com"}, {"device": "d0"}])
    effect = rng.choice(["NoSchedule", "NoExecute", "None"])
    taint = {"key": rng.choice(KEYS), "value": rng.choice(VALUES), "effect": effect}
    return {"spec": {"deviceSelector": selector, "taint": taint}}
