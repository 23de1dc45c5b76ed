"""No pod keeps the scheduler for long: an attempt has a budget, and what it cost is waited for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from proreus.base.errors import BudgetExceeded
from proreus.base.feature_gates import FeatureGates
from proreus.config.load import load
from proreus.engine.runtime.plugin_health import FailureRules
from proreus.engine.runtime.registry import Registry
from proreus.framework.attempt_budget import ROWS_BETWEEN_CHECKS, AttemptBudget, CpuTime
from proreus.framework.cycle_state import CycleState
from proreus.framework.node_info import NodeInfo
from proreus.framework.plugin import FilterPlugin, Plugin, PostFilterPlugin, PreFilterPlugin
from proreus.framework.pod_info import PodInfo, QueuedPodInfo
from proreus.framework.post_filter_result import PostFilterResult
from proreus.framework.status import Status
from proreus.framework.verdicts import Verdicts
from proreus.objects.kinds import PODS
from proreus.offline.cluster import OfflineCluster, OfflineOptions
from proreus.plugins import IN_TREE_PLUGINS

Json = dict[str, Any]
DRIVER = "gpu.example.com"
LIMITED = FailureRules(attempt_seconds=1.0)


class Stopwatch:
    """Stands still but for ``advance``, or moves by ``step`` with each look."""

    def __init__(self, step: float = 0.0) -> None:
        self.seconds = 0.0
        self.step = step
        self.looks = 0

    def __call__(self) -> float:
        self.looks += 1
        self.seconds += self.step
        return self.seconds

    def advance(self, seconds: float) -> None:
        self.seconds += seconds


def cluster_with(
    stopwatch: Callable[[], float],
    *plugins: type[Plugin],
    rules: FailureRules = LIMITED,
) -> OfflineCluster:
    gates = FeatureGates()
    registry = Registry((*IN_TREE_PLUGINS, *plugins))
    multi_point: Json = {"enabled": [{"name": plugin.__name__} for plugin in plugins]}
    document = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"plugins": {"multiPoint": multi_point}}],
    }
    options = OfflineOptions(rules=rules, stopwatch=stopwatch)
    return OfflineCluster(load(document, registry, gates), registry, gates, options)


def add_nodes(cluster: OfflineCluster, count: int) -> None:
    capacity = {"cpu": "4", "memory": "8Gi", "pods": "110"}
    for number in range(count):
        cluster.api.add(
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": f"n{number}", "uid": f"n{number}"},
                "status": {"allocatable": capacity, "capacity": capacity},
            }
        )


def add_pod(cluster: OfflineCluster, name: str, **spec: Any) -> None:
    spec = {"schedulerName": "default-scheduler", "containers": [{"name": "c"}], **spec}
    meta = {"name": name, "namespace": "default", "uid": name}
    cluster.api.add({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})


def message_of(cluster: OfflineCluster, name: str) -> tuple[str, str]:
    (condition,) = cluster.api.store(PODS)[f"default/{name}"].status.conditions
    return condition.reason, condition.message


def backing_off(cluster: OfflineCluster) -> QueuedPodInfo:
    (queued,) = cluster.scheduler.queue.backoff_pods()
    return queued


# ---- the budget ----------------------------------------------------------------------------------


def test_what_is_waited_for_does_not_count() -> None:
    stopwatch = Stopwatch()

    async def attempt(budget: AttemptBudget) -> str:
        stopwatch.advance(0.6)
        await asyncio.sleep(0)
        budget.check("A", "Filter")
        stopwatch.advance(0.3)
        with pytest.raises(ValueError, match="a mistake"):
            await failing()
        return "done"

    async def failing() -> None:
        await asyncio.sleep(0)
        raise ValueError("a mistake")

    async def passing_time() -> None:
        stopwatch.advance(100)

    async def run() -> AttemptBudget:
        budget = AttemptBudget(1.0, stopwatch)
        other = asyncio.ensure_future(passing_time())
        assert await budget.measure(attempt(budget)) == "done"
        await other
        return budget

    budget = asyncio.run(run())
    assert budget.used == pytest.approx(0.9)
    assert not budget.exceeded


def test_a_cancelled_attempt_ends() -> None:
    async def run() -> None:
        budget = AttemptBudget(1.0)
        attempt = asyncio.ensure_future(budget.measure(asyncio.sleep(1000)))
        await asyncio.sleep(0)
        attempt.cancel()
        with pytest.raises(asyncio.CancelledError):
            await attempt

    asyncio.run(run())


def test_a_budget_says_who_was_at_work() -> None:
    stopwatch = Stopwatch()
    budget = AttemptBudget(1.0, stopwatch)
    budget.resume()
    stopwatch.advance(1.0)
    budget.check("A", "Filter")
    stopwatch.advance(0.5)
    with pytest.raises(BudgetExceeded) as raised:
        budget.check("B", "Score")
    assert str(raised.value) == (
        "scheduling attempt ended after 1.5s of computation, at most 1s is allowed: "
        'plugin "B" was running at Score'
    )
    assert budget.exceeded


@pytest.mark.parametrize("cpu_seconds", [0.01, 0.9])
def test_time_in_which_the_process_was_stopped_does_not_count(cpu_seconds: float) -> None:
    now, cpu = [0.0], [5.0]
    budget = AttemptBudget(1.0, lambda: now[0], CpuTime(lambda: cpu[0]))
    budget.resume()
    now[0] += 4.7
    cpu[0] += cpu_seconds
    if cpu_seconds > 0.5:
        with pytest.raises(BudgetExceeded, match=r"after 4\.7s"):
            budget.check("NodeName", "Filter")
        assert budget.exceeded
    else:
        budget.check("NodeName", "Filter")
        now[0] += 0.001
        budget.pause()
        assert (round(budget.used, 6), budget.exceeded) == (0.001, False)


def test_a_stop_that_no_check_meets_does_not_count_either() -> None:
    now, cpu = [0.0], [5.0]
    budget = AttemptBudget(1.0, lambda: now[0], CpuTime(lambda: cpu[0]))
    budget.resume()
    now[0] += 4.7
    budget.pause()
    assert budget.used == 0.0


def test_cpu_time_is_not_read_at_every_attempt() -> None:
    now, reads = [0.0], []
    cpu_time = CpuTime(lambda: reads.append(now[0]) or 0.0)
    for _ in range(1000):
        budget = AttemptBudget(1.0, lambda: now[0], cpu_time)
        budget.resume()
        now[0] += 0.0001
        budget.pause()
    assert len(reads) < 20


# ---- an attempt ----------------------------------------------------------------------------------


watch = Stopwatch()
"""Of the plugins below."""


class SlowFilter(FilterPlugin):
    """Takes 10 ms a node, for pods that are named so."""

    asked = 0

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        SlowFilter.asked += 1
        if pod.name.startswith("slow"):
            watch.advance(0.01)
        return None


class SlowPreFilter(PreFilterPlugin):
    """Takes half a second for pods that are named so."""

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: object) -> Status | None:
        watch.advance(0.5 if pod.name.startswith("slow") else 0)
        return Status.unresolvable("not here") if pod.name == "slow-rejected" else None


class SlowPostFilter(PostFilterPlugin):
    """Looks for victims for ever."""

    async def post_filter(
        self, state: CycleState, pod: PodInfo, verdicts: Verdicts
    ) -> PostFilterResult:
        while True:
            watch.advance(0.1)
            state.check_budget(self.name, "PostFilter")


async def test_an_attempt_that_takes_too_long_is_ended_between_nodes() -> None:
    cluster = cluster_with(watch, SlowFilter)
    add_nodes(cluster, 1000)
    SlowFilter.asked = 0
    add_pod(cluster, "slow")

    assert await cluster.schedule_next() == ("default/slow", "")

    assert SlowFilter.asked <= 100 + 2 * ROWS_BETWEEN_CHECKS
    reason, message = message_of(cluster, "slow")
    assert reason == "SchedulerError"
    assert 'plugin "SlowFilter" was running at Filter' in message
    add_pod(cluster, "other")
    assert (await cluster.schedule_next() or ("", ""))[1]


async def test_each_overrun_doubles_the_wait() -> None:
    cluster = cluster_with(watch, SlowFilter)
    add_nodes(cluster, 1000)
    add_pod(cluster, "slow")
    waits = []
    for _ in range(7):
        await cluster.schedule_next()
        assert await cluster.schedule_next() is None
        queued = backing_off(cluster)
        waits.append(round((queued.backoff_expiration or 0) - queued.timestamp))
        cluster.advance(waits[-1] + 1)
    assert waits[0] >= 10
    assert [later / waits[0] for later in waits[1:4]] == pytest.approx([2, 4, 8], rel=0.1)
    assert waits[-1] == 300
    cluster.scheduler.queue.validate()


async def test_a_long_attempt_within_the_budget_is_waited_for_too() -> None:
    cluster = cluster_with(watch, SlowPreFilter)
    add_nodes(cluster, 3)
    add_pod(cluster, "slow-rejected")
    await cluster.schedule_next()
    queue = cluster.scheduler.queue
    assert message_of(cluster, "slow-rejected")[0] == "Unschedulable"
    add_nodes(cluster, 4)  # it may fit now, but is not tried at once

    queue.validate()
    assert await cluster.schedule_next() is None
    queued = backing_off(cluster)
    assert queued.cost_seconds == pytest.approx(0.5)
    assert round((queued.backoff_expiration or 0) - queued.timestamp) == 5
    cluster.advance(6)
    assert (await cluster.schedule_next() or ("", ""))[0] == "default/slow-rejected"


async def test_why_a_pod_does_not_fit_is_reported_though_preemption_took_too_long() -> None:
    cluster = cluster_with(watch, SlowPostFilter)
    add_nodes(cluster, 3)
    add_pod(cluster, "large", nodeSelector={"zone": "a"})
    await cluster.schedule_next()

    reason, message = message_of(cluster, "large")
    assert reason == "Unschedulable"
    assert message.startswith("0/3 nodes are available: 3 node(s) didn't match Pod's node aff")
    assert 'plugin "SlowPostFilter" was running at PostFilter' in message
    (queued,) = cluster.scheduler.queue.unschedulable_pods()
    assert (queued.unschedulable_plugins, queued.consecutive_overruns) == ({"NodeAffinity"}, 1)


async def test_without_a_budget_nobody_looks_at_the_clock() -> None:
    stopwatch = Stopwatch(step=100)
    cluster = cluster_with(stopwatch, SlowFilter, rules=FailureRules())
    add_nodes(cluster, 3)
    add_pod(cluster, "slow")
    assert (await cluster.schedule_next() or ("", ""))[1]
    assert not stopwatch.looks


# ---- devices -------------------------------------------------------------------------------------


def add_devices(cluster: OfflineCluster, nodes: int, devices: int) -> None:
    group = {"apiVersion": "resource.k8s.io/v1"}
    cluster.api.add({**group, "kind": "DeviceClass", "metadata": {"name": "gpu"}, "spec": {}})
    for node in range(nodes):
        listed = [
            {
                "name": f"d{n}",
                "attributes": {"side": {"int": n % 2}, "half": {"int": n // (devices // 2 or 1)}},
            }
            for n in range(devices)
        ]
        pool = {"name": f"n{node}", "generation": 1, "resourceSliceCount": 1}
        spec = {"nodeName": f"n{node}", "driver": DRIVER, "pool": pool, "devices": listed}
        meta = {"name": f"n{node}"}
        cluster.api.add({**group, "kind": "ResourceSlice", "metadata": meta, "spec": spec})


def add_claim(
    cluster: OfflineCluster,
    requests: int,
    name: str = "claim",
    selectors: list[Json] | None = None,
    **more: Any,
) -> None:
    exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}
    if selectors is not None:
        exactly["selectors"] = selectors
    asked = [{"name": f"r{n}", "exactly": exactly} for n in range(requests)]
    devices = {"requests": asked, **more}
    meta = {"name": name, "namespace": "default", "uid": name}
    cluster.api.add(
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": meta,
            "spec": {"devices": devices},
        }
    )


async def test_more_equal_devices_than_there_are_is_rejected_by_counting() -> None:
    """15 of 16 devices must have equal attributes, and 8 do: trying all sets would never end."""
    stopwatch = Stopwatch(step=0.005)
    cluster = cluster_with(stopwatch)
    add_nodes(cluster, 20)
    add_devices(cluster, 20, 16)
    add_claim(cluster, 15, constraints=[{"matchAttribute": f"{DRIVER}/side"}])
    add_pod(cluster, "p", resourceClaims=[{"name": "c", "resourceClaimName": "claim"}])

    await cluster.schedule_next()

    assert stopwatch.looks < 40
    reason, message = message_of(cluster, "p")
    assert reason == "Unschedulable"
    assert message.startswith("0/20 nodes are available: 20 cannot allocate all claims.")


@pytest.mark.parametrize("together", [True, False], ids=["one claim", "two claims"])
async def test_more_devices_than_there_are_is_rejected_by_counting(together: bool) -> None:
    """15 devices of 14: what there is to try has no end."""
    stopwatch = Stopwatch(step=0.005)
    cluster = cluster_with(stopwatch)
    add_nodes(cluster, 20)
    add_devices(cluster, 20, 14)
    claims = {"claim": 15} if together else {"claim": 8, "other": 7}
    for name, count in claims.items():
        add_claim(cluster, count, name)
    wanted = [{"name": name, "resourceClaimName": name} for name in claims]
    add_pod(cluster, "p", resourceClaims=wanted)

    await cluster.schedule_next()

    assert stopwatch.looks < 150
    assert message_of(cluster, "p")[1].startswith(
        "0/20 nodes are available: 20 cannot allocate all claims."
    )


async def test_requests_that_select_the_same_few_devices_are_rejected_by_counting() -> None:
    """9 of side 0, of which there are 8: no constraint says so, but a selector."""
    stopwatch = Stopwatch(step=0.0005)
    cluster = cluster_with(stopwatch)
    add_nodes(cluster, 5)
    add_devices(cluster, 5, 16)
    selector = {"cel": {"expression": f'device.attributes["{DRIVER}"].side == 0'}}
    add_claim(cluster, 9, selectors=[selector])
    add_pod(cluster, "p", resourceClaims=[{"name": "c", "resourceClaimName": "claim"}])

    await cluster.schedule_next()

    assert stopwatch.looks < 150
    assert "5 cannot allocate all claims" in message_of(cluster, "p")[1]


async def test_a_search_for_devices_is_cut_into_parts() -> None:
    """14 of 28 devices with one side and in one half: each is possible, but 7 have both."""
    stopwatch = Stopwatch(step=0.0005)
    cluster = cluster_with(stopwatch)
    add_nodes(cluster, 20)
    add_devices(cluster, 20, 28)
    constraints = [{"matchAttribute": f"{DRIVER}/{name}"} for name in ("side", "half")]
    add_claim(cluster, 14, constraints=constraints)
    add_pod(cluster, "p", resourceClaims=[{"name": "c", "resourceClaimName": "claim"}])

    await cluster.schedule_next()

    assert stopwatch.seconds < 0.1
    assert "it goes on in the next attempt" in message_of(cluster, "p")[1]
    assert backing_off(cluster).consecutive_overruns == 0


async def test_the_clock_is_looked_at_before_each_selector_is_evaluated() -> None:
    """A selector may take milliseconds to compile and tens of milliseconds to evaluate."""
    stopwatch = Stopwatch(step=0.05)
    cluster = cluster_with(stopwatch)
    add_nodes(cluster, 1)
    add_devices(cluster, 1, 1)
    side = f'device.attributes["{DRIVER}"].side'
    selectors = [{"cel": {"expression": f"{side} != {number + 5}"}} for number in range(32)]
    add_claim(cluster, 1, selectors=selectors)
    add_pod(cluster, "p", resourceClaims=[{"name": "c", "resourceClaimName": "claim"}])

    await cluster.schedule_next()

    assert stopwatch.looks < 20
    assert "it goes on in the next attempt" in message_of(cluster, "p")[1]
