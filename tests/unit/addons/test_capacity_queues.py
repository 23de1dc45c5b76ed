"""CapacityScheduling by queues: Volcano's, KAI's, and ElasticQuotas that are a tree."""

from __future__ import annotations

import os
from random import Random

import pytest

from proreus.addons.capacity_scheduling import CapacityScheduling
from proreus.addons.capacity_scheduling.queue_accounts import QueueAccounts
from proreus.addons.capacity_scheduling.queue_objects import (
    ElasticQuotaSource,
    _shared_weight,
)
from proreus.addons.capacity_scheduling.queue_tree import CapacityQueue
from proreus.addons.capacity_scheduling.quotas import ElasticQuota
from proreus.framework import ConfigError
from proreus.objects import PODS, ObjectMeta
from proreus.testing import Harness, make_node, make_pod

WEEK = 7 * 24
# ``PROREUS_FAIR_SHARE_HOURS=168`` is the week, which takes half a minute.
HOURS = int(os.environ.get("PROREUS_FAIR_SHARE_HOURS", "48"))


def harness(source: str, *queues: dict, cpus: str = "10", nodes: int = 1, **args) -> Harness:
    multi_point = {
        "disabled": [{"name": "DefaultPreemption"}],
        "enabled": [{"name": "CapacityScheduling"}],
    }
    plugin_config = [{"name": "CapacityScheduling", "args": {"queues": {"source": source, **args}}}]
    config = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"plugins": {"multiPoint": multi_point}, "pluginConfig": plugin_config}],
    }
    made = [make_node(f"n{number}", cpus) for number in range(nodes)]
    return Harness([CapacityScheduling], made, queues, config=config)


def volcano(name: str, **spec) -> dict:
    return {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "Queue",
        "metadata": {"name": name},
        "spec": spec,
    }


def kai(name: str, cpu: dict | None = None, **spec) -> dict:
    return {
        "apiVersion": "scheduling.run.ai/v2",
        "kind": "Queue",
        "metadata": {"name": name},
        "spec": {"resources": {"cpu": cpu or {"quota": 0, "overQuotaWeight": 1}}, **spec},
    }


def elastic(name: str, least: int, parent: str = "", **labels: str) -> dict:
    prefix = "quota.scheduling.koordinator.sh/"
    labels |= {"parent": parent} if parent else {}
    return {
        "apiVersion": "scheduling.x-k8s.io/v1alpha1",
        "kind": "ElasticQuota",
        "metadata": {
            "name": name,
            "namespace": name,
            "labels": {prefix + key.replace("_", "-"): value for key, value in labels.items()},
        },
        "spec": {"min": {"cpu": least}, "max": {"cpu": 100}},
    }


def pod(name: str, queue: str, cpu: str = "1", **kwargs):
    metadata = {
        "labels": {"kai.scheduler/queue": queue, **kwargs.pop("labels", {})},
        "annotations": {
            "scheduling.volcano.sh/queue-name": queue,
            **kwargs.pop("annotations", {}),
        },
    }
    return make_pod(name, cpu, metadata=metadata, **kwargs)


def running(cluster: Harness, queue: str) -> int:
    return sum(
        1
        for one in cluster.api.store(PODS).values()
        if one.metadata.labels["kai.scheduler/queue"] == queue and one.spec.node_name
    )


def ask(cluster: Harness, queue: str, count: int, **kwargs) -> None:
    cluster.add(*(pod(f"{queue}-{number}", queue, **kwargs) for number in range(count)))


def settle(cluster: Harness) -> None:
    for _ in range(12):
        cluster.schedule_all()
        cluster.advance(15)


def test_queues_share_by_weight() -> None:
    cluster = harness("Volcano", volcano("a", weight=4), volcano("b", weight=1))
    ask(cluster, "a", 20)
    ask(cluster, "b", 20)
    settle(cluster)
    assert (running(cluster, "a"), running(cluster, "b")) == (8, 2)
    assert "has its fair share of cpu" in cluster.outcome("b-19").message


def test_what_nobody_else_asks_for_is_borrowed_and_reclaimed_in_fair_shares() -> None:
    cluster = harness("KAI", kai("a"), kai("b"))
    ask(cluster, "a", 20, priority=100)
    settle(cluster)
    assert running(cluster, "a") == 10
    ask(cluster, "b", 20)
    settle(cluster)
    assert (running(cluster, "a"), running(cluster, "b")) == (5, 5)
    assert len(cluster.api.deleted) == 5


def test_a_queue_that_is_not_reclaimable_keeps_what_it_has() -> None:
    cluster = harness("Volcano", volcano("a", reclaimable=False), volcano("b", deserved={"cpu": 5}))
    ask(cluster, "a", 10)
    settle(cluster)
    ask(cluster, "b", 5)
    settle(cluster)
    assert not cluster.api.deleted
    assert running(cluster, "b") == 0


