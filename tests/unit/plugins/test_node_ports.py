"""NodePorts: which ports conflict, whose ports count, and queueing hints."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from proreus.framework.cycle_state import CycleState
from proreus.framework.pod_info import HostPort, PodInfo
from proreus.framework.status import Status
from proreus.plugins.node_ports import NodePorts, ports_conflict
from proreus.testing import FakeHandle, make_node, make_plugin, make_pod
from proreus.testing.agreement import assert_agreement

REJECTED = Status.unschedulable("node(s) didn't have free ports for the requested pod ports")
IN_USE = make_pod("there", host_ports=[80, "10.0.0.1:443", "127.0.0.1:53/UDP"], node_name="n1")


def rejected(pod: PodInfo, *there: PodInfo) -> bool:
    handle = FakeHandle([make_node("n1")], there)
    plugin = make_plugin(NodePorts, handle)
    assert plugin.pre_filter(CycleState(), pod, handle.nodes) is None
    assert_agreement(plugin, pod, handle.nodes)
    status = plugin.filter(CycleState(), pod, handle.nodes[0])
    assert status in (None, REJECTED.with_plugin("NodePorts"))
    return status is not None


@pytest.mark.parametrize(
    ("wanted", "conflict"),
    [
        (80, True),
        ("10.0.0.9:80", True),
        ("80/UDP", False),
        ("10.0.0.9:443", False),
        ("10.0.0.1:443", True),
        (443, True),
        (53, False),
        ("53/UDP", True),
        ("10.0.0.1:53/UDP", False),
    ],
)
def test_clash(wanted: int | str, conflict: bool) -> None:
    assert rejected(make_pod(host_ports=[wanted]), IN_USE) is conflict


def with_ports_in(kind: str, **container: Any) -> PodInfo:
    ports = [{"hostPort": 80, "containerPort": 80}]
    return make_pod("p", node_name="n1", spec={kind: [{"ports": ports, **container}]})


def test_ports_of_sidecars_count_and_of_other_init_containers_do_not() -> None:
    sidecar = with_ports_in("initContainers", restartPolicy="Always")
    init = with_ports_in("initContainers")

    assert rejected(make_pod(host_ports=[80]), sidecar)
    assert not rejected(make_pod(host_ports=[80]), init)


def test_pods_without_host_ports_are_skipped() -> None:
    handle = FakeHandle([make_node("n1")])
    plugin = make_plugin(NodePorts, handle)
    container_port = make_pod(spec={"containers": [{"ports": [{"containerPort": 80}]}]})

    assert plugin.pre_filter(CycleState(), make_pod(), handle.nodes) == Status.skip()
    assert plugin.pre_filter(CycleState(), container_port, handle.nodes) == Status.skip()


def test_a_port_is_free_after_one_of_two_pods_is_removed() -> None:
    twins = [make_pod(name, host_ports=[80], node_name="n1") for name in ("a", "b")]
    handle = FakeHandle([make_node("n1")], twins)
    plugin = make_plugin(NodePorts, handle)

    handle.nodes.remove_pod(0, twins[0].uid)

    assert plugin.filter(CycleState(), make_pod(host_ports=[80]), handle.nodes[0]) is None


@pytest.mark.parametrize(
    ("gone", "expected"),
    [
        (make_pod("gone", host_ports=[80], node_name="n1"), True),
        (make_pod("gone", host_ports=[80], status={"nominatedNodeName": "n1"}), True),
        (make_pod("gone", host_ports=[80]), False),
        (make_pod("gone", host_ports=[81], node_name="n1"), False),
        (make_pod("gone", node_name="n1"), False),
    ],
)
def test_a_deleted_pod_with_the_port_helps(gone: PodInfo, expected: bool) -> None:
    plugin = make_plugin(NodePorts, FakeHandle())
    deleted, new_node = plugin.events_to_register()
    assert deleted.hint is not None

    assert deleted.hint(make_pod("waiting", host_ports=[80]), gone.pod, None) is expected
    assert new_node.hint is None


class _Counted(frozenset[HostPort]):
    """A set that counts how often it is walked through."""

    walks = 0

    def __iter__(self) -> Iterator[HostPort]:
        type(self).walks += 1
        return super().__iter__()


@pytest.mark.parametrize(("first", "conflict"), [(5_000, True), (10_000, False)])
def test_thousands_of_ports_of_two_pods_are_not_compared_each_with_each(
    first: int, conflict: bool
) -> None:
    """Two pods with 30,000 other ports each kept the scheduler busy for a minute."""
    used = _Counted(HostPort("0.0.0.0", "TCP", port) for port in range(10_000))
    wanted = [HostPort("0.0.0.0", "TCP", port) for port in range(first, 20_000)]
    _Counted.walks = 0
    assert ports_conflict(wanted, used) is conflict
    assert _Counted.walks == 1
