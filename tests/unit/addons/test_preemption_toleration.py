from __future__ import annotations

from math import inf

import pytest

from proreus.addons.preemption_toleration import (
    MINIMUM_PREEMPTABLE_PRIORITY,
    TOLERATION_SECONDS,
    PreemptionToleration,
    VictimToleration,
)
from proreus.objects import ObjectMeta, PriorityClass
from proreus.testing import Harness, make_node, make_pod

START = "2023-11-14T22:13:20Z"
"""When the clock of a harness starts."""


def priority_class(**annotations: str) -> PriorityClass:
    names = {"minimum": MINIMUM_PREEMPTABLE_PRIORITY, "seconds": TOLERATION_SECONDS}
    found = {names[name]: value for name, value in annotations.items()}
    return PriorityClass(metadata=ObjectMeta(name="batch", annotations=found), value=10)


def victim(scheduled: str | None = START, status: str = "True"):
    condition = {"type": "PodScheduled", "status": status, "lastTransitionTime": scheduled}
    return make_pod("old", "3", priority=10, node_name="n", status={"conditions": [condition]})


@pytest.mark.parametrize(
    ("annotations", "toleration"),
    [
        ({}, VictimToleration(11, 0)),
        ({"minimum": "1000", "seconds": "-1"}, VictimToleration(1000, -1)),
        ({"minimum": "+5"}, VictimToleration(5, 0)),
        ({"minimum": "many"}, None),
        ({"seconds": "1_000"}, None),
        ({"minimum": str(2**31)}, None),
    ],
)
def test_annotations_are_read_as_numbers(
    annotations: dict, toleration: VictimToleration | None
) -> None:
    assert VictimToleration.of(priority_class(**annotations)) == toleration


@pytest.mark.parametrize(
    ("priority", "seconds", "scheduled", "status", "ends"),
    [
        (1000, -1, START, "True", -inf),
        (999, -1, START, "True", inf),
        (999, 60, START, "True", 1_700_000_060.0),
        (999, 60, START, "False", inf),
        (999, 60, None, "True", -inf),
    ],
)
def test_when_a_toleration_ends(priority, seconds, scheduled, status, ends) -> None:
    pod = make_pod("p", priority=priority)
    assert VictimToleration(1000, seconds).ends(pod, victim(scheduled, status)) == ends


def configuration() -> dict:
    multi_point = {
        "disabled": [{"name": "DefaultPreemption"}],
        "enabled": [{"name": "PreemptionToleration"}],
    }
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"plugins": {"multiPoint": multi_point}}],
    }


def fill(cluster: Harness, *, class_exists: bool = True) -> None:
    if class_exists:
        annotations = {MINIMUM_PREEMPTABLE_PRIORITY: "1000", TOLERATION_SECONDS: "3600"}
        cluster.add(
            {
                "apiVersion": "scheduling.k8s.io/v1",
                "kind": "PriorityClass",
                "metadata": {"name": "batch", "annotations": annotations},
                "value": 10,
            }
        )
    cluster.add(victim())
    cluster.patch("Pod", "old", {"spec": {"priorityClassName": "batch"}})


def test_a_pod_of_high_priority_preempts_at_once() -> None:
    cluster = Harness([PreemptionToleration], [make_node("n", "4")], config=configuration())
    fill(cluster)
    cluster.schedule(make_pod("urgent", "3", priority=1000))
    with pytest.raises(LookupError):
        cluster.pod("old")


def test_others_wait_until_the_toleration_has_ended() -> None:
    cluster = Harness([PreemptionToleration], [make_node("n", "4")], config=configuration())
    fill(cluster)
    outcome = cluster.schedule(make_pod("p", "3", priority=999))
    assert not outcome.bound
    assert "No victims found on node n for preemptor pod p" in str(outcome)
    # The five-minute flush tries it in vain meanwhile.
    cluster.advance(3500)
    cluster.schedule_all()
    assert cluster.pod("old")
    assert cluster.queue_of("p") == "unschedulable"
    cluster.advance(101)
    assert cluster.queue_of("p") == "active"
    cluster.schedule_all()
    with pytest.raises(LookupError):
        cluster.pod("old")


def test_an_unknown_class_makes_the_preemption_fail() -> None:
    cluster = Harness([PreemptionToleration], [make_node("n", "4")], config=configuration())
    fill(cluster, class_exists=False)
    outcome = cluster.schedule(make_pod("p", "3", priority=999))
    assert 'priorityclass.scheduling.k8s.io "batch" not found' in str(outcome)
    assert cluster.pod("old")