def test_pods_are_not_reclaimed_before_their_queue_s_minimal_runtime() -> None:
    cluster = harness("KAI", kai("a", reclaimMinRuntime="1h"), kai("b"))
    ask(cluster, "a", 10)
    settle(cluster)
    for number in range(10):
        start = {"startTime": "2023-11-14T22:13:20Z"}
        cluster.patch("Pod", f"a-{number}", {"status": start})
    ask(cluster, "b", 5)
    settle(cluster)
    assert not cluster.api.deleted
    cluster.advance(3600)
    cluster.schedule_all()
    settle(cluster)
    assert running(cluster, "b") == 5


def test_a_limit_holds_on_every_level() -> None:
    cluster = harness(
        "KAI",
        kai("dev", {"quota": -1, "limit": 3000, "overQuotaWeight": 1}),
        kai("dev-1", parentQueue="dev"),
    )
    ask(cluster, "dev-1", 5)
    settle(cluster)
    assert running(cluster, "dev-1") == 3
    assert 'queue "dev" is at its limit of cpu' in cluster.outcome("dev-1-4").message


def test_what_is_not_preemptible_is_not_borrowed() -> None:
    cluster = harness("KAI", kai("a", {"quota": 2000, "limit": -1, "overQuotaWeight": 1}))
    ask(cluster, "a", 4, labels={"kai.scheduler/preemptibility": "non-preemptible"})
    settle(cluster)
    assert running(cluster, "a") == 2


def test_pods_name_a_queue_that_exists_and_has_none_below() -> None:
    cluster = harness("Volcano", volcano("dev"), volcano("dev-1", parent="dev"))
    outcome = cluster.schedule(pod("p", "nope"))
    assert 'queue "nope" does not exist' in outcome.message
    assert 'queue "dev" has queues below it' in cluster.schedule(pod("q", "dev")).message
    cluster.add(volcano("nope"))
    cluster.advance(10)
    cluster.schedule_all()
    assert cluster.outcome("p").bound
    cluster.remove("Queue", "dev-1", namespace="")
    cluster.advance(10)
    cluster.schedule_all()
    assert cluster.outcome("q").bound


def test_a_pod_that_borrows_wakes_those_that_may_take_it_back() -> None:
    cluster = harness("Volcano", volcano("a"), volcano("b", deserved={"cpu": 2}))
    state = cluster.plugin(CapacityScheduling)._state
    borrower = pod("late", "a", node_name="n0")
    assert not state.may_reclaim(pod("p", "b", "2"), None, borrower.pod), "a has nothing yet"
    cluster.add(borrower)
    cluster.advance(1)
    assert state.may_reclaim(pod("p", "b", "2"), None, borrower.pod)
    assert not state.may_reclaim(pod("p", "b", "3"), None, borrower.pod), "more than b deserves"
    assert not state.may_reclaim(pod("p", "a", "1"), None, borrower.pod)


def test_a_new_node_wakes_the_pods_of_queues_that_share_it() -> None:
    cluster = harness("Volcano", volcano("a"), cpus="1")
    assert not cluster.schedule(pod("p", "a", "2")).bound
    cluster.add(make_node("n1", "4"))
    assert cluster.schedule("p").bound


def test_pods_of_no_queue_pass_and_what_they_have_is_not_divided() -> None:
    cluster = harness("KAI", kai("a"), kai("b"))
    cluster.add(make_pod("system", "4", labels={"kai.scheduler/queue": ""}, node_name="n0"))
    ask(cluster, "a", 9)
    ask(cluster, "b", 9)
    settle(cluster)
    assert (running(cluster, "a"), running(cluster, "b")) == (3, 3)


def test_elastic_quotas_are_a_tree_by_labels() -> None:
    cluster = harness(
        "ElasticQuota",
        elastic("dev", 6, is_parent="true"),
        elastic("dev-1", 6, "dev"),
        elastic("ops", 4, allow_lent_resource="false"),
    )
    cluster.add(
        *(make_pod(f"p{n}", "1", namespace="dev-1", labels={"kai.scheduler/queue": "d"})
          for n in range(9))
    )  # fmt: skip
    settle(cluster)
    assert running(cluster, "d") == 6, "what ops does not lend stays idle"


def test_shares_are_those_of_all_pods_that_ask() -> None:
    random = Random(1)
    kept, pods = QueueAccounts(), {}
    queues = [
        CapacityQueue(name, deserved={"cpu": 3}, weight=1 + n) for n, name in enumerate("abc")
    ]
    for queue in (*queues, CapacityQueue("a-1", "a"), CapacityQueue("a-2", "a")):
        kept.put_queue(queue)
    for number in range(400):
        if pods and random.random() < 0.5:
            kept.forget(uid := random.choice(list(pods)), 0)
            del pods[uid]
        else:
            pods[str(number)] = (
                random.choice(("a-1", "a-2", "b", "c")),
                {"cpu": random.randint(1, 5)},
            )
            kept.note(str(number), *pods[str(number)], False, 0)
        fresh = QueueAccounts()
        for queue in (*queues, CapacityQueue("a-1", "a"), CapacityQueue("a-2", "a")):
            fresh.put_queue(queue)
        for uid, (queue, amounts) in pods.items():
            fresh.note(uid, queue, amounts, False, 0)
        assert kept.shares({"cpu": 20}, 0, 1) == fresh.shares({"cpu": 20}, 0, 1)


