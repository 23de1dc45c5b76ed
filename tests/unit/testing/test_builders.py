"""Builders of nodes, pods, tables and plugins."""

from __future__ import annotations

import pytest

from proreus.base.errors import ConfigError
from proreus.framework.pod_info import HostPort
from proreus.objects.taints import Taint
from proreus.plugins.node_resources_fit import NodeResourcesFit
from proreus.plugins.node_resources_fit_args import NodeResourcesFitArgs
from proreus.testing import FakeHandle, make_node, make_plugin, make_pod, make_table


def test_nodes() -> None:
    node = make_node(
        "n1",
        "2",
        labels={"zone": "a"},
        taints=["a=b:NoSchedule", "c:NoExecute"],
        images={"app:v1": 7},
        resources={"example.com/gpu": 1},
    )

    assert node.metadata.labels == {"kubernetes.io/hostname": "n1", "zone": "a"}
    assert node.status.allocatable == {
        "cpu": "2",
        "memory": "8Gi",
        "pods": 110,
        "example.com/gpu": 1,
    }
    assert node.spec.taints == (
        Taint(key="a", value="b", effect="NoSchedule"),
        Taint(key="c", effect="NoExecute"),
    )
    assert node.status.images[0].names == ("app:v1",)


def test_pods() -> None:
    pod = make_pod("p", "500m", host_ports=[80, "10.0.0.1:53/UDP"], priority=7, node_selector={})

    assert pod.key == "default/p"
    assert pod.requests.amounts == {"cpu": 500}
    assert pod.host_ports == (HostPort("0.0.0.0", "TCP", 80), HostPort("10.0.0.1", "UDP", 53))
    assert pod.priority == 7
    assert pod.pod.spec.node_selector == {}
    assert make_pod().pod.spec.node_selector is None
    assert make_pod("a").uid != make_pod("b").uid


def test_spec_overrides() -> None:
    pod = make_pod("p", "500m", spec={"containers": [], "schedulerName": "mine"})

    assert pod.requests.amounts == {}
    assert pod.pod.spec.scheduler_name == "mine"


def test_tables() -> None:
    table = make_table([make_node("n0"), make_node("n1")], [make_pod("p", "1", node_name="n1")])

    assert table.requested["cpu"].tolist() == [0, 1000]
    table.validate()


def test_arguments_of_plugins_are_defaulted_and_validated() -> None:
    handle = FakeHandle()

    args = make_plugin(NodeResourcesFit, handle).args
    assert isinstance(args, NodeResourcesFitArgs)
    assert [resource.name for resource in args.scoring_strategy.resources] == ["cpu", "memory"]
    with pytest.raises(ConfigError, match="Unsupported value"):
        make_plugin(NodeResourcesFit, handle, {"scoringStrategy": {"type": "Emptiest"}})


def test_what_would_be_ignored_is_an_error() -> None:
    with pytest.raises(ValueError, match="as in YAML, in camelCase, not 'node_affinity'"):
        make_pod(affinity={"node_affinity": {}})
    with pytest.raises(ValueError, match="not 'owner_references'"):
        make_pod(metadata={"owner_references": []})
    with pytest.raises(ValueError, match="not 'declared_features'"):
        make_node("n", status={"declared_features": ["InPlacePodVerticalScaling"]})
    with pytest.raises(ValueError, match="key=value:Effect or key:Effect, not 'gpu'"):
        make_node("n", taints=["gpu"])
    assert make_pod(labels={"app_name": "web"}).labels == {"app_name": "web"}
    assert make_pod(annotations={"held_by": "me"}).pod.metadata.annotations == {"held_by": "me"}
