"""Plays scripts, and looks after each step for pods that were left behind."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from msgspec import Struct

from conformance.oracle.grammar.objects import LONG_AGO
from conformance.wakeups.twin import DEFERRED_RESIZE, left_behind
from proreus.base.feature_gates import FeatureGates
from proreus.base.kubernetes_version import parse_emulated_version
from proreus.config.load import default_configuration, load
from proreus.engine.runtime.registry import Registry
from proreus.engine.runtime.select_host import root_of_heap
from proreus.framework.pod_info import QueuedPodInfo
from proreus.objects.kinds import PODS
from proreus.objects.meta import key_of
from proreus.objects.pod import Pod
from proreus.offline.api import InMemoryApi
from proreus.offline.cluster import OfflineCluster, OfflineOptions
from proreus.offline.fake_extenders import FakeExtenders
from proreus.offline.script import Script
from proreus.offline.virtual_time import VirtualTimeLoop
from proreus.plugins import IN_TREE_PLUGINS
from proreus.process.loading.load import add_ons

JsonObject = dict[str, Any]

_LONGEST_BACKOFF = 12
"""Seconds after which the back-offs of all scripts are over."""


class Finding(Struct, frozen=True):
    """A pod that waited although it could run. ``step``: after which one."""

    step: int
    pod: str
    waited_for: tuple[str, ...]

    def __str__(self) -> str:
        waited = ", ".join(self.waited_for)
        return f"after step {self.step}, {self.pod} waited for {waited} although it could run"


def play(case: JsonObject) -> Finding | None:
    """Play a script; return the first pod that was left behind."""

    async def run() -> Finding | None:
        player = _Player(case)
        try:
            return await player.run()
        finally:
            await player.close()

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(run())


class _Api(InMemoryApi):
    """An API whose pods take some time to end. ``ending``: the keys of those."""

    def __init__(self) -> None:
        super().__init__()
        self.ending: list[str] = []

    async def delete_pod(self, pod: Pod) -> None:
        """Delete a pod with a grace period."""
        key = key_of(self._live(pod))
        self.ending.append(key)
        self.merge("Pod", key, {"metadata": {"deletionTimestamp": LONG_AGO}})


class _Player:
    """A script on a cluster, with what controllers and kubelets do meanwhile."""

    def __init__(self, case: JsonObject) -> None:
        version = parse_emulated_version(case["kubernetesVersion"], "kubernetesVersion")
        gates = FeatureGates.from_list(case.get("features", ()), version)
        registry, config = Registry(IN_TREE_PLUGINS, add_ons()), case.get("config")
        loaded = load(config, registry, gates) if config else default_configuration(registry, gates)
        self._case = case
        self._api = _Api()
        extenders = FakeExtenders(case.get("extenders", {}), self._api)
        options = OfflineOptions(
            select_host=root_of_heap,
            polls_only=True,
            use_extenders="extenders" in case,
            extender_transport=extenders.transport,
        )
        self._cluster = OfflineCluster(loaded, registry, gates, options, self._api)
        self._script = Script(self._cluster, extenders)
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualTimeLoop)
        loop.use_clock(self._cluster.clock)
        self._loop = loop

    async def run(self) -> Finding | None:
        """Play all steps, or up to a finding."""
        for obj in self._case["objects"]:
            self._api.add(obj)
        self._cluster.scheduler.start_background_work()
        await self._cluster.settle()
        for number, step in enumerate(self._case["steps"]):
            await self._play(step)
            if await left_behind(self._cluster):
                finding = await self._confirmed(number)
                if finding is not None:
                    return finding
        return None

    async def close(self) -> None:
        """End the background work of plugins."""
        await self._cluster.scheduler.close()

    async def _play(self, step: JsonObject) -> None:
        ending, self._api.ending = self._api.ending, []
        await self._script.play("", step)
        if step.get("delete", {}).get("kind") == "Node":
            # As the pod garbage collector does.
            ending += self._pods(lambda pod: pod.spec.node_name == step["delete"]["name"])
        for key in ending:
            self._api.remove("Pod", key)
        await self._loop.run_until_idle()
        await self._cluster.settle()
        # Nothing but a finalizer keeps a pod without a node.
        self._api.ending += self._pods(
            lambda pod: bool(pod.metadata.deletion_timestamp and not pod.spec.node_name)
        )

    def _pods(self, condition: Callable[[Pod], bool]) -> list[str]:
        return [key for key, pod in self._api.store(PODS).items() if condition(pod)]

    async def _confirmed(self, step: int) -> Finding | None:
        """Wait until all back-offs are over, then try the pods that are still left behind."""
        for _ in range(_LONGEST_BACKOFF):
            await self._play({"schedule": 20})
            await self._play({"advance": 1})
        for queued in await left_behind(self._cluster):
            waited_for = tuple(sorted(queued.rejectors)) or (queued.gating_plugin,)
            if await self._passes(queued):
                return Finding(step, queued.key, waited_for)
        return None

    async def _passes(self, queued: QueuedPodInfo) -> bool:
        """Try a pod, or its group, in earnest; return whether it, or one of its group, fits."""
        scheduler = self._cluster.scheduler
        scheduler.queue.activate([queued.key])
        popped = scheduler.queue.pop()
        if popped is None:
            return False
        pods = popped.queued_pods
        await self._cluster.schedule_popped(popped)
        if queued.pod.spec.node_name:
            return DEFERRED_RESIZE in queued.unschedulable_plugins
        return any(
            scheduler.cache.get_pod(pod.uid) is not None
            and scheduler.waiting_pods.get(pod.uid) is None
            for pod in pods
        )