def test_a_pod_counts_from_reserve_on_and_after_a_restart() -> None:
    accounts = QueueAccounts()
    accounts.put_queue(CapacityQueue("a"))
    accounts.note("u", "a", {"cpu": 1}, True, 0)
    accounts.note("u", "a", {"cpu": 1}, False, 0)
    assert accounts.used("a", "cpu") == 1, "the watch is behind the reservation"
    accounts.unplace("u", 0)
    assert accounts.used("a", "cpu") == 0
    assert accounts.shares({"cpu": 5}, 0, 1).fair["a"]["cpu"] == 1, "it still asks"
    accounts.forget("u", 0)
    assert accounts.shares({"cpu": 5}, 0, 1).fair == {"a": {"cpu": 0}}

    cluster = harness("Volcano", volcano("a", capability={"cpu": 2}))
    cluster.add(pod("old-1", "a", node_name="n0"), pod("old-2", "a", node_name="n0"))
    assert "at its limit" in cluster.schedule(pod("p", "a")).message


@pytest.mark.parametrize(
    "wrong",
    [
        {"kValue": -1},
        {"halfLife": "0s"},
        {"refreshPeriod": "0s"},
        {"reclaimerUtilizationMultiplier": 0.5},
        {"source": "Yunikorn"},
    ],
)
def test_wrong_arguments_are_refused(wrong: dict) -> None:
    with pytest.raises(ConfigError, match=r"queues"):
        harness(wrong.pop("source", "KAI"), **wrong)


def test_weights_that_are_no_whole_pods_are_reached_over_time() -> None:
    """10 CPUs, weights 1 and 2, jobs of an hour: 3.33 and 6.67 CPUs on average, within 1 %."""
    cluster = harness(
        "Volcano", volcano("a", weight=1), volcano("b", weight=2), kValue=20, halfLife="12h"
    )
    left: dict[str, int] = {}
    used = {"a": 0, "b": 0}
    made = 0
    for hour in range(HOURS):
        for name in [name for name, until in left.items() if until <= hour]:
            cluster.remove("Pod", name)
            del left[name]
        for queue in used:
            waiting = sum(
                1
                for one in cluster.api.store(PODS).values()
                if not one.spec.node_name and one.metadata.labels["kai.scheduler/queue"] == queue
            )
            for _ in range(12 - waiting):
                made += 1
                cluster.add(pod(f"{queue}-{made}", queue))
        cluster.advance(90)
        cluster.schedule_all()
        for key, one in cluster.api.store(PODS).items():
            name = key.partition("/")[2]
            if one.spec.node_name and name not in left:
                left[name] = hour + 1
        for name in left:
            used[name.partition("-")[0]] += 1
        cluster.advance(3510)
    assert not cluster.api.deleted, "nobody was evicted for it"
    assert sum(used.values()) == 10 * HOURS, "nothing was idle"
    assert used["a"] / (10 * HOURS) == pytest.approx(1 / 3, abs=0.01 if HOURS >= WEEK else 0.02)


@pytest.mark.parametrize("text", ["[", '["cpu"]', '{"cpu": "x"}', "[" * 100_000])
def test_a_shared_weight_that_cannot_be_read_is_none(text: str) -> None:
    annotations = {"quota.scheduling.koordinator.sh/shared-weight": text}
    assert _shared_weight(ObjectMeta(name="q", annotations=annotations)) == {}


def test_a_namespace_without_quotas_is_forgotten() -> None:
    source = ElasticQuotaSource()
    quotas = [ElasticQuota(ObjectMeta(name=name, namespace="team")) for name in "ab"]
    for quota in quotas:
        source.note(None, quota)
    for quota in quotas:
        source.note(quota, None)
    assert not source._of_namespaces._objects
    assert not source._of_namespaces.values


def test_a_quota_that_becomes_a_parent_takes_no_pods_of_its_namespace() -> None:
    source, pod = ElasticQuotaSource(), make_pod("p", namespace="team").pod
    first, second = (ElasticQuota(ObjectMeta(name=name, namespace="team")) for name in "ab")
    labels = {"quota.scheduling.koordinator.sh/is-parent": "true"}
    parent = ElasticQuota(ObjectMeta(name="a", namespace="team", labels=labels))
    source.note(None, first)
    source.note(None, second)
    assert source.queue_for(pod) == "a"
    source.note(first, parent)
    assert source.queue_for(pod) == "b"
    source.note(parent, first)
    source.note(second, None)
    assert source.queue_for(pod) == "a"


def test_the_past_of_a_queue_is_forgotten_once_it_counts_no_more() -> None:
    accounts = QueueAccounts(half_life_seconds=60, k=1)
    accounts.put_queue(CapacityQueue("a"))
    for number in range(3):
        accounts.note("u", f"unknown-{number}", {"cpu": 1}, True, 0)
        accounts.forget("u", 10)
    accounts.note("v", "a", {"cpu": 1}, True, 0)
    accounts.shares({"cpu": 5}, 600, 1)
    assert len(accounts._history) == 4
    accounts.shares({"cpu": 5}, 10 + 31 * 60, 1)
    assert list(accounts._history) == ["a"]
