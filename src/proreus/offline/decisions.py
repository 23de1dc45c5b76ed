"""Single decisions: one cycle for one pod over a given cluster, told in full."""

from __future__ import annotations

from typing import Any

from proreus.errors import PluginError
from proreus.framework.cycle_state import CycleState
from proreus.framework.diagnosis import Diagnosis, FitError
from proreus.framework.pod_info import PodInfo, PodResourcesOptions
from proreus.framework.post_filter_result import NominatingInfo
from proreus.framework.status import Status
from proreus.framework.verdicts import IntArray
from proreus.objects.codec import decoder_for
from proreus.objects.kinds import PODS
from proreus.objects.pod import Pod
from proreus.offline.api import JsonObject
from proreus.offline.cluster import OfflineCluster
from proreus.runtime.find_nodes import FeasibleNodes
from proreus.runtime.prioritize_nodes import prioritize_nodes, run_pre_score
from proreus.runtime.profile import Profile
from proreus.runtime.scheduling_points import run_post_filter, run_pre_filter
from proreus.scheduler.no_feasible_node import diagnose


async def decide(cluster: OfflineCluster, pod: JsonObject) -> JsonObject:
    """Answer one question; the form is that of the recorded answers (``expect``)."""
    typed = decoder_for(Pod).convert(pod)
    cluster.api.put(PODS, typed)
    # The recorded questions were asked of a scheduler whose queue was empty: nominated pods count
    # there as kube-scheduler counts pods in flight.
    while cluster.scheduler.queue.pop() is not None:
        pass
    key = f"{typed.metadata.namespace}/{typed.metadata.name}"
    info = PodInfo(cluster.api.store(PODS)[key], PodResourcesOptions.of(cluster.feature_gates))
    profiles = cluster.scheduler.profiles
    profile = profiles.get(typed.spec.scheduler_name) or next(iter(profiles.values()))
    try:
        return await _decide(cluster, profile, info)
    except PluginError as error:
        return {"error": str(error)}


async def _decide(cluster: OfflineCluster, profile: Profile, pod: PodInfo) -> JsonObject:
    state, table = CycleState(), cluster.scheduler.cache.table
    answer: JsonObject = {}
    outcome = run_pre_filter(profile, state, pod)
    answer["skipFilter"] = sorted(state.skip_filter)
    answer["preFilter"] = _verdict(outcome.status)
    if outcome.names is not None and outcome.status is None:
        answer["nodeNames"] = sorted(outcome.names)
    found: FeasibleNodes | None = None
    if outcome.status is None:
        found = cluster.scheduler.scheduling_cycle.search(profile, state, pod, outcome.names)
        judged = range(table.size) if found.evaluated is None else found.evaluated.tolist()
        answer["filter"] = {
            table[row].name: _verdict(status)
            for row in judged
            if (status := found.verdicts.status(row)) is not None
        }
        answer["feasible"] = sorted(table[row].name for row in found.rows.tolist())
        if found.count:
            return answer | _scores(cluster, profile, state, pod, found)
    diagnosis = diagnose(profile.table, outcome, found)
    return answer | await _rejection(cluster, profile, state, pod, diagnosis)


def _scores(
    cluster: OfflineCluster, profile: Profile, state: CycleState, pod: PodInfo, found: FeasibleNodes
) -> JsonObject:
    table, rows = cluster.scheduler.cache.table, found.rows.tolist()
    run_pre_score(profile, state, pod, found)
    scores: dict[str, IntArray] = {}
    totals = prioritize_nodes(profile, state, pod, found, scores).scores
    return {
        "skipScore": sorted(state.skip_score),
        "scores": {
            table[row].name: {name: int(values[index]) for name, values in scores.items()}
            for index, row in enumerate(rows)
        },
        "total": {table[row].name: int(totals[row]) for row in rows},
    }


async def _rejection(
    cluster: OfflineCluster,
    profile: Profile,
    state: CycleState,
    pod: PodInfo,
    diagnosis: Diagnosis,
) -> JsonObject:
    message = FitError(cluster.scheduler.cache.table.size, diagnosis).message
    if not profile.post_filter:
        return {"message": message}
    before = len(cluster.api.deleted)
    outcome = await run_post_filter(profile, state, pod, diagnosis.complete())
    await cluster.settle()
    victims = [key.rpartition("/")[2] for key in cluster.api.deleted[before:]]
    preemption: JsonObject = {
        "node": _node_name(outcome.nominating),
        "code": outcome.code.label,
        "message": outcome.message,
    }
    if victims:
        preemption["victims"] = sorted(victims)
    return {"message": message, "preemption": [preemption]}


def _verdict(status: Status | None) -> JsonObject:
    if status is None:
        return {"code": "Success"}
    verdict: dict[str, Any] = {"code": status.code.label}
    if status.plugin:
        verdict["plugin"] = status.plugin
    if status.reasons:
        verdict["reasons"] = sorted(status.reasons)
    return verdict


def _node_name(nominating: NominatingInfo | None) -> str:
    return "" if nominating is None else nominating.node_name
