from __future__ import annotations

import pytest

from proreus.framework import ConfigError
from proreus.testing import FakeHandle, Harness, make_node, make_plugin, make_pod
from proreus.testing.agreement import agree
from proreus.testing.strategies import inter_pod_clusters


def test_each_business_has_its_preferences(plugin, config) -> None:
    nodes = [make_node(pool, labels={"example.com/pool": pool}) for pool in ("gold", "bronze")]
    cluster = Harness([plugin], [*nodes, make_node("bare")], config=config)
    payments = cluster.schedule(make_pod("pay", labels={"example.com/business": "payments"}))
    reports = cluster.schedule(make_pod("rep", labels={"example.com/business": "reports"}))
    assert [payments.node, reports.node] == ["gold", "bronze"]
    scores = {node: payments.score(node, "BusinessWeight") for node in payments.feasible}
    assert scores == {"gold": 500, "bronze": 0, "bare": 0}
    other = cluster.schedule(make_pod("other", labels={"example.com/business": "unheard-of"}))
    assert all("BusinessWeight" not in added for added in other.scores.values())


def test_a_weight_out_of_range_is_refused_by_its_path(plugin) -> None:
    wrong = {"weights": {"payments": {"gold": 101}}}
    with pytest.raises(ConfigError, match=r"weights\.payments\.gold: Invalid value: 101: must be"):
        make_plugin(plugin, FakeHandle(), wrong)


@pytest.mark.parametrize("unlabelled", [{}, {"": 7}])
def test_both_forms_agree(plugin, unlabelled) -> None:
    weights = {"a": {"1": 10, "2": 90, **unlabelled}, "b": {"1": 70}}
    args = {"podLabel": "app", "nodeLabel": "rack", "weights": weights}
    agree(plugin, args, drawn_from=inter_pod_clusters(), examples=50)
