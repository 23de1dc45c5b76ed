from __future__ import annotations

import pytest

from proreus.framework import ConfigError
from proreus.testing import FakeHandle, Harness, make_node, make_plugin, make_pod

GPU = {"nvidia.com/gpu": 4}
REASON = "node(s) are kept for pods that ask for a GPU"


def test_plain_pods_stay_off_and_gpu_pods_may_come(plugin, config) -> None:
    nodes = [
        make_node("labelled", labels={"accelerator": "h100"}, resources=GPU),
        make_node("gpu-7", resources=GPU),
        make_node("plain"),
    ]
    cluster = Harness([plugin], nodes, config=config)
    web = cluster.schedule(make_pod("web", cpu="1"))
    assert web.node == "plain"
    for node in ("labelled", "gpu-7"):
        assert web.why_not(node) == f"AvoidGpuNodes: {REASON}"
    train = cluster.schedule(make_pod("train", resources={"nvidia.com/gpu": 1}))
    assert train.node in ("labelled", "gpu-7")


def test_a_rejected_pod_waits_for_a_plain_node(plugin, config) -> None:
    cluster = Harness([plugin], [make_node("gpu-0")], config=config)
    web = make_pod("web")
    message = cluster.schedule(web).message
    assert message.startswith(f"0/1 nodes are available: 1 {REASON}.")
    assert "Preemption is not helpful" in message
    cluster.add(make_node("gpu-1"))
    assert cluster.queue_of(web) == "unschedulable"
    cluster.add(make_node("plain"))
    assert cluster.queue_of(web) in ("active", "backoff")
    cluster.advance(2)
    assert cluster.schedule(web).node == "plain"


def test_a_node_that_loses_its_label_takes_pods(plugin, config) -> None:
    cluster = Harness([plugin], [make_node("n", labels={"accelerator": ""})], config=config)
    assert not cluster.schedule(make_pod("web")).bound
    cluster.patch("Node", "n", {"metadata": {"labels": {"accelerator": None}}})
    cluster.advance(2)
    assert cluster.schedule("web").node == "n"


def test_wrong_arguments_are_refused_by_name(plugin) -> None:
    with pytest.raises((ConfigError, ValueError), match="lable"):
        make_plugin(plugin, FakeHandle(), {"lable": "accelerator"})
