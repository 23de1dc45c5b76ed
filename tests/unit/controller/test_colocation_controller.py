"""Batch resources of nodes by what is measured, and the eviction of offline pods."""

from __future__ import annotations

import dataclasses
import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proreus.base.errors import ApiError, ConfigError, NotFound
from proreus.controller.colocation.batch_resources import BatchResources, left_by_online, to_write
from proreus.controller.colocation.colocation_controller import ColocationController
from proreus.controller.colocation.measurements import CpuAndMemory, Measured
from proreus.controller.colocation.pressure import OfflinePod, Pressure, victims
from proreus.controller.controller_metrics import ControllerMetrics
from proreus.controller.evictions.eviction_record import EvictionRecord
from proreus.controller.evictions.pod_evictor import PodEvictor
from proreus.controller.options import ControllerOptions
from proreus.objects import Pod
from proreus.objects.codec import decoder_for

NODE = CpuAndMemory(10_000, 100)
OPTIONS = ControllerOptions(colocation_period=60, evict_offline=True)


def offline_pod(name: str, priority: int = 5500, **meta: object) -> Pod:
    requests = {"kubernetes.io/batch-cpu": "1000", "kubernetes.io/batch-memory": "1"}
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": name}
    return decoder_for(Pod).convert(
        {
            "metadata": {
                "name": name,
                "namespace": "ns",
                "uid": f"uid-{name}",
                "ownerReferences": [{**owner, "controller": True}],
                **meta,
            },
            "spec": {
                "nodeName": "n",
                "priority": priority,
                "containers": [{"resources": {"requests": requests}}],
            },
            "status": {"phase": "Running"},
        }
    )


# ---- numbers -------------------------------------------------------------------------------------


def test_offline_pods_get_what_online_pods_leave_less_the_margin() -> None:
    assert left_by_online(NODE, CpuAndMemory(4000, 40), [CpuAndMemory(1000, 0)], 30) == (4000, 30)
    # More is used than there should be: nothing is left, never less.
    assert left_by_online(NODE, CpuAndMemory(9000, 90), [], 30) == (0, 0)
    # Metrics of a pod that are newer than those of its node may show more than all of it.
    assert left_by_online(NODE, CpuAndMemory(1000, 10), [CpuAndMemory(2000, 0)], 30) == (7000, 60)


def change(
    written: BatchResources | None, computed: CpuAndMemory, at: float | None, now: float = 1000.0
) -> BatchResources | None:
    measured = None if at is None else Measured(CpuAndMemory(0, 0), at)
    return to_write(written, measured, computed, NODE, OPTIONS, now)


def test_small_changes_wait_for_the_refresh() -> None:
    written = BatchResources(CpuAndMemory(4000, 40), 900)
    assert change(written, CpuAndMemory(4500, 40), 960) is None
    assert change(written, CpuAndMemory(4501, 40), 960) == (CpuAndMemory(4501, 40), 960)
    assert change(written, CpuAndMemory(4000, 34), 960) == (CpuAndMemory(4000, 34), 960)
    assert change(written, CpuAndMemory(4001, 40), 990) == (CpuAndMemory(4001, 40), 990)
    assert change(written, CpuAndMemory(9000, 40), 900) is None


def test_numbers_are_withdrawn_once_they_are_too_old() -> None:
    written = BatchResources(CpuAndMemory(4000, 40), 900)
    assert change(written, CpuAndMemory(4000, 40), None, 1080) is None
    assert change(written, CpuAndMemory(4000, 40), None, 1081) == (CpuAndMemory(0, 0), 900)
    assert change(written, CpuAndMemory(4000, 40), 900, 1081) == (CpuAndMemory(0, 0), 900)
    assert change(BatchResources(CpuAndMemory(0, 0), 900), CpuAndMemory(0, 0), None, 1081) is None
    assert change(None, CpuAndMemory(0, 0), None) is None
    assert change(None, CpuAndMemory(4000, 40), 990) == (CpuAndMemory(4000, 40), 990)


def test_options_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(ConfigError, match="--colocation-period"):
        ControllerOptions(evict_offline=True)
    with pytest.raises(ConfigError, match="less than 100"):
        ControllerOptions(colocation_margin=95)
    with pytest.raises(ConfigError, match="not negative"):
        ControllerOptions(colocation_margin=-1)


# ---- pressure ------------------------------------------------------------------------------------


def test_a_peak_in_one_measurement_is_no_pressure() -> None:
    pressure = Pressure()
    high, low = CpuAndMemory(7001, 0), CpuAndMemory(7000, 0)
    assert not pressure.note("n", Measured(high, 10), NODE, 30)
    assert not pressure.note("n", Measured(high, 10), NODE, 30)
    assert not pressure.note("n", Measured(low, 20), NODE, 30)
    assert not pressure.note("n", Measured(high, 30), NODE, 30)
    assert pressure.note("n", Measured(high, 40), NODE, 30)


