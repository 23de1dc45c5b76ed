"""Pre-queueing hints: plugins name the pods that an event may help, before hints are called."""

from __future__ import annotations

from typing import Any

import pytest

from proreus.base.kubernetes_version import V1_37
from proreus.framework import events as ev
from proreus.framework.events import ClusterEvent

CHANGED = ClusterEvent(ev.RESOURCE_CLAIM, ev.UPDATE)
OLD, NEW = object(), object()


class World:
    """A queue with waiting pods, and which hints were asked about which pods."""

    def __init__(self, make_harness: Any, **options: Any) -> None:
        self.harness = make_harness(version=V1_37, **{"pre_queueing_hints": True, **options})
        self.asked: list[tuple[str, str]] = []

    def register(self, plugin: str, *answers: Any) -> None:
        """Register a plugin, with a pre-queueing hint that answers so."""

        def hint(pod: Any, old: Any, new: Any) -> bool:
            self.asked.append((plugin, pod.name))
            return False

        for answer in answers or (...,):

            def pre_hint(old: Any, new: Any, answer: Any = answer) -> Any:
                if isinstance(answer, Exception):
                    raise answer
                return answer

            event = ClusterEvent(
                ev.RESOURCE_CLAIM,
                ev.ALL,
                hint,
                pre_queueing_hint=None if answer is ... else pre_hint,
            )
            self.harness.profile.registrations.append((plugin, event))

    def happens(self, event: ClusterEvent = CHANGED, old: Any = OLD, new: Any = NEW) -> Any:
        """Return which hints are asked about an event, and about which pods."""
        self.asked.clear()
        self.harness.queue.move_all_to_active_or_backoff(event, old, new)
        return sorted(self.asked)

    def evaluations(self) -> dict[Any, float]:
        return dict(self.harness.metrics.pre_queueing_hint_evaluations_total.values())


@pytest.fixture
def world(make_harness):
    return World(make_harness)


def test_only_named_pods_are_looked_at(world, pod):
    world.register("Claims", ["default/a", "default/elsewhere"])
    world.harness.rejected(pod("a"), "Claims")
    world.harness.rejected(pod("b"), "Claims")
    assert world.happens() == [("Claims", "a")]
    assert world.evaluations() == {("Claims", "narrowed"): 1}


def test_other_plugins_see_the_named_pods_only(world, pod):
    world.register("Claims", ["default/a"])
    world.register("Other")
    world.harness.rejected(pod("a"), "Other")
    world.harness.rejected(pod("b"), "Other")
    assert world.happens() == [("Other", "a")]


def test_each_plugin_is_asked_about_the_pods_that_it_named(world, pod):
    world.register("Claims", ["default/a"])
    world.register("Slices", ["default/b"])
    for name in "abc":
        world.harness.rejected(pod(name), "Claims", "Slices")
    assert world.happens() == [("Claims", "a"), ("Slices", "b")]


def test_registrations_of_a_plugin_are_joined(world, pod):
    world.register("Claims", ["default/a"], ["default/b"])
    for name in "abc":
        world.harness.rejected(pod(name), "Claims")
    assert {name for _, name in world.happens()} == {"a", "b"}
    assert world.evaluations() == {("Claims", "narrowed"): 2}


@pytest.mark.parametrize(
    ("answer", "counted"),
    [(None, {("Claims", "all_pods"): 1}), (ValueError("broken"), {}), (5, {})],
)
def test_all_pods_are_looked_at_where_a_plugin_names_none(world, pod, answer, counted):
    world.register("Claims", answer)
    world.register("Slices", ["default/b"])
    world.harness.rejected(pod("a"), "Claims")
    assert world.happens() == [("Claims", "a")]
    assert world.evaluations() == counted


def test_events_without_an_object_are_not_narrowed(world, pod):
    world.register("Claims", ["default/b"])
    world.harness.rejected(pod("a"), "Claims")
    assert world.happens(CHANGED, None, None) == [("Claims", "a")]
    assert world.evaluations() == {}


def test_events_in_flight_are_not_narrowed(world, pod):
    world.register("Claims", ["default/b"])
    world.harness.add(pod("a"))
    queued = world.harness.pop()
    assert world.happens() == []
    world.harness.reject(queued, "Claims")
    assert world.asked == [("Claims", "a")]


def test_without_the_gate_all_pods_are_looked_at(make_harness, pod):
    world = World(make_harness, pre_queueing_hints=False)
    world.register("Claims", ["default/a"])
    world.harness.rejected(pod("b"), "Claims")
    assert world.happens() == [("Claims", "b")]


@pytest.fixture
def by_plugin(make_harness):
    """The hints of 1.38."""
    return World(make_harness, named_pods_by_plugin=True)


@pytest.mark.parametrize(
    ("answer", "counted"),
    [
        (..., None),
        (None, ("Other", "all_pods")),
        (ValueError("broken"), ("Other", "prequeueing_hint_fn_error")),
    ],
)
def test_since_1_38_a_plugin_narrows_its_own_hints_only(by_plugin, pod, answer, counted):
    by_plugin.register("Claims", ["default/a"])
    by_plugin.register("Other", answer)
    for name in "ab":
        by_plugin.harness.rejected(pod(name), "Claims", "Other")
    assert by_plugin.happens() == [("Claims", "a"), ("Other", "a"), ("Other", "b")]
    assert by_plugin.evaluations() == {
        ("Claims", "narrowed"): 1,
        **({counted: 1} if counted else {}),
    }


def test_since_1_38_one_registration_without_names_spoils_the_others(by_plugin, pod):
    by_plugin.register("Claims", ["default/a"], ...)
    by_plugin.register("Slices", ["default/a"])
    for name in "ab":
        by_plugin.harness.rejected(pod(name), "Claims", "Slices")
    assert set(by_plugin.happens()) == {("Claims", "a"), ("Claims", "b"), ("Slices", "a")}


def test_since_1_38_only_named_pods_are_looked_at_if_every_plugin_names_some(by_plugin, pod):
    by_plugin.register("Claims", ["default/a"])
    by_plugin.register("Slices", ["default/b"])
    for name in "abc":
        by_plugin.harness.rejected(pod(name), "Claims", "Slices")
    assert by_plugin.happens() == [("Claims", "a"), ("Slices", "b")]
