"""Rejections of deferred resizes by NodeResourcesFit.

What a pod that waits to be resized counts with on its node is not needed again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from proreus.framework.cycle_state import CycleState
from proreus.framework.events import ASSIGNED_POD, NODE, TARGET_POD, UPDATE_POD_SCALE_UP
from proreus.framework.pod_info import PodInfo
from proreus.framework.status import Code, Status
from proreus.framework.verdicts import Verdicts
from proreus.plugins.node_resources_fit import NodeResourcesFit
from proreus.testing import FakeHandle, make_node, make_plugin, make_pod
from proreus.testing.agreement import assert_agreement

GATE = "InPlacePodVerticalScalingSchedulerPreemption=true"
DEFERRED = {"conditions": [{"type": "PodResizePending", "status": "True", "reason": "Deferred"}]}


def deferred(cpu: str | None = None, memory: str | None = None, **fields: Any) -> PodInfo:
    return make_pod("grows", cpu, memory, **{"node_name": "n0", "status": DEFERRED, **fields})


def statuses(
    pod: PodInfo, existing: Sequence[PodInfo], nodes: int = 2, *, gate: bool = True, **node: Any
) -> list[Status | None]:
    """Return the statuses of n0, n1, …, which are alike; both forms of Filter agree on them."""
    made = [make_node(f"n{i}", **{"cpu": "4", **node}) for i in range(nodes)]
    handle = FakeHandle(made, existing, gates=[GATE] if gate else [], kubernetes_version="1.37")
    plugin = make_plugin(NodeResourcesFit, handle)
    verdicts = Verdicts(nodes, plugin.name)
    plugin.filter_all(CycleState(), pod, handle.nodes, verdicts)
    assert_agreement(plugin, pod, handle.nodes)
    return [verdicts.status(row) for row in range(nodes)]


def summary(status: Status | None) -> tuple[Code, tuple[str, ...]] | None:
    return None if status is None else (status.code, status.reasons)


SHORT = (Code.UNSCHEDULABLE, ("Insufficient cpu",))
NEVER = (Code.UNRESOLVABLE, ("Insufficient cpu",))


@pytest.mark.parametrize(
    ("cpu", "cached", "others", "expected"),
    [
        # The cache knows the new size already, and it fits, or the node is over-committed by it.
        ("3", "3", "1", None),
        ("3", "3", "1001m", SHORT),
        # The cache is behind: what is missing has to be free.
        ("3", "1", "1", None),
        ("3", "1", "1001m", SHORT),
        # The pod shrinks: what it gives back is not free yet.
        ("1", "3", "1", None),
        ("1", "3", "2", SHORT),
        ("5", "1", "1", NEVER),
        ("5", "5", "", NEVER),
    ],
)
def test_only_what_is_missing_has_to_be_free(
    cpu: str, cached: str, others: str, expected: tuple[Code, tuple[str, ...]] | None
) -> None:
    existing = [deferred(cached)]
    if others:
        existing.append(make_pod("other", others, node_name="n0"))
    here, _ = statuses(deferred(cpu), existing)
    assert summary(here) == expected


def test_elsewhere_all_of_it_is_needed() -> None:
    existing = [deferred("3"), make_pod("other", "2", node_name="n1")]
    here, there = statuses(deferred("3"), existing)
    assert here is None
    assert summary(there) == SHORT


def test_a_pod_that_is_not_in_the_cache_needs_all_of_it() -> None:
    here, _ = statuses(deferred("3"), [make_pod("other", "2", node_name="n0")])
    assert summary(here) == SHORT


@pytest.mark.parametrize("gate", [True, False])
def test_other_pods_and_versions_are_not_concerned(gate: bool) -> None:
    settled = deferred("3", status={})
    pod = settled if gate else deferred("3")
    here, _ = statuses(pod, [settled], gate=gate)
    assert summary(here) == SHORT


def test_what_is_not_requested_is_not_checked() -> None:
    over = make_pod("over", "5", "9Gi", node_name="n0")
    here, _ = statuses(deferred(memory="1Gi"), [deferred(memory="1Gi"), over])
    assert summary(here) == (Code.UNSCHEDULABLE, ("Insufficient memory",))


def test_extended_resources_do_not_grow() -> None:
    gpu = {"example.com/gpu": 2}
    existing = [deferred(resources=gpu), make_pod("over", resources=gpu, node_name="n0")]
    here, there = statuses(deferred(resources=gpu), existing, resources={"example.com/gpu": 3})
    assert (here, there) == (None, None)


def test_more_of_an_extended_resource_is_compared_with_what_the_node_has() -> None:
    gpu = "example.com/gpu"
    existing = [deferred(resources={gpu: 1}), make_pod("o", resources={gpu: 2}, node_name="n0")]
    here, there = statuses(deferred(resources={gpu: 4}), existing, resources={gpu: 3})
    reasons = ("Insufficient example.com/gpu",)
    # Three more are missing here, and the node has three; elsewhere all four are.
    assert summary(here) == (Code.UNSCHEDULABLE, reasons)
    assert summary(there) == (Code.UNRESOLVABLE, reasons)


def test_the_pod_is_counted_twice_among_the_pods() -> None:
    # kube-scheduler does so: a resize does not fit on a node that is full of pods.
    here, _ = statuses(deferred("1"), [deferred("1")], pods=1)
    assert summary(here) == (Code.UNSCHEDULABLE, ("Too many pods",))


def test_deferred_resizes_share_no_results() -> None:
    handle = FakeHandle([make_node("n0")], gates=[GATE], kubernetes_version="1.37")
    plugin = make_plugin(NodeResourcesFit, handle)
    assert plugin.sign(deferred("1")) is None
    assert plugin.sign(deferred("1", status={})) is not None


@pytest.mark.parametrize("enabled", [True, False])
def test_scale_ups_are_registered_with_the_gate(enabled: bool) -> None:
    handle = FakeHandle([], gates=[GATE] if enabled else [], kubernetes_version="1.37")
    events = make_plugin(NodeResourcesFit, handle).events_to_register()
    registered = {e.resource for e in events if e.action == UPDATE_POD_SCALE_UP}
    assert registered == ({ASSIGNED_POD, TARGET_POD} if enabled else set())


@pytest.mark.parametrize(("name", "queued"), [("n0", True), ("n1", False)])
def test_only_its_node_matters_to_a_deferred_resize(name: str, queued: bool) -> None:
    handle = FakeHandle([], gates=[GATE], kubernetes_version="1.37")
    events = list(make_plugin(NodeResourcesFit, handle).events_to_register())
    pod, plain = deferred("2"), make_pod("plain", "2")
    before = make_pod("other", "3", node_name=name).pod
    after = make_pod("other", "1", node_name=name).pod
    for event in events:
        assert event.hint is not None
        if event.resource == NODE:
            assert event.hint(pod, None, make_node(name)) is queued
            assert event.hint(plain, None, make_node(name))
        elif event.resource == ASSIGNED_POD and event.action != UPDATE_POD_SCALE_UP:
            assert event.hint(pod, before, None) is queued
            assert event.hint(pod, before, after) is queued
            assert event.hint(plain, before, None)
            assert event.hint(plain, before, after)
        elif event.resource == ASSIGNED_POD:
            assert event.hint(pod, after, before) is queued
            assert not event.hint(plain, after, before)