def names(pods: list[Pod]) -> list[str]:
    return [one.metadata.name for one in pods]


def test_the_lowest_priority_leaves_first_and_no_more_than_needed() -> None:
    pods = [
        OfflinePod(offline_pod("low-small", 5000), CpuAndMemory(300, 0)),
        OfflinePod(offline_pod("low-large", 5000), CpuAndMemory(900, 0)),
        OfflinePod(offline_pod("high", 5999), CpuAndMemory(3000, 0)),
    ]
    # Down to 65 %: 1000 have to be given back, and 7000 would not do.
    assert names(victims(CpuAndMemory(7500, 0), NODE, pods, OPTIONS)) == ["low-large", "low-small"]
    assert names(victims(CpuAndMemory(7300, 0), NODE, pods, OPTIONS)) == ["low-large"]
    assert victims(CpuAndMemory(7000, 0), NODE, pods, OPTIONS) == []


def test_pods_that_do_not_use_the_short_resource_stay() -> None:
    pods = [OfflinePod(offline_pod("cpu", 5000), CpuAndMemory(3000, 0))]
    assert victims(CpuAndMemory(3000, 90), NODE, pods, OPTIONS) == []
    kept = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}
    pods = [OfflinePod(offline_pod("kept", annotations=kept), CpuAndMemory(9000, 0))]
    assert victims(CpuAndMemory(9000, 0), NODE, pods, OPTIONS) == []


def test_resources_of_terminating_pods_count_as_given_back() -> None:
    leaving = offline_pod("leaving", deletionTimestamp="2026-01-01T00:00:00Z")
    pods = [
        OfflinePod(leaving, CpuAndMemory(2000, 0)),
        OfflinePod(offline_pod("other"), CpuAndMemory(2000, 0)),
    ]
    assert victims(CpuAndMemory(8000, 0), NODE, pods, OPTIONS) == []
    assert names(victims(CpuAndMemory(9000, 0), NODE, pods, OPTIONS)) == ["other"]


AMOUNTS = st.builds(CpuAndMemory, st.integers(0, 4000), st.integers(0, 40))


@settings(deadline=None)
@given(AMOUNTS, st.lists(st.tuples(st.integers(5000, 5003), AMOUNTS), max_size=6))
def test_victims_are_enough_none_is_needless_and_nobody_more_important_goes_first(
    online: CpuAndMemory, offline: list[tuple[int, CpuAndMemory]]
) -> None:
    pods = [
        OfflinePod(offline_pod(str(index), priority), used)
        for index, (priority, used) in enumerate(offline)
    ]
    total = sum_of([online, *(used for _, used in offline)])
    chosen = names(victims(total, NODE, pods, OPTIONS))
    used_by = {str(index): used for index, (_, used) in enumerate(offline)}
    for resource, most in enumerate(NODE):
        gone = sum(used_by[name][resource] for name in chosen)
        others = sum(used[resource] for name, used in used_by.items() if name not in chosen)
        if total[resource] > most * 70 // 100:
            assert total[resource] - gone <= most * 65 // 100 or not others
    if chosen:
        # Without the last one, something would be short still.
        before = [used_by[name] for name in chosen[:-1]]
        gone_before, last = sum_of(before), used_by[chosen[-1]]
        assert any(
            part and now > most * 70 // 100 and now - gone > most * 65 // 100
            for now, gone, most, part in zip(total, gone_before, NODE, last, strict=True)
        )
    priorities = [offline[int(name)][0] for name in chosen]
    assert priorities == sorted(priorities)


def sum_of(amounts: list[CpuAndMemory]) -> CpuAndMemory:
    return CpuAndMemory(sum(one.cpu for one in amounts), sum(one.memory for one in amounts))


# ---- cycles --------------------------------------------------------------------------------------


