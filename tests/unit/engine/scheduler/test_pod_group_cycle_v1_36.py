"""Whole PodGroups: all or nothing, one try for all, what becomes of the others, placements."""

from __future__ import annotations

from typing import Any

import pytest

from proreus.base.feature_gates import FeatureGates
from proreus.base.kubernetes_version import V1_36
from proreus.config.load import default_configuration
from proreus.engine.runtime.registry import Registry
from proreus.framework.cycle_state import CycleState
from proreus.framework.plugin import PermitPlugin, ReservePlugin
from proreus.framework.pod_info import PodInfo
from proreus.framework.status import Status
from proreus.objects.kinds import NODES, PODS
from proreus.objects.pod import Pod, condition_of
from proreus.objects.scheduling import POD_GROUP_SCHEDULED, POD_GROUPS, Condition
from proreus.offline.cluster import OfflineCluster
from proreus.plugins import IN_TREE_PLUGINS
from proreus.testing import make_node, make_pod

GANGS = ("GenericWorkload=true", "GangScheduling=true")
TOPOLOGY = (*GANGS, "TopologyAwareWorkloadScheduling=true")
HELD = (
    "pod group is unschedulable, waiting for minCount pods from a gang to be scheduled, "
    "one or more plugins asked to wait and no plugin rejected pod"
)


class Cluster(OfflineCluster):
    """The default profile over an API in memory, with gates."""

    def __init__(
        self,
        *gates: str,
        config: Any = None,
        plugins: tuple[Any, ...] = (),
        asynchronous: bool = False,
    ) -> None:
        registry = Registry([*IN_TREE_PLUGINS, *plugins])
        settings = [*gates, f"SchedulerAsyncPreemption={asynchronous}"]
        parsed = FeatureGates.from_list(settings, V1_36)
        super().__init__(config or default_configuration(registry, parsed), registry, parsed)

    def nodes(self, **cpus: str) -> None:
        for name, cpu in cpus.items():
            self.api.put(NODES, make_node(name, cpu))

    def group(self, name: str = "g", min_count: int | None = None, **spec: Any) -> None:
        policy = {"basic": {}} if min_count is None else {"gang": {"minCount": min_count}}
        self.api.add(
            {
                "kind": "PodGroup",
                "metadata": {"name": name, "namespace": "default", "generation": 1},
                "spec": {"schedulingPolicy": policy, **spec},
            }
        )

    def pods(self, *names: str, group: str = "g", cpu: str = "1", **fields: Any) -> None:
        spec = {"schedulingGroup": {"podGroupName": group}} if group else {}
        for name in names:
            pod = make_pod(name, cpu, spec={**spec, **fields.pop("spec", {})}, **fields)
            self.api.put(PODS, pod.pod)

    def pod(self, name: str) -> Pod:
        return self.api.store(PODS)[f"default/{name}"]

    def placed(self) -> dict[str, str]:
        """Node by pod, of those that have one."""
        pods = self.api.store(PODS).values()
        return {p.metadata.name: p.spec.node_name for p in pods if p.spec.node_name}

    def message(self, name: str) -> str:
        condition = condition_of(self.pod(name), "PodScheduled")
        return "" if condition is None else condition.message

    def condition(self, name: str = "g") -> Condition | None:
        return self.api.store(POD_GROUPS)[f"default/{name}"].condition(POD_GROUP_SCHEDULED)

    def attempts(self) -> dict[str, float]:
        family = self.metrics.podgroup_schedule_attempts_total
        results = ("scheduled", "unschedulable", "waiting_on_preemption", "error")
        counts = {r: family.labels(r, "default-scheduler", "podgroup").value for r in results}
        return {result: count for result, count in counts.items() if count}

    def gated(self) -> list[str]:
        return sorted(queued.info.name for queued in self.scheduler.queue.gated_pods())

    async def cycle(self) -> str:
        """Make one attempt for the next pod and all that come with it; return the pod's node."""
        outcome = await self.schedule_next()
        assert outcome is not None, "no pod is ready to be scheduled"
        self.scheduler.cache.validate()
        self.scheduler.queue.validate()
        return outcome[1]


