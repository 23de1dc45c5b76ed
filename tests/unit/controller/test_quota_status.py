from datetime import UTC, datetime, timedelta

import pytest

from proreus.addons.capacity_scheduling.queue_objects import (
    ElasticQuotaSource,
    KaiQueue,
    KaiQueueResource,
    KaiQueueResources,
    KaiQueueSpec,
    VolcanoQueue,
    VolcanoQueueSpec,
    VolcanoSource,
)
from proreus.addons.capacity_scheduling.quotas import ElasticQuota, ElasticQuotaSpec
from proreus.addons.pod_amounts import quantities
from proreus.controller.queue_status import kai_queues, volcano_queues
from proreus.controller.quota_status import ElasticQuotaStatuses
from proreus.controller.status_reconciler import WithStatus
from proreus.objects import ObjectMeta, Pod
from proreus.objects.codec import decoder_for


def pod(name: str, cpu: str, phase: str = "Running", node: str = "n", **meta: object) -> Pod:
    return decoder_for(Pod).convert(
        {
            "metadata": {"name": name, "namespace": "ns", "uid": name, **meta},
            "spec": {
                "nodeName": node,
                "containers": [{"resources": {"requests": {"cpu": cpu, "example.com/gpu": "1"}}}],
            },
            "status": {"phase": phase},
        }
    )


def quota(
    name: str, day: int = 1, **spec: dict[str, str | int | float]
) -> WithStatus[ElasticQuota]:
    created = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(days=day)
    meta = ObjectMeta(name=name, namespace="ns", creation_timestamp=created)
    return WithStatus(ElasticQuota(metadata=meta, spec=ElasticQuotaSpec(**spec)), {})


def test_quantities_are_those_of_kubernetes() -> None:
    assert quantities({"memory": 5, "cpu": 1500}) == {"cpu": "1500m", "memory": "5"}
    assert quantities({"cpu": 2000}) == {"cpu": "2"}


def test_running_pods_are_used_and_pods_with_a_node_assigned() -> None:
    statuses = ElasticQuotaStatuses()
    assert list(statuses.put("ns/team", quota("team", min={"cpu": "1"}, max={"cpu": "9"}))) == [
        "ns/team"
    ]
    statuses.put_pod(pod("a", "800m"))
    assert list(statuses.put_pod(pod("b", "700m", "Pending"))) == ["ns/team"]
    statuses.put_pod(pod("c", "4", "Pending", node=""))
    statuses.put_pod(pod("d", "5", "Succeeded"))
    assert statuses.status("ns/team", 0) == {
        "used": {"cpu": "800m", "example.com/gpu": "1"},
        "assigned": {"cpu": "1500m", "example.com/gpu": "2"},
        "borrowed": {"cpu": "500m", "example.com/gpu": "2"},
    }
    statuses.remove_pod(pod("b", "700m"))
    assert statuses.status("ns/team", 0)["borrowed"]["cpu"] == "0"


def test_pods_count_for_the_oldest_quota_or_that_of_their_label() -> None:
    statuses = ElasticQuotaStatuses()
    statuses.put("ns/new", quota("new", 2, min={"cpu": "1"}))
    assert set(statuses.put("ns/old", quota("old", 1, min={"cpu": "1"}))) == {"ns/new", "ns/old"}
    statuses.put_pod(pod("a", "1"))
    statuses.put_pod(pod("b", "2", labels={"quota.scheduling.koordinator.sh/name": "new"}))
    assert statuses.status("ns/old", 0)["used"]["cpu"] == "1"
    assert statuses.status("ns/new", 0)["used"]["cpu"] == "2"
    assert list(statuses.remove("ns/old")) == ["ns/new"]
    assert statuses.status("ns/new", 0)["used"]["cpu"] == "3"


def test_a_quota_that_changes_is_no_work_for_the_others_of_its_namespace() -> None:
    statuses = ElasticQuotaStatuses()
    for day in range(3):
        statuses.put(f"ns/q{day}", quota(f"q{day}", day, min={"cpu": "1"}))
    assert list(statuses.put("ns/q0", quota("q0", 0, min={"cpu": "2"}))) == ["ns/q0"]
    assert list(statuses.put("ns/q1", quota("q1", 1, min={"cpu": "2"}))) == ["ns/q1"]
    assert not list(statuses.remove("ns/q2"))
    assert not list(statuses.remove("ns/q2"))


