from __future__ import annotations

import pytest

from proreus.framework import ConfigError
from proreus.testing import FakeHandle, Harness, make_node, make_plugin, make_pod
from proreus.testing.agreement import agree
from proreus.testing.strategies import inter_pod_clusters

ZONE = "topology.kubernetes.io/zone"


def in_zone(number: int):
    return make_node(f"node-{number}", labels={ZONE: f"zone-{number}"})


def asks_for(partition: str, name: str = "p"):
    return make_pod(name, labels={"example.com/partition": partition})


def test_pods_go_to_the_domains_of_their_partition(plugin, config) -> None:
    cluster = Harness([plugin], [*map(in_zone, (1, 2, 3)), make_node("nowhere")], config=config)
    batch = cluster.schedule(asks_for("batch"))
    assert set(batch.feasible) == {"node-2", "node-3"}
    assert batch.why_not("nowhere") == "Partition: node(s) are not in partition batch"
    assert cluster.schedule(make_pod("without")).feasible == ["node-1"]


def test_an_unknown_partition_is_rejected_at_once(plugin, config) -> None:
    cluster = Harness([plugin], [in_zone(1)], config=config)
    outcome = cluster.schedule(asks_for("bacth"))
    assert 'no partition "bacth"; there are: batch, interactive' in outcome.message
    cluster.patch("Pod", "p", {"metadata": {"labels": {"example.com/partition": "interactive"}}})
    cluster.advance(2)
    assert cluster.schedule("p").bound


def test_only_a_node_of_the_partition_wakes_a_pod(plugin, config) -> None:
    cluster = Harness([plugin], [in_zone(1)], config=config)
    assert not cluster.schedule(asks_for("batch")).bound
    cluster.patch("Node", "node-1", {"metadata": {"labels": {"other": "label"}}})
    assert cluster.queue_of("p") == "unschedulable"
    cluster.patch("Node", "node-1", {"metadata": {"labels": {ZONE: "zone-3"}}})
    cluster.advance(2)
    assert cluster.schedule("p").node == "node-1"


def test_the_default_must_be_a_partition(plugin) -> None:
    wrong = {"partitions": {"a": ["x"]}, "default": "b"}
    with pytest.raises(ConfigError, match='default: Unsupported value: "b": supported values: "a"'):
        make_plugin(plugin, FakeHandle(), wrong)


def test_both_forms_agree(plugin) -> None:
    partitions = {"a": ["1"], "b": ["1", "2"]}
    args = {"topologyKey": "rack", "podLabel": "app", "partitions": partitions}
    agree(plugin, args, drawn_from=inter_pod_clusters(), examples=50)
