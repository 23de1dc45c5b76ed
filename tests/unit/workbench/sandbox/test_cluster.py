from collections import Counter

import pytest

from proreus.workbench.sandbox.cluster import make_node, make_nodes

ZONE = "topology.kubernetes.io/zone"


def test_nodes_are_spread_over_zones_and_sizes() -> None:
    nodes = make_nodes(12, zones=3, sizes=("small", "large"), labels={"pool": "a"})
    assert len({node["metadata"]["name"] for node in nodes}) == 12
    kinds = Counter(
        (node["metadata"]["labels"][ZONE], node["status"]["allocatable"]["cpu"]) for node in nodes
    )
    assert kinds == {(f"zone-{zone}", cpu): 2 for zone in (1, 2, 3) for cpu in ("4", "16")}
    assert all(node["metadata"]["labels"]["pool"] == "a" for node in nodes)


def test_nodes_are_named_in_their_order() -> None:
    names = [node["metadata"]["name"] for node in make_nodes(11)]
    assert names == sorted(names)
    assert names[-1] == "node-10"


def test_capacity_labels_and_taints_are_added() -> None:
    node = make_node("n", capacity={"x.com/gpu": "2", "cpu": "1"}, taints=[{"key": "k"}])
    assert node["status"]["capacity"]["x.com/gpu"] == "2"
    assert node["status"]["allocatable"]["cpu"] == "1"
    assert node["spec"]["taints"] == [{"key": "k"}]
    assert ZONE not in node["metadata"]["labels"]
    with pytest.raises(KeyError):
        make_node("n", size="colossal")
