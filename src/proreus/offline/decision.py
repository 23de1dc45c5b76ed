"""One scheduling cycle of a recorded case, with every detail of its result."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from proreus.base.errors import ExtenderError, PluginError
from proreus.engine.cycles.no_feasible_node import diagnose
from proreus.engine.runtime.find_nodes import FeasibleNodes
from proreus.engine.runtime.prioritize_nodes import prioritize_nodes, run_pre_score
from proreus.engine.runtime.profile import Profile
from proreus.engine.runtime.scheduling_points import run_post_filter, run_pre_filter
from proreus.framework.cycle_state import CycleState
from proreus.framework.diagnosis import Diagnosis, FitError
from proreus.framework.pod_info import PodInfo, QueuedPodInfo
from proreus.framework.post_filter_result import NominatingInfo
from proreus.framework.status import Status
from proreus.framework.verdicts import IntArray
from proreus.objects.codec import decoder_for
from proreus.objects.kinds import PODS
from proreus.objects.pod import Pod
from proreus.objects.requests import PodResourcesOptions
from proreus.offline.api import JsonObject
from proreus.offline.case_errors import reading
from proreus.offline.cluster import OfflineCluster


async def decide(cluster: OfflineCluster, pod: JsonObject) -> JsonObject:
    """Run one scheduling cycle; return its results in the form of ``expect``."""
    with reading("pod", pod):
        typed = decoder_for(Pod).convert(pod)
        if not typed.metadata.name:
            raise ValueError("metadata.name: a name is required")
        cluster.api.add({**pod, "kind": "Pod"})
    # The recorded scheduler had an empty queue: nominated pods counted there like pods in flight.
    while cluster.scheduler.queue.pop() is not None:
        pass
    key = f"{typed.metadata.namespace}/{typed.metadata.name}"
    info = PodInfo(cluster.api.store(PODS)[key], PodResourcesOptions.of(cluster.feature_gates))
    profiles = cluster.scheduler.profiles
    profile = profiles.get(typed.spec.scheduler_name) or next(iter(profiles.values()))
    result: JsonObject = {}
    try:
        await _Decision(cluster, profile, info, result).run()
    except (PluginError, ExtenderError) as error:
        # kube-scheduler has an error of PreFilter as the verdict of that point.
        if isinstance(error, PluginError) and error.point == "PreFilter":
            status = Status.error(str(error)).with_plugin(error.plugin)
            result["preFilter"] = _status(status)
        else:
            result["error"] = str(error)
    return result


def compare_in_queue(cluster: OfflineCluster, queue: list[JsonObject]) -> list[str]:
    """Return by row and column which pod of ``queue`` goes before which other: 1 or 0.

    ``added``: the time of a pod's last entry and of its first attempt.
    """
    profile = next(iter(cluster.scheduler.profiles.values()))
    options = PodResourcesOptions.of(cluster.feature_gates)
    keys = []
    for index, one in enumerate(queue):
        with reading(f"queue[{index}]"):
            added = datetime.fromisoformat(one["added"].replace("Z", "+00:00")).timestamp()
            info = PodInfo(decoder_for(Pod).convert(one["pod"]), options)
        queued = QueuedPodInfo(info=info, timestamp=added, initial_attempt_timestamp=added)
        keys.append(profile.queue_sort.sort_key(queued))
    return ["".join("01"[one < other] for other in keys) for one in keys]


class _Decision:
    """The cycle; ``result`` is filled in step by step."""

    def __init__(
        self, cluster: OfflineCluster, profile: Profile, pod: PodInfo, result: JsonObject
    ) -> None:
        self._cluster = cluster
        self._table = cluster.scheduler.cache.table
        self._profile = profile
        self._pod = pod
        self._state = CycleState()
        self._result = result
        extenders = cluster.scheduler.scheduling_cycle.extenders
        self._extenders = extenders
        self._interested = () if extenders is None else extenders.interested_in(pod.pod)

    async def run(self) -> None:
        """Run PreFilter and Filter, then either Score or PostFilter."""
        result, state = self._result, self._state
        outcome = run_pre_filter(self._profile, state, self._pod)
        result["skipFilter"] = sorted(state.skip_filter)
        result["preFilter"] = _status(outcome.status)
        if outcome.names is not None and outcome.status is None:
            result["nodeNames"] = sorted(outcome.names)
        found: FeasibleNodes | None = None
        if outcome.status is None:
            found = await self._find(outcome.names)
            if found.count:
                await self._score(found)
                return
        await self._reject(diagnose(self._profile.table, outcome, found))

    async def _find(self, names: frozenset[str] | None) -> FeasibleNodes:
        cycle = self._cluster.scheduler.scheduling_cycle
        found = cycle.node_search.find(self._profile, self._state, self._pod, names)
        if self._extenders is not None:
            found = await self._extenders.filter(self._interested, self._pod.pod, found)
        rows = range(self._table.size) if found.evaluated is None else found.evaluated.tolist()
        self._result["filter"] = {
            self._table[row].name: _status(status)
            for row in rows
            if (status := found.verdicts.status(row)) is not None
        }
        self._result["feasible"] = sorted(self._table[row].name for row in found.rows.tolist())
        return found

    async def _score(self, found: FeasibleNodes) -> None:
        rows = found.rows.tolist()
        run_pre_score(self._profile, self._state, self._pod, found)
        by_plugin: dict[str, IntArray] = {}
        totals = prioritize_nodes(self._profile, self._state, self._pod, found, by_plugin).scores
        scores = {
            self._table[row].name: {name: int(by_plugin[name][index]) for name in by_plugin}
            for index, row in enumerate(rows)
        }
        total = {self._table[row].name: int(totals[row]) for row in rows}
        if self._extenders is not None:
            added = await self._extenders.scores(self._interested, self._pod.pod, found.rows)
            for url, by_node in added:
                for name in by_node.keys() & total.keys():
                    scores[name][url] = by_node[name]
                    total[name] += by_node[name]
        self._result |= {
            "skipScore": sorted(self._state.skip_score),
            "scores": scores,
            "total": total,
        }

    async def _reject(self, diagnosis: Diagnosis) -> None:
        self._result["message"] = FitError(self._table.size, diagnosis).message
        if not self._profile.post_filter:
            return
        api = self._cluster.api
        before = len(api.deleted)
        outcome = await run_post_filter(self._profile, self._state, self._pod, diagnosis.complete())
        await self._cluster.settle()
        victims = [key.rpartition("/")[2] for key in api.deleted[before:]]
        preemption: JsonObject = {
            "node": _node_name(outcome.nominating),
            "code": outcome.code.label,
            "message": outcome.message,
        }
        if victims:
            preemption["victims"] = sorted(victims)
        self._result["preemption"] = [preemption]


def _status(status: Status | None) -> JsonObject:
    if status is None:
        return {"code": "Success"}
    fields: dict[str, Any] = {"code": status.code.label}
    if status.plugin:
        fields["plugin"] = status.plugin
    if status.reasons:
        fields["reasons"] = sorted(status.reasons)
    return fields


def _node_name(nominating: NominatingInfo | None) -> str:
    return "" if nominating is None else nominating.node_name
