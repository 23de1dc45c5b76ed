"""From watch events of pod groups to the queue, and what they move."""

from __future__ import annotations

import pytest

from proreus.base.clock import FakeClock
from proreus.base.kubernetes_version import V1_37
from proreus.base.metrics import SchedulerMetrics
from proreus.engine.event_handlers import PodGroupHandlers
from proreus.engine.queue import SchedulingQueue
from proreus.framework.events import POD_GROUP
from proreus.framework.workload_forest import WorkloadForest
from proreus.objects.meta import ObjectMeta
from proreus.objects.scheduling import PodGroup, PodGroupSpec


class Handled:
    """Handlers, their forest, and the labels of the events that they announced."""

    def __init__(self, monkeypatch) -> None:
        self.forest = WorkloadForest()
        queue = SchedulingQueue(clock=FakeClock(0), pod_lister=lambda key: None, forest=self.forest)
        self.moves: list[tuple[str, object, object]] = []
        monkeypatch.setattr(
            queue,
            "move_all_to_active_or_backoff",
            lambda event, old, new: self.moves.append((event.label, old, new)),
        )
        metrics = SchedulerMetrics(version=V1_37)
        self.handlers = PodGroupHandlers(POD_GROUP, queue, metrics)


def group(version: str = "1", priority: int = 0, uid: str = "u") -> PodGroup:
    metadata = ObjectMeta(name="g", namespace="ns", uid=uid, resource_version=version)
    return PodGroup(metadata=metadata, spec=PodGroupSpec(priority=priority))


@pytest.fixture
def handled(monkeypatch) -> Handled:
    return Handled(monkeypatch)


def test_each_event_reaches_the_forest_and_the_queue(handled):
    old, new = group("1"), group("2", priority=3)
    handled.handlers.on_add(old)
    handled.handlers.on_update(old, new)
    assert handled.forest.get(new.key) is new
    handled.handlers.on_delete(new, final_state_unknown=True)
    assert handled.forest.get(new.key) is None
    assert handled.moves == [
        ("scheduling.k8s.io/PodGroupAdd", None, old),
        ("scheduling.k8s.io/PodGroupUpdate", old, new),
        ("scheduling.k8s.io/PodGroupDelete", new, None),
    ]


@pytest.mark.parametrize(("version", "moves"), [("1", 1), ("", 2)])
def test_a_resync_changes_nothing(handled, version, moves):
    """Objects without a version, of offline scripts, always count."""
    handled.handlers.on_add(group(version))
    handled.handlers.on_update(group(version), group(version, priority=3))
    assert len(handled.moves) == moves


def test_a_group_of_another_uid_is_a_new_group(handled):
    """The watch may miss a deletion."""
    old, new = group("1"), group("2", uid="another")
    handled.handlers.on_add(old)
    handled.handlers.on_update(old, new)
    assert handled.forest.get(new.key) is new
    assert handled.moves[1:] == [
        ("scheduling.k8s.io/PodGroupDelete", old, None),
        ("scheduling.k8s.io/PodGroupAdd", None, new),
    ]