def test_queues_count_those_below_them() -> None:
    statuses = volcano_queues()
    above = VolcanoQueue(metadata=ObjectMeta(name="all"))
    below = VolcanoQueue(metadata=ObjectMeta(name="team"), spec=VolcanoQueueSpec(parent="all"))
    statuses.put("all", WithStatus(above, {}))
    statuses.put("team", WithStatus(below, {}))
    mine = {"scheduling.volcano.sh/queue-name": "team"}
    assert set(statuses.put_pod(pod("a", "1", annotations=mine))) == {"all", "team"}
    statuses.put_pod(pod("b", "1", "Pending", node="", annotations=mine))
    for name in ("all", "team"):
        assert statuses.status(name, 0) == {"allocated": {"cpu": "1", "example.com/gpu": "1"}}


def test_kais_queues_have_children_and_what_is_requested() -> None:
    statuses = kai_queues()
    statuses.put("all", WithStatus(KaiQueue(metadata=ObjectMeta(name="all")), {}))
    below = KaiQueue(metadata=ObjectMeta(name="team"), spec=KaiQueueSpec(parent_queue="all"))
    statuses.put("team", WithStatus(below, {}))
    statuses.put_pod(pod("b", "1", "Pending", node="", labels={"kai.scheduler/queue": "team"}))
    assert statuses.status("all", 0) == {
        "allocated": {},
        "requested": {"cpu": "1", "example.com/gpu": "1"},
        "childQueues": ["team"],
    }


def test_a_queue_that_cannot_be_read_keeps_no_other_from_its_status() -> None:
    statuses = volcano_queues()
    odd = VolcanoQueue(
        metadata=ObjectMeta(name="odd"), spec=VolcanoQueueSpec(deserved={"cpu": "?"})
    )
    statuses.put("odd", WithStatus(odd, {}))
    statuses.put("team", WithStatus(VolcanoQueue(metadata=ObjectMeta(name="team")), {}))
    statuses.put_pod(pod("a", "1", annotations={"scheduling.volcano.sh/queue-name": "team"}))
    assert statuses.status("team", 0)["allocated"]["cpu"] == "1"


def test_a_queue_of_more_than_a_number_can_be_keeps_no_other_from_its_status() -> None:
    statuses = kai_queues()
    most = KaiQueueResources(memory=KaiQueueResource(quota=1e308))
    odd = KaiQueue(metadata=ObjectMeta(name="odd"), spec=KaiQueueSpec(resources=most))
    statuses.put("odd", WithStatus(odd, {}))
    statuses.put("team", WithStatus(KaiQueue(metadata=ObjectMeta(name="team")), {}))
    statuses.put_pod(pod("a", "1", labels={"kai.scheduler/queue": "team"}))
    assert statuses.status("team", 0)["allocated"]["cpu"] == "1"


def test_a_chain_of_queues_is_built_into_a_tree_once_for_all_statuses() -> None:
    statuses, read = volcano_queues(), []
    queue_of = VolcanoSource.queue_of
    names = [f"q{n}" for n in range(300)]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(
            VolcanoSource, "queue_of", lambda self, obj: read.append(obj) or queue_of(self, obj)
        )
        for above, name in zip(["", *names], names, strict=False):
            obj = VolcanoQueue(metadata=ObjectMeta(name=name), spec=VolcanoQueueSpec(parent=above))
            statuses.put(name, WithStatus(obj, {}))
        leaf = {"scheduling.volcano.sh/queue-name": "q63"}
        statuses.put_pod(pod("a", "1", annotations=leaf))
        found = {name: statuses.status(name, 0)["allocated"] for name in names}
    assert len(read) == len(names)
    assert [name for name in names if found[name]] == names[:64]


def test_the_pods_of_a_namespace_are_divided_among_its_quotas_once() -> None:
    statuses = ElasticQuotaStatuses()
    names = [f"q{n}" for n in range(50)]
    for second, name in enumerate(names):
        statuses.put(f"ns/{name}", quota(name, second, min={"cpu": "1"}))
    for n in range(20):
        statuses.put_pod(pod(str(n), "1"))
    divided = []
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(
            ElasticQuotaSource,
            "queue_named",
            lambda self, name, namespace: divided.append(name) or "q7",
        )
        used = [statuses.status(f"ns/{name}", 0)["used"]["cpu"] for name in names]
    assert len(divided) == 20
    assert [name for name, cpu in zip(names, used, strict=True) if cpu != "0"] == ["q7"]