# ---- all or nothing ------------------------------------------------------------------------------


async def test_a_gang_that_fits_is_bound_in_one_cycle() -> None:
    cluster = Cluster(*GANGS)
    cluster.nodes(a="2", b="2")
    cluster.group(min_count=3)
    cluster.pods("p", "q", "r")

    assert await cluster.cycle()
    assert sorted(cluster.placed()) == ["p", "q", "r"]
    assert await cluster.schedule_next() is None
    condition = cluster.condition()
    assert condition is not None
    assert (condition.status, condition.reason, condition.message) == ("True", "Scheduled", "")
    assert condition.observed_generation == 1
    assert cluster.attempts() == {"scheduled": 1}
    state = cluster.scheduler.cache.pod_group_states.get("default/g")
    assert state is not None
    assert (state.all_pods_count, state.scheduled_count, len(state.assumed)) == (3, 3, 0)


async def test_a_gang_that_does_not_fit_leaves_nothing_behind() -> None:
    cluster = Cluster(*GANGS)
    cluster.nodes(a="2")
    cluster.group(min_count=3)
    cluster.pods("p", "q", "r")

    assert not await cluster.cycle()
    assert not cluster.placed()
    assert cluster.scheduler.cache.assumed_count == 0
    assert not len(cluster.scheduler.waiting_pods)
    assert cluster.scheduler.queue.in_flight_count == 0
    last, *others = sorted(cluster.message(name) for name in "pqr")
    assert others == [HELD, HELD]
    assert last.startswith("0/1 nodes are available: 1 Insufficient cpu.")
    condition = cluster.condition()
    assert condition is not None
    assert (condition.status, condition.reason) == ("False", "Unschedulable")
    assert condition.message == "pod group is unschedulable"
    assert cluster.attempts() == {"unschedulable": 1}


async def test_all_pods_of_a_failed_gang_come_back_by_backoff() -> None:
    cluster = Cluster(*GANGS)
    cluster.nodes(a="2")
    cluster.group(min_count=3)
    cluster.pods("p", "q", "r")
    await cluster.cycle()

    assert len(cluster.scheduler.queue.backoff_pods()) == 3
    cluster.nodes(b="1")
    cluster.advance(3)
    assert await cluster.cycle()
    assert sorted(cluster.placed()) == ["p", "q", "r"]


async def test_more_pods_than_the_quorum_may_fail_alone() -> None:
    cluster = Cluster(*GANGS)
    cluster.nodes(a="2")
    cluster.group(min_count=2)
    cluster.pods("p", "q", "r")

    await cluster.cycle()
    assert sorted(cluster.placed()) == ["p", "q"]
    assert cluster.message("r").startswith("0/1 nodes are available: 1 Insufficient cpu.")
    assert cluster.attempts() == {"scheduled": 1}


async def test_a_late_pod_joins_a_gang_that_runs() -> None:
    cluster = Cluster(*GANGS)
    cluster.nodes(a="4")
    cluster.group(min_count=2)
    cluster.pods("p", "q")
    await cluster.cycle()
    cluster.pods("late")

    assert await cluster.cycle() == "a"


async def test_a_group_once_scheduled_stays_so() -> None:
    cluster = Cluster(*GANGS)
    cluster.nodes(a="2")
    cluster.group(min_count=2)
    cluster.pods("p", "q")
    await cluster.cycle()
    cluster.pods("late")

    assert not await cluster.cycle()
    condition = cluster.condition()
    assert condition is not None
    assert condition.status == "True"


async def test_pods_of_a_basic_group_go_one_by_one() -> None:
    cluster = Cluster(*GANGS)
    cluster.nodes(a="2")
    cluster.group()
    cluster.pods("p", "q", "r")

    await cluster.cycle()
    assert sorted(cluster.placed()) == ["p", "q"]


async def test_the_most_important_pods_of_a_group_go_first() -> None:
    cluster = Cluster(*GANGS)
    cluster.nodes(a="2")
    cluster.group()
    cluster.pods("p", "q")
    cluster.pods("urgent", priority=10)

    await cluster.cycle()
    assert sorted(cluster.placed()) == ["p", "urgent"]