class Api:
    """A node of 10 CPUs and its metrics, pods that may be evicted, and the record of that."""

    def __init__(self) -> None:
        self.node: dict[str, Any] = {
            "metadata": {"name": "n", "annotations": {}},
            "status": {"allocatable": {"cpu": "10", "memory": "100"}},
        }
        self.usage: dict[str, tuple[str, str]] = {}
        self.measured_at = 0.0
        self.metrics_fail = False
        self.patches: list[dict[str, Any]] = []
        self.evicted: list[str] = []
        self.record: dict[str, Any] | None = None

    async def request(self, method: str, path: str, body: bytes = b"", **_: Any) -> bytes:
        sent = json.loads(body or b"{}")
        match method, path:
            case "GET", "/api/v1/nodes":
                answer: Any = {"metadata": {"resourceVersion": "1"}, "items": [self.node]}
            case "GET", "/apis/metrics.k8s.io/v1beta1/nodes":
                answer = self._metrics(
                    [self.usage.get("n", ("0", "0"))], lambda used: {"usage": used}, ["n"]
                )
            case "GET", "/apis/metrics.k8s.io/v1beta1/pods":
                pods = [name for name in self.usage if name != "n"]
                used = [self.usage[name] for name in pods]
                answer = self._metrics(used, lambda one: {"containers": [{"usage": one}]}, pods)
            case "PATCH", "/api/v1/nodes/n/status":
                self.patches.append(sent)
                self.node["metadata"]["annotations"] |= sent["metadata"]["annotations"]
                self.node["status"]["allocatable"] |= sent["status"]["allocatable"]
                answer = {}
            case _ if "/configmaps" in path:
                answer = self._configmap(method, sent)
            case _:
                name = path.removesuffix("/eviction").rpartition("/")[2]
                answer = {"metadata": {"uid": f"uid-{name}"}}
                if method == "POST":
                    self.evicted.append(name)
        return json.dumps(answer).encode()

    def _metrics(self, used: list[tuple[str, str]], form: Any, names: list[str]) -> Any:
        if self.metrics_fail:
            raise ApiError(503, "ServiceUnavailable", "no endpoints")
        stamp = datetime.fromtimestamp(self.measured_at, UTC).isoformat()
        items = [
            {
                "metadata": {"name": name, "namespace": "" if name == "n" else "ns"},
                "timestamp": stamp,
                **form({"cpu": cpu, "memory": memory}),
            }
            for name, (cpu, memory) in zip(names, used, strict=True)
        ]
        return {"metadata": {}, "items": items}

    def _configmap(self, method: str, sent: dict[str, Any]) -> Any:
        if method == "GET":
            if self.record is None:
                raise NotFound(404, "NotFound", "none yet")
            return self.record
        self.record = sent
        sent["metadata"]["resourceVersion"] = "1"
        return sent


class Cluster:
    """A controller over an ``Api``, and its clock."""

    def __init__(self, *pods: Pod, max_evictions: int = 5) -> None:
        self.api = Api()
        self.now = 0.0
        options = dataclasses.replace(OPTIONS, max_evictions=max_evictions)
        metrics = ControllerMetrics()
        record = EvictionRecord(self.api, "system")  # type: ignore[arg-type]
        evictor = PodEvictor(self.api, record, metrics, 1800, lambda: self.now)  # type: ignore[arg-type]
        self.controller = ColocationController(
            self.api,  # type: ignore[arg-type]
            options,
            lambda: pods,
            evictor,
            metrics,
            lambda: self.now,
        )

    async def cycle(self, at: float, **usage: tuple[str, str]) -> None:
        """Run a cycle at a time, five seconds after a measurement."""
        self.now, self.api.measured_at, self.api.usage = at, at - 5, usage
        await self.controller.cycle()


async def test_a_node_gets_numbers_and_loses_them_without_metrics() -> None:
    cluster = Cluster(offline_pod("batch"))
    await cluster.cycle(1005, n=("4", "40"), batch=("1", "0"))
    quantities = {"kubernetes.io/batch-cpu": "4000", "kubernetes.io/batch-memory": "30"}
    at = {"colocation.proreus.dev/measured-at": "1970-01-01T00:16:40Z"}
    assert cluster.api.patches == [
        {
            "metadata": {"annotations": at},
            "status": {"capacity": quantities, "allocatable": quantities},
        }
    ]
    cluster.api.metrics_fail = True
    await cluster.cycle(1180)
    assert len(cluster.api.patches) == 1
    await cluster.cycle(1181)
    assert cluster.api.patches[1]["status"]["allocatable"] == dict.fromkeys(quantities, "0")
    assert cluster.api.patches[1]["metadata"]["annotations"] == at
    assert cluster.api.evicted == []


async def test_metrics_that_cannot_be_read_are_none() -> None:
    cluster = Cluster()
    await cluster.cycle(1005, n=("4", "40"))
    await cluster.cycle(1190, n=("much", "40"))
    assert [one["status"]["allocatable"] for one in cluster.api.patches][1:] == [
        {"kubernetes.io/batch-cpu": "0", "kubernetes.io/batch-memory": "0"}
    ]


async def test_offline_pods_are_evicted_when_online_pods_need_their_room_back() -> None:
    cluster = Cluster(offline_pod("low", 5000), offline_pod("high", 5999))
    usage = {"n": ("8", "40"), "low": ("2", "1"), "high": ("2", "1")}
    await cluster.cycle(1005, **usage)
    assert cluster.api.evicted == []
    await cluster.cycle(1065, **usage)
    assert cluster.api.evicted == ["low"]
    # It is still there in the next measurement: two more have to say that it was not enough.
    await cluster.cycle(1125, **usage)
    assert cluster.api.evicted == ["low"]


async def test_evictions_keep_to_the_budgets() -> None:
    cluster = Cluster(offline_pod("a"), offline_pod("b"), max_evictions=1)
    usage = {"n": ("10", "40"), "a": ("2", "1"), "b": ("2", "1")}
    for at in (1005, 1065):
        await cluster.cycle(at, **usage)
    assert len(cluster.api.evicted) == 1
