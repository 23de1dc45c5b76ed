"""A whole scheduler over an API in memory, with plugins of a few words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from proreus.base.feature_gates import FeatureGates
from proreus.base.kubernetes_version import DEFAULT_VERSION, KubernetesVersion
from proreus.config.load import load
from proreus.engine.runtime.registry import Registry
from proreus.framework.events import NODE_ADD
from proreus.framework.plugin import FilterPlugin, Plugin
from proreus.framework.pod_info import QueuedPodInfo
from proreus.objects.kinds import NODES, PODS
from proreus.objects.pod import Pod, PodCondition, condition_of
from proreus.offline.api import JsonObject
from proreus.offline.cluster import OfflineCluster, OfflineOptions
from proreus.plugins import IN_TREE_PLUGINS
from proreus.testing.builders import make_node, make_pod
from unit import plugin_factory

_OPTIONS = OfflineOptions()


def plugin(name: str, *bases: type[Plugin], **answers: object) -> type[Plugin]:
    """Return a plugin class that waits for new nodes, unless ``events_to_register`` is given.

    A plugin that waits for all events would be woken by the patch of its own rejection.
    """
    return plugin_factory.plugin(name, *bases, **{"events_to_register": (NODE_ADD,), **answers})


class World(OfflineCluster):
    """An offline cluster whose profiles have a queue sort, a binder, and the plugins given."""

    def __init__(
        self,
        *plugins: type[Plugin],
        binder: str = "DefaultBinder",
        sort_by: str = "PrioritySort",
        profiles: Mapping[str, list[str]] | None = None,
        features: tuple[str, ...] = (),
        emulate: KubernetesVersion = DEFAULT_VERSION,
        options: OfflineOptions = _OPTIONS,
        **config: object,
    ) -> None:
        """``profiles``: names of plugins by schedulerName; one with all of them by default."""
        registry = Registry([*IN_TREE_PLUGINS, *plugins])
        gates = FeatureGates.from_list(list(features), emulate)
        profiles = profiles or {"default-scheduler": [p.name for p in plugins]}
        raw = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "profiles": [
                {"schedulerName": name, "plugins": _only([sort_by, *names], binder)}
                for name, names in profiles.items()
            ],
            **config,
        }
        super().__init__(load(raw, registry, gates), registry, gates, options)
        self.registry = registry
        self.patches: list[tuple[str, JsonObject]] = []
        self._patch_pod_status = self.api.patch_pod_status
        self.api.patch_pod_status = self._record_patch  # type: ignore[method-assign]

    async def _record_patch(self, pod: Pod, patch: JsonObject) -> None:
        self.patches.append((pod.metadata.name, patch["status"]))
        await self._patch_pod_status(pod, patch)

    # ---- objects ---------------------------------------------------------------------------------

    def add_node(self, name: str, **fields: Any) -> None:
        self.api.put(NODES, make_node(name, **fields))

    def add_pod(self, name: str = "p", **fields: Any) -> None:
        self.api.put(PODS, make_pod(name, **fields).pod)

    def change_pod(self, name: str = "p", **patch: Any) -> None:
        self.api.merge("Pod", f"default/{name}", patch)

    def remove_pod(self, name: str = "p") -> None:
        self.api.remove("Pod", f"default/{name}")

    def pod(self, name: str = "p") -> Pod:
        return self.api.store(PODS)[f"default/{name}"]

    # ---- what can be seen ------------------------------------------------------------------------

    @property
    def queue(self):
        return self.scheduler.queue

    @property
    def cache(self):
        return self.scheduler.cache

    def queued(self, name: str = "p") -> QueuedPodInfo:
        found = self.queue.get(f"default/{name}")
        assert found is not None
        return found

    def places(self) -> dict[str, list[str]]:
        """Names of pods in each place that is not empty."""
        queue = self.queue
        found = {
            "active": queue.active_pods(),
            "backoff": queue.backoff_pods(),
            "unschedulable": queue.unschedulable_pods(),
            "gated": queue.gated_pods(),
        }
        return {place: [q.info.name for q in pods] for place, pods in found.items() if pods}

    def condition(self, name: str = "p") -> PodCondition | None:
        return condition_of(self.pod(name), "PodScheduled")

    def notes(self, reason: str = "FailedScheduling") -> list[str]:
        return [note for _, why, note in self.events.events if why == reason]

    def validate(self) -> None:
        self.cache.validate()
        self.queue.validate()

    async def attempt(self) -> str:
        """Make one attempt for the next pod; return the node's name, "" if there was none."""
        outcome = await self.schedule_next()
        assert outcome is not None, "no pod is ready to be scheduled"
        self.validate()
        return outcome[1]


def _only(names: list[str], binder: str) -> JsonObject:
    if binder not in names:
        names = [*names, binder]
    multi_point = {"enabled": [{"name": name} for name in names], "disabled": [{"name": "*"}]}
    return {"multiPoint": multi_point}


def rejecting(name: str, status: object) -> type[Plugin]:
    return plugin(name, FilterPlugin, filter=status)


class Kit:
    """What the tests of this package build with."""

    World = World
    plugin = staticmethod(plugin)
    rejecting = staticmethod(rejecting)
    make_pod = staticmethod(make_pod)
    make_node = staticmethod(make_node)


@pytest.fixture(scope="session")
def kit() -> type[Kit]:
    return Kit