# ---- waiting for the group -----------------------------------------------------------------------


async def test_pods_wait_for_their_group_and_for_each_other() -> None:
    cluster = Cluster(*GANGS)
    cluster.nodes(a="4")
    cluster.pods("p")
    assert cluster.gated() == ["p"]

    cluster.group(min_count=2)
    assert cluster.gated() == ["p"]
    cluster.pods("q")
    assert not cluster.gated()
    await cluster.cycle()
    assert sorted(cluster.placed()) == ["p", "q"]


async def test_pods_of_another_group_open_no_gate() -> None:
    cluster = Cluster(*GANGS)
    cluster.group(min_count=2)
    cluster.group("h", min_count=2)
    cluster.pods("p")
    cluster.pods("x", group="h")

    assert cluster.gated() == ["p", "x"]


async def test_a_pod_that_is_deleted_counts_no_more() -> None:
    cluster = Cluster(*GANGS)
    cluster.group(min_count=2)
    cluster.pods("p")
    cluster.api.remove("Pod", "default/p")
    cluster.pods("q")

    assert cluster.gated() == ["q"]


async def test_pods_under_way_to_deletion_are_left_out() -> None:
    cluster = Cluster(*GANGS)
    cluster.nodes(a="4")
    cluster.group(min_count=2)
    cluster.pods("p", "q")
    cluster.pods("gone", metadata={"deletionTimestamp": "2024-01-01T00:00:00Z"})

    await cluster.cycle()
    assert sorted(cluster.placed()) == ["p", "q"]
    assert cluster.scheduler.queue.in_flight_count == 0


# ---- failures ------------------------------------------------------------------------------------


async def test_all_pods_of_a_group_belong_to_one_scheduler() -> None:
    registry = Registry(IN_TREE_PLUGINS)
    gates = FeatureGates.from_list(list(GANGS), V1_36)
    config = default_configuration(registry, gates)
    [profile] = config.profiles
    other = profile.model_copy(update={"scheduler_name": "other"})
    cluster = Cluster(*GANGS, config=config.model_copy(update={"profiles": (profile, other)}))
    cluster.nodes(a="4")
    cluster.group(min_count=2)
    cluster.pods("p")
    cluster.pods("q", scheduler_name="other")

    assert not await cluster.cycle()
    text = "all pods in a single pod group should have the same .spec.schedulerName set, got: "
    assert cluster.message("p") == cluster.message("q")
    assert cluster.message("p").startswith(text)
    condition = condition_of(cluster.pod("p"), "PodScheduled")
    assert condition is not None
    assert condition.reason == "SchedulerError"


class Books(ReservePlugin):
    """Notes who is in its books; fails for a pod named bad."""

    def __init__(self, args: Any, handle: Any) -> None:
        super().__init__(args, handle)
        BOOKS.clear()

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        if pod.name == "bad":
            return Status.error("out of ink")
        BOOKS.append(pod.name)
        return None

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        if pod.name in BOOKS:
            BOOKS.remove(pod.name)


BOOKS: list[str] = []


