"""``proreus evaluate``: recompute recorded scheduling decisions with the real scheduler.

Cases and results are JSON lines. A case has either ``pod``, one scheduling cycle of which every
detail is returned, or ``steps``, a script that is played step by step in virtual time. An invalid
configuration or feature gate gives the result ``configError``.
"""

from __future__ import annotations

import asyncio
import gzip
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from proreus.config.load import default_configuration, load
from proreus.config.types import Plugins
from proreus.errors import ConfigError, PluginError, ProreusError
from proreus.feature_gates import FeatureGates
from proreus.framework.cycle_state import CycleState
from proreus.framework.diagnosis import Diagnosis, FitError
from proreus.framework.pod_info import PodInfo, PodResourcesOptions, QueuedPodInfo
from proreus.framework.post_filter_result import NominatingInfo
from proreus.framework.status import Status
from proreus.framework.verdicts import IntArray
from proreus.kubernetes_version import V1_36, KubernetesVersion, parse_emulated_version
from proreus.objects.codec import decoder_for
from proreus.objects.kinds import PODS
from proreus.objects.pod import Pod
from proreus.offline.api import JsonObject
from proreus.offline.cluster import OfflineCluster, OfflineOptions
from proreus.runtime.find_nodes import FeasibleNodes
from proreus.runtime.prioritize_nodes import prioritize_nodes, run_pre_score
from proreus.runtime.profile import Profile
from proreus.runtime.registry import Registry
from proreus.runtime.scheduling_points import run_post_filter, run_pre_filter
from proreus.runtime.select_host import root_of_heap
from proreus.scheduler.no_feasible_node import diagnose

_OFFLINE_GATES = ("SchedulerAsyncPreemption=false", "SchedulerAsyncAPICalls=false")
"""The recorded results were made without background API calls, so that every step ends."""

_STEP_SECONDS = 0.01
"""How far the clock moves at the beginning of every step of a script."""


def evaluate(
    cases: Iterable[JsonObject],
    registry: Registry,
    configuration: Any = None,
    plugins: Plugins | None = None,
    without_version: KubernetesVersion = V1_36,
) -> Iterator[JsonObject]:
    """Yield ``{"id", "expect"}`` for each case.

    ``configuration`` applies to cases without their own. Without either, the default one applies,
    with ``plugins`` merged over the default plugins. ``without_version``: the Kubernetes version
    that is emulated for cases that state none.
    """
    with asyncio.Runner() as runner:
        for case in cases:
            result = runner.run(_evaluate(case, registry, configuration, plugins, without_version))
            yield {"id": case["id"], "expect": result}


async def _evaluate(
    case: JsonObject,
    registry: Registry,
    configuration: Any,
    plugins: Plugins | None,
    without_version: KubernetesVersion,
) -> JsonObject:
    try:
        version = _version(case) or without_version
        gates = FeatureGates.from_list([*_OFFLINE_GATES, *case.get("features", ())], version)
        chosen = case.get("config") or configuration
        if chosen:
            loaded = load(chosen, registry, gates)
        else:
            loaded = default_configuration(registry, gates, plugins)
        # A single decision uses the objects as given, finished pods included; a script sees them
        # through a watch, whose field selector excludes those.
        script = "steps" in case
        options = OfflineOptions(hide_finished=script, select_host=root_of_heap)
        cluster = OfflineCluster(loaded, registry, gates, options)
    except ConfigError as error:
        return {"configError": str(error)}
    for obj in case["objects"]:
        cluster.api.add(obj)
    await cluster.settle()
    if script:
        return {"trace": [await _play_step(cluster, step) for step in case["steps"]]}
    return await _decide(cluster, case["pod"])


def _version(case: JsonObject) -> KubernetesVersion | None:
    """Return the version that a case states; raises ``ConfigError`` for one that is not served."""
    text = case.get("kubernetesVersion")
    return None if text is None else parse_emulated_version(text, "kubernetesVersion")


def read_cases(path: Path) -> Iterator[JsonObject]:
    """Yield the cases of a file, ``.jsonl`` or ``.jsonl.gz``; raises ``ProreusError``."""
    try:
        data = path.read_bytes()
        text = gzip.decompress(data) if path.suffix == ".gz" else data
        for number, line in enumerate(text.splitlines(), 1):
            if line.strip():
                case = msgspec.json.decode(line)
                if not isinstance(case, dict) or not {"id", "objects"} <= case.keys():
                    raise ProreusError(f"{path}, line {number}: a case has an id and objects")
                yield case
    except OSError as error:
        raise ProreusError(f"cannot read {path}: {error.strerror or error}") from error
    except (EOFError, zlib.error) as error:
        raise ProreusError(f"cannot read {path}: {error}") from error
    except msgspec.DecodeError as error:
        raise ProreusError(f"{path}, line {number}: not JSON: {error}") from error


