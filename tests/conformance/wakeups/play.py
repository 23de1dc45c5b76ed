"""Plays scripts, and looks after each step for pods that were left behind."""

from __future__ import annotations

import asyncio
from typing import Any

from msgspec import Struct

from conformance.wakeups.twin import DEFERRED_RESIZE, left_behind
from proreus.config.load import default_configuration, load
from proreus.feature_gates import FeatureGates
from proreus.framework.pod_info import QueuedPodInfo
from proreus.kubernetes_version import parse_emulated_version
from proreus.objects.kinds import PODS
from proreus.offline.api import InMemoryApi
from proreus.offline.cluster import OfflineCluster, OfflineOptions
from proreus.offline.fake_extenders import FakeExtenders
from proreus.offline.script import Script
from proreus.offline.virtual_time import VirtualTimeLoop
from proreus.plugins import IN_TREE_PLUGINS
from proreus.runtime.registry import Registry
from proreus.runtime.select_host import root_of_heap

JsonObject = dict[str, Any]

_LONGEST_BACKOFF = 12
"""Seconds after which the back-offs of all scripts are over."""


class Finding(Struct, frozen=True):
    """A pod that waited although it could run. ``step``: after which one; -1: at the start."""

    step: int
    pod: str
    waited_for: tuple[str, ...]

    def __str__(self) -> str:
        waited = ", ".join(self.waited_for)
        return f"after step {self.step}, {self.pod} waited for {waited} although it could run"


def play(case: JsonObject) -> Finding | None:
    """Play a script; return the first pod that was left behind."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(_play(case))


async def _play(case: JsonObject) -> Finding | None:
    cluster, script = _cluster(case)
    for obj in case["objects"]:
        cluster.api.add(obj)
    await cluster.settle()
    for number, step in enumerate(case["steps"]):
        await script.play(f"steps[{number}]", step)
        if step.get("delete", {}).get("kind") == "Node":
            await _collect_garbage(cluster, step["delete"]["name"])
        if await left_behind(cluster):
            finding = await _confirmed(cluster, script, number)
            if finding is not None:
                return finding
    return None


async def _collect_garbage(cluster: OfflineCluster, node_name: str) -> None:
    """Delete the pods of a node that is gone, as the pod garbage collector does."""
    for key, pod in list(cluster.api.store(PODS).items()):
        if pod.spec.node_name == node_name:
            cluster.api.remove("Pod", key)
    await cluster.settle()


def _cluster(case: JsonObject) -> tuple[OfflineCluster, Script]:
    version = parse_emulated_version(case["kubernetesVersion"], "kubernetesVersion")
    gates = FeatureGates.from_list(case.get("features", ()), version)
    registry, config = Registry(IN_TREE_PLUGINS), case.get("config")
    loaded = load(config, registry, gates) if config else default_configuration(registry, gates)
    api = InMemoryApi()
    options = OfflineOptions(select_host=root_of_heap, polls_only=True)
    cluster = OfflineCluster(loaded, registry, gates, options, api)
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    loop.use_clock(cluster.clock)
    return cluster, Script(cluster, FakeExtenders({}, api))


async def _confirmed(cluster: OfflineCluster, script: Script, step: int) -> Finding | None:
    """Wait until all back-offs are over, then try the pods that are still left behind."""
    for _ in range(_LONGEST_BACKOFF):
        await script.play("", {"schedule": 20})
        await script.play("", {"advance": 1})
    for queued in await left_behind(cluster):
        waited_for = tuple(sorted(queued.rejectors)) or (queued.gating_plugin,)
        if await _passes(cluster, queued):
            return Finding(step, queued.key, waited_for)
    return None


async def _passes(cluster: OfflineCluster, queued: QueuedPodInfo) -> bool:
    """Try a pod, in earnest."""
    scheduler = cluster.scheduler
    popped = scheduler.queue.pop_specific(queued.key)
    if popped is None:
        return False
    await cluster.schedule_popped(popped)
    if queued.pod.spec.node_name:
        return DEFERRED_RESIZE in queued.unschedulable_plugins
    return scheduler.cache.get_pod(queued.uid) is not None