class Picky(PermitPlugin):
    """Turns down a pod named unwanted."""

    def permit(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        return Status.unschedulable("not this one") if pod.name == "unwanted" else None


def with_plugins(*plugins: Any) -> Cluster:
    registry = Registry([*IN_TREE_PLUGINS, *plugins])
    gates = FeatureGates.from_list(list(GANGS), V1_36)
    config = default_configuration(registry, gates)
    [profile] = config.profiles
    enabled = profile.plugins.multi_point.enabled
    refs = tuple(type(enabled[0])(name=plugin.name) for plugin in plugins)
    multi_point = profile.plugins.multi_point.model_copy(update={"enabled": (*enabled, *refs)})
    plugged = profile.plugins.model_copy(update={"multi_point": multi_point})
    profiles = (profile.model_copy(update={"plugins": plugged}),)
    return Cluster(*GANGS, config=config.model_copy(update={"profiles": profiles}), plugins=plugins)


async def test_an_error_stops_the_whole_group_and_undoes_it() -> None:
    cluster = with_plugins(Books)
    cluster.nodes(a="4")
    cluster.group(min_count=1)
    cluster.pods("p", "bad", "q")

    assert not await cluster.cycle()
    assert not BOOKS
    assert not cluster.placed()
    error = 'running Reserve plugin "Books": out of ink'
    assert cluster.message("bad") == error
    text = f"failed to schedule other pod from a pod group: {error}"
    assert cluster.message("p") == cluster.message("q") == text
    condition = cluster.condition()
    assert condition is not None
    assert (condition.reason, condition.message) == ("SchedulerError", text)
    assert cluster.attempts() == {"error": 1}


async def test_reservations_are_made_twice_and_kept_once() -> None:
    cluster = with_plugins(Books)
    cluster.nodes(a="4")
    cluster.group(min_count=2)
    cluster.pods("p", "q")

    await cluster.cycle()
    assert sorted(BOOKS) == ["p", "q"]


async def test_a_pod_that_permit_turns_down_does_not_count() -> None:
    cluster = with_plugins(Picky)
    cluster.nodes(a="4")
    cluster.group(min_count=2)
    cluster.pods("p", "unwanted")

    assert not await cluster.cycle()
    assert cluster.message("unwanted") == "0/1 nodes are available: 1 not this one."
    assert cluster.message("p") == HELD


async def test_without_nodes_the_group_waits() -> None:
    cluster = Cluster(*GANGS)
    cluster.group(min_count=1)
    cluster.pods("p")

    assert not await cluster.cycle()
    assert cluster.message("p") == "no nodes available to schedule pods"


# ---- preemption ----------------------------------------------------------------------------------


async def test_a_gang_waits_for_the_victims_of_its_pods_to_go() -> None:
    cluster = Cluster(*GANGS)
    cluster.nodes(a="1", b="1")
    cluster.pods("cheap", group="", priority=1, node_name="a")
    cluster.group(min_count=2)
    cluster.pods("p", "q", priority=10)

    assert not await cluster.cycle()
    assert cluster.api.deleted == ["default/cheap"]
    waits = "pod group is unschedulable, pod group is waiting for preemption to complete"
    condition = cluster.condition()
    assert condition is not None
    assert condition.message == waits
    assert cluster.attempts() == {"waiting_on_preemption": 1}
    nominated = {n: cluster.pod(n).status.nominated_node_name for n in "pq"}
    assert sorted(nominated.values()) == ["a", "b"]
    [fitting] = [name for name, node in nominated.items() if node == "b"]
    assert cluster.message(fitting) == waits
    [other] = [name for name, node in nominated.items() if node == "a"]
    assert cluster.message(other) == "0/2 nodes are available: 2 Insufficient cpu."

    cluster.advance(3)
    assert await cluster.cycle() == nominated["p"] or cluster.placed()
    assert cluster.placed() == nominated


async def test_preemption_that_does_not_make_the_gang_fit_nominates_nobody() -> None:
    cluster = Cluster(*GANGS)
    cluster.nodes(a="1")
    cluster.pods("cheap", group="", priority=1, node_name="a")
    cluster.group(min_count=2)
    cluster.pods("p", "q", priority=10)

    assert not await cluster.cycle()
    assert cluster.attempts() == {"unschedulable": 1}
    assert not any(cluster.pod(name).status.nominated_node_name for name in "pq")
    assert HELD in (cluster.message("p"), cluster.message("q"))


async def test_nominations_outlive_a_failed_group_attempt() -> None:
    cluster = Cluster(*GANGS)
    cluster.nodes(a="1", b="1")
    cluster.group(min_count=3)
    cluster.pods("p", status={"nominatedNodeName": "a"})
    cluster.pods("q", "r")
    queue = cluster.scheduler.queue
    seen: list[str | None] = []
    handle = cluster.scheduler._failures.handle

    def look(attempt: Any, failure: Any) -> None:
        if attempt.pod.name == "p":
            seen.append(queue.nominator.nominated_node_of(attempt.pod.uid))
        handle(attempt, failure)

    cluster.scheduler.pod_group_cycle_v1_36._failures.handle = look  # type: ignore[union-attr,method-assign]
    await cluster.cycle()
    assert seen == ["a"]


# ---- placements ----------------------------------------------------------------------------------


def zones(cluster: Cluster, **cpus: tuple[str, str]) -> None:
    for name, (zone, cpu) in cpus.items():
        labels = {"topology.kubernetes.io/zone": zone} if zone else {}
        cluster.api.put(NODES, make_node(name, cpu, labels=labels))


ZONE = {"schedulingConstraints": {"topology": [{"key": "topology.kubernetes.io/zone"}]}}


async def test_a_group_goes_into_the_one_zone_that_has_capacity() -> None:
    cluster = Cluster(*TOPOLOGY)
    zones(cluster, a=("x", "1"), b=("x", "1"), c=("y", "2"), d=("y", "2"), e=("", "9"))
    cluster.group(min_count=3, **ZONE)
    cluster.pods("p", "q", "r")

    await cluster.cycle()
    assert set(cluster.placed().values()) <= {"c", "d"}
    assert len(cluster.placed()) == 3


async def test_no_zone_has_capacity() -> None:
    cluster = Cluster(*TOPOLOGY)
    zones(cluster, a=("x", "1"), b=("y", "2"), c=("", "9"))
    cluster.group(min_count=3, **ZONE)
    cluster.pods("p", "q", "r")

    assert not await cluster.cycle()
    condition = cluster.condition()
    assert condition is not None
    assert condition.message == (
        "0/2 placements are available, first placement status: pod group is unschedulable"
    )
    assert sum("0/1 nodes are available: 1 Insufficient cpu." in cluster.message(n) for n in "pqr")
    assert "due to placement-based pod group scheduling limitation" in "".join(
        cluster.message(name) for name in "pqr"
    )


async def test_no_zone_at_all() -> None:
    cluster = Cluster(*TOPOLOGY)
    cluster.nodes(a="9")
    cluster.group(min_count=2, **ZONE)
    cluster.pods("p", "q")

    assert not await cluster.cycle()
    assert cluster.message("p") == cluster.message("q") == "no feasible placements found"


async def test_the_zone_that_takes_more_pods_is_better() -> None:
    cluster = Cluster(*TOPOLOGY)
    zones(cluster, a=("x", "2"), b=("y", "4"), c=("z", "3"))
    cluster.group(min_count=2, **ZONE)
    cluster.pods("p", "q", "r", "s")

    await cluster.cycle()
    assert cluster.placed() == dict.fromkeys("pqrs", "b")


async def test_of_zones_that_take_all_the_fuller_is_better() -> None:
    cluster = Cluster(*TOPOLOGY)
    zones(cluster, a=("x", "8"), b=("y", "4"), c=("z", "8"))
    cluster.group(min_count=2, **ZONE)
    cluster.pods("p", "q")

    await cluster.cycle()
    assert cluster.placed() == {"p": "b", "q": "b"}


async def test_a_group_stays_where_its_pods_are() -> None:
    cluster = Cluster(*TOPOLOGY)
    zones(cluster, a=("x", "8"), b=("y", "4"))
    cluster.group(**ZONE)
    cluster.pods("there", node_name="a")
    cluster.pods("p")

    assert await cluster.cycle() == "a"


async def test_spreading_counts_nodes_outside_of_the_placement_too() -> None:
    cluster = Cluster(*TOPOLOGY)
    for name, zone in (("a", "x"), ("b", "x"), ("c", "y")):
        labels = {"topology.kubernetes.io/zone": zone}
        cluster.api.put(NODES, make_node(name, "1" if name == "c" else "4", labels=labels))
    cluster.group(min_count=4, **ZONE)
    spread = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "w"}},
    }
    for name in "pqrs":
        cluster.pods(name, labels={"app": "w"}, spec={"topologySpreadConstraints": [spread]})

    # Node c, where none may go, keeps the skew of a and b at one pod each.
    await cluster.cycle()
    assert cluster.placed() == {}


