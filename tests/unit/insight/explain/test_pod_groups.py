"""What a waiting member of a pod group is told about its group."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from proreus.base.feature_gates import FeatureGates
from proreus.base.kubernetes_version import V1_37

from .conftest import World, node, pod


@pytest.fixture
def grouped(make_world: Callable[..., World]) -> World:
    gates = ["GenericWorkload=true"]
    return make_world(gates=FeatureGates.from_list(gates, V1_37))


def group(min_count: int) -> dict:
    policy = {"gang": {"minCount": min_count}}
    meta = {"name": "g", "namespace": "default", "generation": 1}
    return {"kind": "PodGroup", "metadata": meta, "spec": {"schedulingPolicy": policy}}


def member(name: str, cpu: str = "1") -> dict:
    return pod(name, cpu, schedulingGroup={"podGroupName": "g"})


def test_a_group_that_lacks_pods(grouped: World) -> None:
    grouped.add(node("a"), group(3))
    grouped.schedule(member("one"), member("two"))
    explained = grouped.explain("one")
    assert explained.state == "waiting"
    found = explained.waiting.group
    assert (found.name, found.exists, found.min_count) == ("default/g", True, 3)
    assert (found.pods, found.scheduled, found.lacking) == (2, 0, 1)


def test_a_group_that_does_not_fit(grouped: World) -> None:
    grouped.add(node("a", cpu="2"), group(3))
    grouped.schedule(member("one"), member("two"), member("three"))
    states = {grouped.explain(name).state for name in ("one", "two", "three")}
    assert states == {"waiting"}
    explained = grouped.explain("three")
    # The group as a whole backs off, like a pod whose attempt failed.
    assert explained.waiting.queue == "backoff"
    assert explained.waiting.backoff_seconds > 0
    assert explained.waiting.group.lacking == 0
    assert explained.attempt.message


def test_a_group_without_its_object(grouped: World) -> None:
    grouped.add(node("a"))
    grouped.schedule(member("one"))
    assert not grouped.explain("one").waiting.group.exists
