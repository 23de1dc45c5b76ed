"""NodeInfo: sums that follow the pods on a node."""

from __future__ import annotations

import pytest

from proreus.framework.node_info import NodeInfo
from proreus.testing import make_node, make_pod

ANTI = "podAntiAffinity"
TERM = {"topologyKey": "zone", "labelSelector": {}}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def node_with(*pods: object) -> NodeInfo:
    info = NodeInfo("n1")
    info.set_node(make_node("n1", resources={"storage": "1Ti", "example.com/gpu": 2}))
    for pod in pods:
        info.add_pod(pod)  # type: ignore[arg-type]
    return info


def test_only_tracked_resources_are_kept() -> None:
    info = node_with()

    assert info.allocatable == {"cpu": 4000, "memory": 8 * 2**30, "example.com/gpu": 2}
    assert info.allowed_pod_number == 110


def test_nodes_of_one_size_do_not_share_a_container() -> None:
    one, other = node_with(), node_with()
    dict.__setitem__(one.allocatable, "cpu", 0)
    assert other.allocatable["cpu"] == node_with().allocatable["cpu"] == 4000
    assert (one.difference(), other.difference()) == ("allocatable", "")


def test_pods_are_counted_in_and_out() -> None:
    one, two = make_pod("one", "1", host_ports=[80]), make_pod("two", memory="1Gi")
    info = node_with(one, two)
    assert info.requested == {"cpu": 1000, "memory": 2**30}
    assert info.nonzero_requested == {"cpu": 1100, "memory": 2**30 + 200 * 2**20}

    assert info.remove_pod(one.uid) is one

    assert info.requested == {"memory": 2**30}, "a resource of which nothing is left is dropped"
    assert info.requested["cpu"] == 0
    assert info.nonzero_requested == {"cpu": 100, "memory": 2**30}
    assert info.used_ports == set()
    with pytest.raises(KeyError):
        info.remove_pod(one.uid)


@pytest.mark.parametrize("others", [0, 1])
def test_nothing_of_a_large_pod_stays(others: int) -> None:
    volumes = [
        {"name": f"v{number}", "persistentVolumeClaim": {"claimName": f"c{number}"}}
        for number in range(1_000)
    ]
    large = make_pod(
        "large",
        resources={f"example.com/r{number}": "1" for number in range(1_000)},
        host_ports=range(1, 1_000),
        spec={"volumes": volumes},
    )
    small = [make_pod("small", "1", host_ports=[1_000], spec={"volumes": volumes[:1]})] * others
    info = node_with(*small, large)
    assert len(info.requested) >= 1_000

    info.remove_pod(large.uid)

    assert len(info.requested) == others
    assert info.difference() == ""
    assert len(info.used_ports) == len(info.pvc_ref_counts) == others


def test_a_new_version_of_the_node_keeps_its_pods() -> None:
    info = node_with(make_pod("one", "1"))

    info.set_node(make_node("n1", "2"))

    assert info.requested == {"cpu": 1000}
    assert info.allocatable["cpu"] == 2000


def test_pods_with_affinity_are_known() -> None:
    empty = make_pod("empty", affinity={"podAffinity": {}})
    node_only = make_pod("node-only", affinity={"nodeAffinity": {}})
    required = make_pod("required", affinity={ANTI: {REQUIRED: [TERM]}})
    preferred = make_pod("preferred", affinity={ANTI: {}})
    info = node_with(empty, node_only, required, preferred)

    assert {pod.name for pod in info.pods_with_affinity.values()} == {
        "empty",
        "required",
        "preferred",
    }
    assert list(info.pods_with_required_anti_affinity) == [required.uid]
    info.remove_pod(required.uid)
    assert required.uid not in info.pods_with_affinity
    assert not info.pods_with_required_anti_affinity


def test_claims_are_counted_by_reference() -> None:
    volumes = [
        {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
        {"name": "scratch", "ephemeral": {}},
    ]
    pods = [make_pod(name, spec={"volumes": volumes}) for name in ("a", "b")]
    info = node_with(*pods)
    assert info.pvc_ref_counts == {"default/data": 2}

    info.remove_pod(pods[0].uid)
    assert info.pvc_ref_counts == {"default/data": 1}
    info.remove_pod(pods[1].uid)
    assert info.pvc_ref_counts == {}


def test_a_clone_is_its_own() -> None:
    pod = make_pod("one", "1", host_ports=[80], affinity={ANTI: {REQUIRED: [TERM]}})
    info = node_with(pod)
    clone = info.clone()

    clone.remove_pod(pod.uid)
    clone.add_pod(make_pod("two", "2"))

    assert info.requested["cpu"] == 1000
    assert info.nonzero_requested["cpu"] == 1000
    assert list(info.pods) == [pod.uid]
    assert info.used_ports == set(pod.host_ports)
    assert list(info.pods_with_required_anti_affinity) == [pod.uid]
    assert clone.requested["cpu"] == 2000


def test_what_nobody_asked_for_is_nothing() -> None:
    info = node_with().clone()
    assert (info.requested["memory"], info.allocatable["example.com/fpga"]) == (0, 0)
    assert info.requested == {}