async def test_without_constraints_all_nodes_are_one_placement() -> None:
    cluster = Cluster(*TOPOLOGY)
    zones(cluster, a=("x", "1"), b=("y", "1"))
    cluster.group(min_count=2)
    cluster.pods("p", "q")

    await cluster.cycle()
    assert sorted(cluster.placed().values()) == ["a", "b"]


# ---- gates ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("gates", [(), ("GenericWorkload=true",)])
async def test_without_gang_scheduling_groups_hold_nobody_back(gates: tuple[str, ...]) -> None:
    cluster = Cluster(*gates)
    cluster.nodes(a="1")
    cluster.pods("p")

    assert await cluster.cycle() == "a"
    assert (cluster.scheduler.pod_group_cycle_v1_36 is None) == (not gates)


async def test_with_gates_off_no_book_is_kept_and_no_metric_shown() -> None:
    cluster = Cluster()
    cluster.pods("p")

    assert cluster.scheduler.cache.pod_group_states.get("default/g") is None
    assert b"scheduler_podgroup" not in cluster.metrics.expose()[0]


# ---- preemption for a whole group ----------------------------------------------------------------

WHOLE = (*GANGS, "WorkloadAwarePreemption=true")


async def test_a_whole_gang_preempts_no_more_than_it_needs() -> None:
    cluster = Cluster(*WHOLE)
    cluster.nodes(a="2", b="2")
    for name, node, priority in (("x", "a", 1), ("y", "a", 3), ("z", "b", 2), ("v", "b", 9)):
        cluster.pods(name, group="", priority=priority, node_name=node)
    cluster.group(min_count=2, priority=5)
    cluster.pods("p", "q", priority=5)

    assert not await cluster.cycle()
    assert cluster.api.deleted == ["default/z", "default/x"]
    assert cluster.attempts() == {"waiting_on_preemption": 1}
    notes = {key: note for key, reason, note in cluster.events.events if reason == "Preempted"}
    uid = cluster.api.store(POD_GROUPS)["default/g"].metadata.uid
    assert set(notes.values()) == {f"Preempted by podgroup {uid} on node cluster"}
    assert set(cluster.events.related.values()) == {"default/g"}

    cluster.advance(3)
    await cluster.cycle()
    assert {"p", "q"} <= cluster.placed().keys()


