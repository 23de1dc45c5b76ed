"""CapacityScheduling: a running pod that names another queue stays in the one that let it start."""

from __future__ import annotations

from typing import Any

import pytest

from proreus.addons.capacity_scheduling import CapacityScheduling
from proreus.addons.capacity_scheduling.queue_objects import KaiSource, PodQueues
from proreus.objects import PODS, Pod
from proreus.testing import FakeHandle, Harness, make_pod
from unit.addons.test_capacity_queues import elastic, harness, kai, volcano

QUEUE = "kai.scheduler/queue"
PREEMPTIBLE = "kai.scheduler/preemptibility"


def pod(name: str, queue: str, cpu: str = "1", **more: Any) -> Any:
    labels = {QUEUE: queue} if queue else {}
    return make_pod(name, cpu, labels={**labels, **more.pop("labels", {})}, **more)


def relabel(cluster: Harness, name: str, **labels: str | None) -> None:
    named = {{"queue": QUEUE, "preemptible": PREEMPTIBLE}[key]: one for key, one in labels.items()}
    cluster.patch("Pod", name, {"metadata": {"labels": named}})


def used(cluster: Harness, queue: str) -> int:
    state: Any = cluster.plugin(CapacityScheduling)._state
    found: int = state.accounts.used(queue, "cpu")
    return found


def two_queues() -> Harness:
    limited = {"quota": 5000, "limit": 5000, "overQuotaWeight": 1}
    return harness("KAI", kai("a", limited), kai("b", limited))


@pytest.mark.parametrize("other", ["b", None, "gone"])
def test_a_running_pod_takes_from_no_other_queue_and_frees_nothing(other: str | None) -> None:
    cluster = two_queues()
    for number in range(5):
        assert cluster.schedule(pod(f"a{number}", "a")).node
        relabel(cluster, f"a{number}", queue=other)
    assert (used(cluster, "a"), used(cluster, "b")) == (5000, 0)
    assert not cluster.schedule(pod("more", "a")).node
    for number in range(5):
        assert cluster.schedule(pod(f"b{number}", "b")).node


def test_the_queue_of_other_sources_stays_too() -> None:
    cluster = harness("Volcano", volcano("default"), volcano("b"))
    assert cluster.schedule(make_pod("p", "3")).node
    named = {"scheduling.volcano.sh/queue-name": "b", "volcano.sh/preemptable": "false"}
    cluster.patch("Pod", "p", {"metadata": {"annotations": named}})
    assert (used(cluster, "default"), used(cluster, "b")) == (3000, 0)

    cluster = harness("ElasticQuota", elastic("a", 5), elastic("b", 5))
    name = "quota.scheduling.koordinator.sh/name"
    assert cluster.schedule(make_pod("p", "3", labels={name: "a"})).node
    cluster.patch("Pod", "p", {"metadata": {"labels": {name: "b"}}})
    assert (used(cluster, "a"), used(cluster, "b")) == (3000, 0)


def test_a_pod_that_waits_asks_in_the_queue_that_it_names_now() -> None:
    cluster = two_queues()
    cluster.schedule(pod("full", "a", "5"))
    assert not cluster.schedule(pod("p", "a")).node
    relabel(cluster, "p", queue="b")
    cluster.advance(30)
    cluster.schedule_all()
    assert cluster.outcome("default/p").node
    assert used(cluster, "b") == 1000


def test_a_pod_that_borrows_cannot_refuse_to_give_back() -> None:
    cluster = harness(
        "KAI",
        kai("a", {"quota": 5000, "overQuotaWeight": 1}),
        kai("b", {"quota": 5000, "overQuotaWeight": 1}),
    )
    for number in range(10):
        assert cluster.schedule(pod(f"a{number}", "a")).node
        relabel(cluster, f"a{number}", preemptible="non-preemptible", queue="b")
    assert not cluster.schedule(pod("b0", "b")).node
    assert len(cluster.api.deleted) == 1


def test_a_label_that_changes_before_the_binding_changes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = two_queues()
    bind = cluster.api.bind

    async def relabelled(bound: Pod, node_name: str) -> None:
        patch = {"metadata": {"labels": {QUEUE: "b"}}}
        await cluster.api.patch(PODS, "default", bound.metadata.name, patch)
        await bind(bound, node_name)

    monkeypatch.setattr(cluster.api, "bind", relabelled)
    cluster.schedule(pod("p", "a", "4"))
    cluster.schedule(make_pod("none", "1"))
    assert (used(cluster, "a"), used(cluster, "b")) == (4000, 0)


def test_waiting_pods_are_woken_by_a_pod_that_denies_its_queue() -> None:
    cluster = two_queues()
    cluster.schedule(pod("full", "a", "5"))
    assert not cluster.schedule(pod("p", "a")).node
    relabel(cluster, "full", queue=None)
    cluster.remove("Pod", "full")
    assert cluster.queue_of("default/p") != "unschedulable"
    assert used(cluster, "a") == 0


def test_the_next_configuration_knows_what_was_charged() -> None:
    handle = FakeHandle()
    source: Any = KaiSource()
    queues = PodQueues(source, handle)
    handle.api.put(PODS, pod("p", "a", node_name="n").pod)
    handle.api.put(PODS, pod("p", "b", node_name="n").pod)
    after = PodQueues(source, handle)
    assert queues.name_for(pod("p", "b", node_name="n").pod) == "a"
    assert after.name_for(pod("p", "b", node_name="n").pod) == "a"
