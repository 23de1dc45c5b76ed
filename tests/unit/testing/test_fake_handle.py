"""FakeHandle: a Handle that can be used without a scheduler."""

from __future__ import annotations

import numpy as np
import pytest

from proreus.framework.cycle_state import CycleState
from proreus.framework.handle import Handle
from proreus.framework.post_filter_result import NominatingInfo
from proreus.objects.kinds import NODES, PODS
from proreus.objects.pod import Pod
from proreus.plugins.node_ports import NodePorts
from proreus.plugins.node_resources_fit import NodeResourcesFit
from proreus.testing import FakeHandle, make_node, make_plugin, make_pod


def test_it_implements_handle() -> None:
    handle: Handle = FakeHandle()

    assert handle.profile_name == "default-scheduler"
    assert handle.metrics is handle.metrics


def test_the_cluster_exists_as_columns_and_as_objects() -> None:
    pending, placed = make_pod("pending"), make_pod("placed", "1", node_name="n1")
    handle = FakeHandle([make_node("n0"), make_node("n1")], [pending, placed])

    assert handle.nodes.requested["cpu"].tolist() == [0, 1000]
    assert set(handle.store(PODS)) == {"default/pending", "default/placed"}
    assert set(handle.store(NODES)) == {"n0", "n1"}


def test_changes_call_the_handlers() -> None:
    handle = FakeHandle()
    seen: list[tuple[bool, bool]] = []

    def note(old: Pod | None, new: Pod | None) -> None:
        seen.append((old is not None, new is not None))

    handle.on_change(PODS, note)
    raw = {"kind": "Pod", "metadata": {"name": "a", "namespace": "b"}}
    handle.add(raw)
    handle.add(raw)
    handle.remove("Pod", "b/a")

    assert seen == [(False, True), (True, True), (True, False)]


def test_filters_run_in_order_over_forks() -> None:
    there = make_pod("there", "4", host_ports=[80], node_name="n0")
    handle = FakeHandle([make_node("n0"), make_node("n1")], [there])
    handle.filters = (make_plugin(NodePorts, handle), make_plugin(NodeResourcesFit, handle))
    state, pod = CycleState(), make_pod("pending", "1", host_ports=[80])

    verdicts = handle.run_filters_with_nominated_pods(state, pod, handle.nodes)
    status = verdicts.status(0)
    assert status is not None
    assert status.plugin == "NodePorts"
    assert verdicts.status(1) is None

    fork = handle.nodes.fork(np.array([0]))
    fork.remove_pod(0, there.uid)
    assert handle.run_filters_with_nominated_pods(state, pod, fork).ids is None
    fork.add_pod(0, there)
    assert handle.run_filters_with_nominated_pods(state, pod, fork).status(0) == status

    state.skip_filter = frozenset({"NodePorts", "NodeResourcesFit"})
    assert handle.run_filters_with_nominated_pods(state, pod, fork).ids is None


def test_nominations() -> None:
    nominator, pod = FakeHandle().nominator, make_pod("p", status={"nominatedNodeName": "n1"})

    nominator.add_nominated_pod(pod, None)
    assert nominator.nominated_pods("n1") == [pod]
    nominator.add_nominated_pod(pod, NominatingInfo("n2"))
    assert list(nominator.nominated_nodes()) == ["n2"]
    nominator.delete_nominated_pod(pod.uid)
    assert list(nominator.nominated_nodes()) == []


def test_a_pod_that_is_held() -> None:
    handle, pod = FakeHandle(), make_pod("p")

    held = handle.hold(pod, {"Gang": 60, "Quota": 10})

    assert handle.get_waiting_pod(pod.uid) is held
    assert list(handle.waiting_pods()) == [held]
    held.allow("Gang")
    assert held.pending_plugins() == ["Quota"]


def test_a_key_where_keys_are_wanted_is_an_error() -> None:
    with pytest.raises(TypeError, match=r"activate takes several keys: \['default/web'\]"):
        FakeHandle(["n1"]).activate("default/web")