async def test_single_pods_of_a_group_do_not_preempt() -> None:
    cluster = Cluster(*WHOLE)
    cluster.nodes(a="1")
    cluster.pods("x", group="", priority=1, node_name="a")
    cluster.group(min_count=2, priority=5)
    cluster.pods("p", "q", priority=5)

    assert not await cluster.cycle()
    assert not cluster.api.deleted
    text = "preemption: not eligible due to workload aware preemption enabled"
    assert any(text in cluster.message(name) for name in "pq")
    condition = cluster.condition()
    assert condition is not None
    assert condition.message == "pod group is unschedulable, pod group is unschedulable"


async def test_the_condition_shows_the_nodes_as_they_are_not_as_they_were_tried() -> None:
    cluster = Cluster(*WHOLE)
    cluster.nodes(a="1", b="1")
    cluster.pods("x", group="", priority=2, node_name="a")
    cluster.pods("y", group="", priority=1, node_name="b")
    cluster.group(min_count=1, priority=5)
    cluster.pods("p", priority=5, spec={"nodeSelector": {"kubernetes.io/hostname": "a"}})

    # The last dry run is that without x and with y: there p fits.
    assert not await cluster.cycle()
    assert cluster.api.deleted == ["default/x"]
    assert cluster.message("p").startswith(
        "0/2 nodes are available: 1 Insufficient cpu, "
        "1 node(s) didn't match Pod's node affinity/selector."
    )


