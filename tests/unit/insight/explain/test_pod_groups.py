"""What a waiting member of a group is told about its group, whoever describes the group."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from proreus.addons.coscheduling import Coscheduling
from proreus.base.feature_gates import FeatureGates
from proreus.base.kubernetes_version import V1_36, KubernetesVersion
from proreus.insight.explain import explainer
from proreus.insight.explain.explanation import by_changes

from .conftest import World, node, pod

GANG_LABEL = "scheduling.x-k8s.io/pod-group"


class Groups:
    """A world with one kind of groups."""

    def __init__(self, world: World, kind: str) -> None:
        self.world, self.kind = world, kind

    def group(self, min_count: int, name: str = "g") -> dict:
        meta = {"name": name, "namespace": "default", "generation": 1}
        meta["creationTimestamp"] = "2023-11-14T22:00:00Z"
        if self.kind.startswith("Coscheduling"):
            version, spec = "scheduling.x-k8s.io/v1alpha1", {"minMember": min_count}
            return {"apiVersion": version, "kind": "PodGroup", "metadata": meta, "spec": spec}
        spec = {"schedulingPolicy": {"gang": {"minCount": min_count}}}
        return {"kind": "PodGroup", "metadata": meta, "spec": spec}

    def member(self, name: str, cpu: str = "1", group: str = "g", **spec: Any) -> dict:
        if self.kind.startswith("Coscheduling"):
            return pod(name, cpu, {GANG_LABEL: group}, **spec)
        return pod(name, cpu, schedulingGroup={"podGroupName": group}, **spec)

    def schedule(self, *pods: Any) -> None:
        self.world.schedule(*pods, attempts=3 * len(pods))
        self.world.settle()

    @property
    def is_whole(self) -> bool:
        return self.kind != "Coscheduling permit"


def coscheduling(mode: str) -> dict:
    plugins = {
        "queueSort": {"enabled": [{"name": "Coscheduling"}], "disabled": [{"name": "*"}]},
        "multiPoint": {"enabled": [{"name": "Coscheduling"}]},
    }
    args = [{"name": "Coscheduling", "args": {"mode": mode}}]
    profile = {"schedulerName": "default-scheduler", "plugins": plugins, "pluginConfig": args}
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [profile],
    }


KINDS = (
    "PodGroup 1.38",
    "PodGroup 1.37",
    "PodGroup 1.36",
    "Coscheduling plan",
    "Coscheduling permit",
)


@pytest.fixture
def make(make_world: Callable[..., World]) -> Callable[[str], Groups]:
    def made(kind: str) -> Groups:
        if kind.startswith("Coscheduling"):
            configuration = coscheduling(kind.partition(" ")[2])
            return Groups(make_world(plugins=[Coscheduling], configuration=configuration), kind)
        version = KubernetesVersion.parse(kind.removeprefix("PodGroup "))
        gates = ["GenericWorkload=true"]
        gates += ["GangScheduling=true"] if version == V1_36 else []
        return Groups(make_world(gates=FeatureGates.from_list(gates, version)), kind)

    return made


@pytest.fixture
def grouped(make: Callable[[str], Groups]) -> Groups:
    return make("PodGroup 1.37")


@pytest.mark.parametrize("kind", KINDS)
def test_a_group_that_lacks_pods(make: Any, kind: str) -> None:
    groups = make(kind)
    groups.world.add(node("a"), groups.group(3))
    groups.schedule(groups.member("one"), groups.member("two"))
    explained = groups.world.explain("one")
    assert explained.state == "waiting"
    found = explained.group
    assert (found.name, found.exists, found.min_count) == ("default/g", True, 3)
    assert (found.pods, found.scheduled, found.lacking) == (2, 0, 1)
    if groups.is_whole:
        assert explained.waiting.queue == "gated"
        assert "needs 3 pods, and 2 exist" in explained.summary
        assert explained.waiting.gated_because.startswith("waiting for")


@pytest.mark.parametrize("kind", KINDS[:4])
def test_a_group_that_does_not_fit_says_which_pods_block_it_and_what_would_help(
    make: Any, kind: str
) -> None:
    groups = make(kind)
    groups.world.add(*(node(f"n{number}", cpu="8") for number in range(5)), groups.group(12))
    groups.schedule(*(groups.member(f"huge-{number:02}", "4") for number in range(12)))
    for name in ("huge-00", "huge-11"):
        explained = groups.world.explain(name)
        assert explained.state == "waiting"
        group, helped = explained.group, explained.help
        assert (group.fits, group.fit_together, group.min_count) == (False, 10, 12)
        (blocking,) = group.blocking
        assert blocking.count == 2
        assert blocking.pods[0].startswith("default/huge-")
        (reason,) = blocking.rejected
        assert (reason.plugin, reason.reasons, reason.count) == (
            "NodeResourcesFit",
            ("Insufficient cpu",),
            5,
        )
        assert "12 pods of group default/g are needed together, 10 fit" in explained.summary
        assert "an error" not in explained.summary
        # Since 1.38 a pod that fits, or is not tried any more, waits for its group alone.
        waits_for = "GangScheduling" if kind == "PodGroup 1.38" else "NodeResourcesFit"
        assert explained.waiting.rejected_by == (waits_for,)
        assert explained.waiting.events or explained.waiting.queue != "unschedulable"
        assert helped.fits_now == 0
        # 8 CPUs hold 3 pods of 2666m; 2 pods more than 10 need that on two nodes at least.
        assert by_changes(helped.nodes) == [
            ("each of 12 pods", "request 1334m less cpu: 2666m instead of 4")
        ]
        assert helped.nodes[0].changes[0].minimal
        changed = {text for _, text in by_changes(helped.changed_nodes)}
        assert changed == {"add 8 allocatable cpu: 16 instead of 8"}
        (fewer,) = helped.changed_group
        assert fewer.text == "need 10 pods together instead of 12"
        assert (helped.new_node_like[:1], helped.new_nodes) == ("n", 1)
    groups.world.scheduler.cache.validate()
    groups.world.scheduler.queue.validate()


def test_pods_that_are_held_at_permit_count_for_those_that_wait(make: Any) -> None:
    groups = make("Coscheduling permit")
    groups.world.add(*(node(f"n{number}", cpu="8") for number in range(5)), groups.group(12))
    groups.schedule(*(groups.member(f"huge-{number:02}", "4") for number in range(12)))
    found = [groups.world.explain(f"huge-{number:02}") for number in range(12)]
    held = [one for one in found if one.state == "binding"]
    waiting = [one for one in found if one.state == "waiting"]
    assert held or waiting
    for one in held:
        assert f"{one.group.scheduled} of 12 so far" in one.summary
        assert "held at Permit until enough pods of its group default/g" in one.summary
    for one in waiting:
        assert (one.group.fits, one.group.fit_together) == (False, 10)
        if one.waiting.queue != "active":
            assert "12 pods of group default/g are needed together, 10 fit" in one.summary


def test_without_time_the_summary_is_that_of_the_last_attempt(
    make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups = make("Coscheduling plan")
    groups.world.add(node("a", cpu="8"), groups.group(3))
    groups.schedule(*(groups.member(f"p{number}", "4") for number in range(3)))
    monkeypatch.setattr(explainer, "LIMIT_SECONDS", 0.0)
    explained = groups.world.explain("p0")
    assert explained.help.incomplete
    assert "3 pods are needed together, 2 fit, pod default/p2: 0/1 nodes" in explained.summary


@pytest.mark.parametrize("kind", KINDS)
def test_asking_about_a_group_changes_nothing(make: Any, kind: str) -> None:
    groups = make(kind)
    groups.world.add(node("a", cpu="8"), groups.group(3))
    groups.schedule(*(groups.member(f"p{number}", "4") for number in range(3)))
    scheduler, records = groups.world.scheduler, groups.world.recorder.records
    attempts = records.attempts
    before = [(one.key, one.attempts, one.info) for one in scheduler.queue.backoff_pods()]
    first = groups.world.explain("p2")
    assert groups.world.explain("p2") == first
    after = [(one.key, one.attempts, one.info) for one in scheduler.queue.backoff_pods()]
    assert before == after
    assert records.attempts == attempts
    assert groups.world.scheduler.cache.table[0].requested["cpu"] == 0
    assert not list(scheduler.waiting_pods)


@pytest.mark.parametrize("kind", KINDS)
def test_the_changes_of_a_group_work(make: Any, kind: str) -> None:
    groups = make(kind)
    groups.world.add(node("a", cpu="8"), groups.group(3))
    groups.schedule(*(groups.member(f"p{number}", "4") for number in range(3)))
    (helped,) = groups.world.explain("p0").help.nodes
    (change,) = helped.changes
    again = make(kind)
    again.world.add(node("a", cpu="8"), again.group(3))
    again.schedule(*(again.member(f"p{number}", change.after) for number in range(3)))
    assert {again.world.explain(f"p{n}").state for n in range(3)} == {"bound"}


@pytest.mark.parametrize("kind", KINDS)
def test_a_constraint_of_all_pods_is_a_change_of_all(make: Any, kind: str) -> None:
    groups = make(kind)
    groups.world.add(node("a", cpu="8", zone="x"), groups.group(2))
    selector = {"nodeSelector": {"zone": "y"}}
    groups.schedule(*(groups.member(f"p{number}", "4", **selector) for number in range(2)))
    helped = groups.world.explain("p0").help
    assert by_changes(helped.nodes) == [("each of 2 pods", "do not select zone=y")]
    assert by_changes(helped.changed_nodes) == [("a", "add the label zone=y")]


@pytest.mark.parametrize("kind", KINDS)
def test_a_group_of_unequal_pods_is_blocked_by_the_large_one(make: Any, kind: str) -> None:
    groups = make(kind)
    groups.world.add(node("a", cpu="4"), node("b", cpu="4"), groups.group(3))
    pods = (groups.member("leader", "6"), groups.member("w0", "1"), groups.member("w1", "1"))
    groups.schedule(*pods)
    explained = groups.world.explain("w0")
    (blocking,) = explained.group.blocking
    assert (blocking.pods, blocking.count) == (("default/leader",), 1)
    (helped,) = explained.help.nodes
    assert (helped.pods, [one.after for one in helped.changes]) == (1, ["4"])


@pytest.mark.parametrize("kind", KINDS)
def test_a_group_that_fits_by_now_is_only_to_be_retried(make: Any, kind: str) -> None:
    groups = make(kind)
    groups.world.add(node("a", cpu="4"), groups.group(2))
    groups.schedule(groups.member("p0", "3"), groups.member("p1", "3"))
    before = groups.world.explain("p0")
    assert before.group.fits is False
    if before.waiting.queue != "active":
        # The attempt is in the record; how many fit is asked anew.
        assert " failed. Now: 2 pods of group" in before.summary
    groups.world.add(node("b", cpu="4"))
    explained = groups.world.explain("p0")
    assert explained.group.fits
    assert not explained.help.nodes
    if explained.waiting.queue != "active":
        assert "They fit now." in explained.summary


@pytest.mark.parametrize("kind", KINDS)
def test_a_group_without_its_object(make: Any, kind: str) -> None:
    groups = make(kind)
    groups.world.add(node("a"))
    groups.schedule(groups.member("one"))
    explained = groups.world.explain("one")
    assert not explained.group.exists
    assert "PodGroup default/g does not exist" in explained.summary
    if groups.kind.startswith("PodGroup "):
        # No attempt says why: lists have what is missing.
        why = groups.world.explainer.why_waiting("default/one")
        assert why == "PodGroup default/g does not exist: the pod waits until it is created"
        assert groups.world.explainer.why_waiting("default/unknown") == ""
    queue = groups.world.explainer.queue()
    if groups.kind != "Coscheduling permit":
        assert ("error",) not in [one.plugins for one in queue.reasons]
        assert sum(one.count for one in queue.reasons) == 1
    (listed,) = queue.groups
    assert listed.group.missing == "PodGroup default/g"


def test_a_pod_of_a_missing_group_is_in_the_queue_incomplete(grouped: Groups) -> None:
    grouped.world.add(node("a"))
    grouped.schedule(grouped.member("one"))
    assert grouped.world.explain("one").waiting.queue == "incomplete"
    (reason,) = grouped.world.explainer.queue().reasons
    assert (reason.plugins, reason.count) == (("no PodGroup",), 1)


@pytest.mark.parametrize("kind", KINDS)
def test_the_queue_lists_groups_and_the_plugins_that_reject_them(make: Any, kind: str) -> None:
    groups = make(kind)
    groups.world.add(node("a", cpu="2"), groups.group(3))
    groups.schedule(*(groups.member(f"p{number}") for number in range(3)))
    found = groups.world.explainer.queue()
    (listed,) = found.groups
    assert (listed.group.name, listed.waiting, listed.group.min_count) == ("default/g", 3, 3)
    assert listed.message
    plugins = {plugin for reason in found.reasons for plugin in reason.plugins}
    assert "an error" not in plugins
    assert plugins <= {"NodeResourcesFit", "Coscheduling", "GangScheduling"}
    assert "NodeResourcesFit" in {p for one in found.oldest for p in one.rejected_by} | plugins
