"""BusinessWeight: whose weights count for a pod, and the table between business and pool."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from proreus.addons.business_weight import BusinessWeight
from proreus.framework import ConfigError
from proreus.testing import FakeHandle, Harness, make_node, make_plugin, make_pod

WEIGHTS = {
    "payments": {"gold": 100, "silver": 40},
    "reports": {"bronze": 90, "": 7},
}


def cluster_of(**args: Any) -> Harness:
    pools = ("gold", "silver", "bronze")
    nodes = [make_node(pool, labels={"proreus.dev/pool": pool}) for pool in pools]
    bank = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": "bank", "labels": {"business": "payments"}},
    }
    return Harness(
        [BusinessWeight],
        [*nodes, make_node("bare")],
        [bank],
        args={"BusinessWeight": {"weights": WEIGHTS, **args}},
        weights={"BusinessWeight": 5},
    )


def scores_of(cluster: Harness, business: str = "", namespace: str = "default") -> dict[str, int]:
    labels = {"proreus.dev/business": business} if business else {}
    outcome = cluster.schedule(make_pod("p", "1", labels=labels, namespace=namespace))
    if "BusinessWeight" not in next(iter(outcome.scores.values())):
        return {}
    return {node: outcome.score(node, "BusinessWeight") // 5 for node in outcome.feasible}


def test_each_business_has_its_preferences() -> None:
    expected = {"gold": 100, "silver": 40, "bronze": 0, "bare": 0}
    assert scores_of(cluster_of(), "payments") == expected
    assert scores_of(cluster_of(), "reports") == {"gold": 0, "silver": 0, "bronze": 90, "bare": 7}


@pytest.mark.parametrize("business", ["", "unheard-of"])
def test_others_have_none(business: str) -> None:
    assert scores_of(cluster_of(), business) == {}


def test_a_namespace_may_name_the_business_of_its_pods() -> None:
    cluster = cluster_of(namespaceLabel="business")
    assert scores_of(cluster, namespace="bank")["gold"] == 100
    assert scores_of(cluster_of(namespaceLabel="business"), "reports", "bank")["bronze"] == 90
    assert scores_of(cluster_of(), namespace="bank") == {}


def test_the_default_is_for_pods_without_a_business() -> None:
    assert scores_of(cluster_of(defaultBusiness="reports"))["bronze"] == 90
    assert scores_of(cluster_of(defaultBusiness="reports"), "unheard-of") == {}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"weights": {"a": {"gold": 101}}}, r"(?s)weights\.a\.gold.* less than or equal to 100"),
        ({"defaultBusiness": "b"}, r"defaultBusiness: Invalid value: \"b\": must be in weights"),
    ],
)
def test_arguments_are_checked(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises((ConfigError, ValidationError), match=message):
        make_plugin(BusinessWeight, FakeHandle(), wrong)
