"""Scripts: a whole scheduler, step by step in virtual time.

The clock moves on ten milliseconds at the beginning of every step; what can be seen once
everything has come to rest is one moment of the trace.
"""

from __future__ import annotations

from collections.abc import Iterable

from proreus.framework.pod_info import QueuedPodInfo
from proreus.objects.kinds import PODS
from proreus.offline.api import JsonObject
from proreus.offline.cluster import OfflineCluster

_STEP_SECONDS = 0.01


async def play(cluster: OfflineCluster, steps: Iterable[JsonObject]) -> JsonObject:
    """Play a script; the form of the answer is that of the recorded ones (``expect``)."""
    return {"trace": [await _play_step(cluster, step) for step in steps]}


async def _play_step(cluster: OfflineCluster, step: JsonObject) -> JsonObject:
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
    moment: JsonObject = {
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
    return {part: seen for part, seen in moment.items() if seen}


def _names(pods: Iterable[QueuedPodInfo]) -> list[str]:
    return sorted(queued.info.name for queued in pods)


def _name(key: str) -> str:
    return key.rpartition("/")[2]


def _key(reference: JsonObject) -> str:
    namespace = reference.get("namespace")
    return f"{namespace}/{reference['name']}" if namespace else str(reference["name"])