# ---- single decisions --------------------------------------------------------------------------


async def _decide(cluster: OfflineCluster, pod: JsonObject) -> JsonObject:
    """Run one scheduling cycle; return its results in the form of ``expect``."""
    typed = decoder_for(Pod).convert(pod)
    cluster.api.put(PODS, typed)
    # The recorded scheduler had an empty queue: nominated pods counted there like pods in flight.
    while cluster.scheduler.queue.pop() is not None:
        pass
    key = f"{typed.metadata.namespace}/{typed.metadata.name}"
    info = PodInfo(cluster.api.store(PODS)[key], PodResourcesOptions.of(cluster.feature_gates))
    profiles = cluster.scheduler.profiles
    profile = profiles.get(typed.spec.scheduler_name) or next(iter(profiles.values()))
    try:
        return await _run_cycle(cluster, profile, info)
    except PluginError as error:
        return {"error": str(error)}


async def _run_cycle(cluster: OfflineCluster, profile: Profile, pod: PodInfo) -> JsonObject:
    state, table = CycleState(), cluster.scheduler.cache.table
    result: JsonObject = {}
    outcome = run_pre_filter(profile, state, pod)
    result["skipFilter"] = sorted(state.skip_filter)
    result["preFilter"] = _status(outcome.status)
    if outcome.names is not None and outcome.status is None:
        result["nodeNames"] = sorted(outcome.names)
    found: FeasibleNodes | None = None
    if outcome.status is None:
        found = cluster.scheduler.scheduling_cycle.search(profile, state, pod, outcome.names)
        evaluated = range(table.size) if found.evaluated is None else found.evaluated.tolist()
        result["filter"] = {
            table[row].name: _status(status)
            for row in evaluated
            if (status := found.verdicts.status(row)) is not None
        }
        result["feasible"] = sorted(table[row].name for row in found.rows.tolist())
        if found.count:
            return result | _scores(cluster, profile, state, pod, found)
    diagnosis = diagnose(profile.table, outcome, found)
    return result | await _rejection(cluster, profile, state, pod, diagnosis)


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


# ---- scripts -----------------------------------------------------------------------------------


async def _play_step(cluster: OfflineCluster, step: JsonObject) -> JsonObject:
    """Play one step of a script; return what it changed, once everything has settled."""
    cluster.advance(_STEP_SECONDS)
    gone_before = len(cluster.api.deleted)
    popped: list[list[str]] = []
    if "add" in step:
        cluster.api.add(step["add"])
    elif "patch" in step:
        patch = step["patch"]
        cluster.api.merge(patch["kind"], _key(patch), patch["patch"])
    elif "delete" in step:
        cluster.api.remove(step["delete"]["kind"], _key(step["delete"]))
    elif "advance" in step:
        cluster.advance(step["advance"])
    elif "schedule" in step:
        popped = await _schedule(cluster, step["schedule"])
    else:
        raise ValueError(f"step {step!r} is none of add, patch, delete, advance and schedule")
    await cluster.settle()
    return _trace_entry(cluster, popped, cluster.api.deleted[gone_before:])


async def _schedule(cluster: OfflineCluster, times: int) -> list[list[str]]:
    popped = []
    queue = cluster.scheduler.queue
    for turn in range(times):
        if not (queue.active_pods() or queue.backoff_pods()):
            break
        if turn:
            cluster.advance(_STEP_SECONDS)
        outcome = await cluster.schedule_next()
        if outcome is None:
            break
        key, node_name = outcome
        popped.append([_name(key), node_name])
    return popped


def _trace_entry(cluster: OfflineCluster, popped: list[list[str]], gone: list[str]) -> JsonObject:
    queue = cluster.scheduler.queue
    entry: JsonObject = {
        "popped": popped,
        "active": _names(queue.active_pods()),
        "backoff": _names(queue.backoff_pods()),
        "unschedulable": _names([*queue.unschedulable_pods(), *queue.gated_pods()]),
        "nominated": {
            pod.metadata.name: pod.status.nominated_node_name
            for pod in cluster.api.store(PODS).values()
            if pod.status.nominated_node_name and not pod.spec.node_name
        },
        "gone": sorted(map(_name, gone)),
    }
    return {field: value for field, value in entry.items() if value}


def _names(pods: Iterable[QueuedPodInfo]) -> list[str]:
    return sorted(queued.info.name for queued in pods)


def _name(key: str) -> str:
    return key.rpartition("/")[2]


def _key(reference: JsonObject) -> str:
    namespace = reference.get("namespace")
    return f"{namespace}/{reference['name']}" if namespace else str(reference["name"])
