from datetime import UTC, datetime

from proreus.addons.capacity_scheduling.queue_objects import (
    KaiQueue,
    KaiQueueSpec,
    VolcanoQueue,
    VolcanoQueueSpec,
)
from proreus.addons.capacity_scheduling.quotas import ElasticQuota, ElasticQuotaSpec
from proreus.controller.amounts import quantities
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
    created = datetime(2026, 1, day, tzinfo=UTC)
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
    statuses.remove("ns/old")
    assert statuses.status("ns/new", 0)["used"]["cpu"] == "3"


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
