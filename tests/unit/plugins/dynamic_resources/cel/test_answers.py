"""Kubernetes' libraries of CEL: what ``k8s.io/dynamic-resource-allocation/cel`` 1.36 returns.

``answers.json`` has the result of each expression: true, false, "fails" when the expression
cannot be evaluated for the device, "refused" when it does not compile.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from proreus.plugins.dynamic_resources.cel.expressions import CelError, DeviceView, compile_selector
from proreus.plugins.dynamic_resources.cel.values import quantity, semver

RESULTS = json.loads(Path(__file__).with_name("answers.json").read_text())
DEVICE = DeviceView(
    "gpu.example.com",
    {
        "gpu.example.com": {
            "model": "h100",
            "numa": 1,
            "healthy": True,
            "version": semver("2.1.0"),
            "uri": "https://h:80/a?x=1",
            "addr": "10.0.0.1",
        },
        "vendor.com": {"family": "hopper"},
    },
    {"gpu.example.com": {"memory": quantity("40Gi"), "share": quantity("1500m")}},
    True,
)


def _result(expression: str) -> bool | str:
    selector = compile_selector(expression)
    if selector.error:
        return "refused"
    try:
        return selector.matches(DEVICE)
    except CelError:
        return "fails"


@pytest.mark.parametrize("expression", RESULTS)
def test_the_result_is_that_of_kubernetes(expression: str) -> None:
    expected: Any = RESULTS[expression]
    assert _result(expression) == expected