async def test_a_group_that_is_disrupted_as_one_goes_as_one() -> None:
    cluster = Cluster(*WHOLE)
    cluster.nodes(a="1", b="1", c="1")
    cluster.group("old", disruptionMode="PodGroup", priority=1)
    cluster.pods("x", group="old", node_name="a", priority=7)
    cluster.pods("y", group="old", node_name="b", priority=7)
    cluster.pods("alone", group="", priority=2, node_name="c")
    cluster.group(min_count=1, priority=5)
    cluster.pods("p", priority=5)

    await cluster.cycle()
    assert sorted(cluster.api.deleted) == ["default/x", "default/y"]


@pytest.mark.parametrize(
    ("priority", "spec", "text"),
    [
        (1, {}, "No preemption victims found for incoming preemptor"),
        (5, {"preemptionPolicy": "Never"}, "not eligible due to preemptionPolicy=Never."),
    ],
)
async def test_nobody_is_evicted_without_the_right(priority: int, spec: Any, text: str) -> None:
    cluster = Cluster(*WHOLE)
    cluster.nodes(a="1")
    cluster.pods("x", group="", priority=1, node_name="a")
    cluster.group(min_count=1, priority=priority)
    group = {"schedulingGroup": {"podGroupName": "g"}}
    cluster.pods("p", group="", priority=priority, spec={**group, **spec})

    assert not await cluster.cycle()
    assert not cluster.api.deleted
    condition = cluster.condition()
    assert condition is not None
    assert condition.message == f"pod group is unschedulable, {text}"


async def test_a_budget_spares_its_pods_where_others_will_do() -> None:
    cluster = Cluster(*WHOLE)
    cluster.nodes(a="1", b="1")
    cluster.pods("guarded", group="", priority=1, node_name="a", labels={"app": "db"})
    cluster.pods("other", group="", priority=2, node_name="b")
    cluster.api.add(
        {
            "kind": "PodDisruptionBudget",
            "metadata": {"name": "db", "namespace": "default"},
            "spec": {"selector": {"matchLabels": {"app": "db"}}},
            "status": {"disruptionsAllowed": 0},
        }
    )
    cluster.group(min_count=1, priority=5)
    cluster.pods("p", priority=5)

    await cluster.cycle()
    assert cluster.api.deleted == ["default/other"]


async def test_groups_with_constraints_do_not_preempt() -> None:
    cluster = Cluster(*WHOLE, "TopologyAwareWorkloadScheduling=true")
    zones(cluster, a=("x", "1"))
    cluster.pods("x", group="", priority=1, node_name="a")
    cluster.group(min_count=1, priority=5, **ZONE)
    cluster.pods("p", priority=5)

    await cluster.cycle()
    assert not cluster.api.deleted
    condition = cluster.condition()
    assert condition is not None
    assert condition.message.endswith(
        "workload aware preemption is not supported for pod groups with scheduling constraints"
    )


async def test_most_of_a_large_cluster_is_reprieved_in_few_dry_runs() -> None:
    cluster = Cluster(*WHOLE)
    for number in range(60):
        cluster.nodes(**{f"n{number}": "1"})
        cluster.pods(f"x{number}", group="", priority=1 + number % 3, node_name=f"n{number}")
    cluster.group(min_count=3, priority=5)
    cluster.pods("p", "q", "r", priority=5)
    before = cluster.scheduler.cache.table.position

    await cluster.cycle()
    assert len(cluster.api.deleted) == 3
    assert {cluster.api.deleted[0], cluster.api.deleted[1]} < {
        f"default/x{n}" for n in range(0, 60, 3)
    }
    assert cluster.scheduler.cache.table.position - before < 1000


async def test_a_group_is_kept_out_while_its_victims_are_evicted() -> None:
    cluster = Cluster(*WHOLE, asynchronous=True)
    cluster.nodes(a="1")
    cluster.pods("x", group="", priority=1, node_name="a")
    cluster.group(min_count=1, priority=5)
    cluster.pods("p", priority=5)
    queued = cluster.scheduler.queue.pop()
    assert queued is not None

    await cluster.scheduler.schedule_one(queued)
    assert cluster.gated() == ["p"]
    await cluster.settle()
    assert cluster.api.deleted == ["default/x"]
    cluster.scheduler.queue.activate(["default/p"])
    assert await cluster.cycle() == "a"
