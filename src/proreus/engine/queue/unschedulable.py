"""Pods that wait for an event, indexed by the plugins that rejected them.

Ten thousand pods may wait here while thousands of events a second help none of them. So pods are
indexed by profile and rejecting plugin (``RejectorKey``), and an event visits only the pods of the
plugins that registered it. A gated pod is indexed by its gating plugin alone: no other plugin's
events can help it. Where that plugin names the pods that an event ungates, only those are visited.

Example: 5,000 pods wait for NodeResourcesFit and 20 for NodeAffinity. A node's label changes, which
only NodeAffinity registered: 20 pods are looked at, not 5,020.

A pod group is here while it is gated, indexed by the plugin that gates it. One that a plugin
provides (``PodGroupSourcePlugin``) is here after a rejection as well, indexed by the plugins that
rejected its pods.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from proreus.framework.pod_info import QueuedPodInfo
from proreus.framework.queued_pod_group import QueuedEntityInfo, QueuedPodGroupInfo


class RejectorKey(Struct, frozen=True):
    """Pods of one ``spec.schedulerName`` that a plugin rejected, or (``gated``) keeps out.

    The plugin "" is for pods without a rejector.
    """

    profile: str
    plugin: str
    gated: bool = False


class UnschedulablePods:
    """Pods and groups by key, in the order in which they came, gated ones among them."""

    # Invariants: _rejector_keys_of has the keys of _pods; a pod is in _by_rejector under exactly
    # the keys in _rejector_keys_of; no entry there is empty; _group_of has the pods of groups.

    def __init__(self) -> None:
        self._pods: dict[str, QueuedEntityInfo] = {}
        self._rejector_keys_of: dict[str, tuple[RejectorKey, ...]] = {}
        self._by_rejector: dict[RejectorKey, dict[str, QueuedEntityInfo]] = {}
        self._group_of: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self._pods)

    def __contains__(self, key: object) -> bool:
        return key in self._pods

    def get(self, key: str) -> QueuedEntityInfo | None:
        """Return a pod (``namespace/name``) or group by key, if it is here."""
        return self._pods.get(key)

    def put(self, queued: QueuedEntityInfo) -> None:
        """Add a pod, or index it anew after its rejectors or its gate have changed."""
        key = queued.key
        if isinstance(queued, QueuedPodGroupInfo):
            self._group_of.update((pod.key, key) for pod in queued.queued_pods)
        self._index(queued)
        self._pods[key] = queued

    def _index(self, queued: QueuedEntityInfo) -> None:
        key, rejector_keys = queued.key, _rejector_keys(queued)
        if self._rejector_keys_of.get(key) != rejector_keys or self._pods[key] is not queued:
            self._unindex(key)
            self._rejector_keys_of[key] = rejector_keys
            for rejector in rejector_keys:
                self._by_rejector.setdefault(rejector, {})[key] = queued

    def pod_joined(self, group: QueuedPodGroupInfo, pod: QueuedPodInfo) -> None:
        """Index a pod that was added to a group that is here."""
        self._group_of[pod.key] = group.key
        self._index(group)

    def pod_left(self, group: QueuedPodGroupInfo, pod: QueuedPodInfo) -> None:
        """Index a group that is here, and has lost a pod."""
        self._group_of.pop(pod.key, None)
        self._index(group)

    def discard(self, key: str) -> QueuedEntityInfo | None:
        """Remove and return a pod, if it is here."""
        queued = self._pods.pop(key, None)
        if queued is not None:
            if isinstance(queued, QueuedPodGroupInfo):
                for pod in queued.queued_pods:
                    self._group_of.pop(pod.key, None)
            self._unindex(key)
        return queued

    def _unindex(self, key: str) -> None:
        for rejector in self._rejector_keys_of.pop(key, ()):
            pods = self._by_rejector[rejector]
            del pods[key]
            if not pods:
                del self._by_rejector[rejector]

    def has_rejected_by(self, rejector: RejectorKey) -> bool:
        """Return whether a rejector has pods."""
        return rejector in self._by_rejector

    def rejected_by(self, rejector_keys: Iterable[RejectorKey]) -> list[QueuedEntityInfo]:
        """Return the pods of any of these rejectors, each once, rejector by rejector."""
        found = [pods for rejector in rejector_keys if (pods := self._by_rejector.get(rejector))]
        # The usual case needs no merge by key.
        if len(found) == 1:
            return list(found[0].values())
        return list({key: queued for pods in found for key, queued in pods.items()}.values())

    def rejected_among(self, rejector: RejectorKey, keys: Iterable[str]) -> list[QueuedEntityInfo]:
        """Return the named pods that a rejector has, or their groups."""
        pods = self._by_rejector.get(rejector, {})
        if self._group_of:
            keys = dict.fromkeys(self._group_of.get(key, key) for key in keys)
        return [pods[key] for key in keys if key in pods]

    def keys(self) -> Iterable[str]:
        """Return the ``namespace/name`` of all pods."""
        return self._pods.keys()

    def pods(self) -> list[QueuedEntityInfo]:
        """Return all pods and groups, in the order in which they came."""
        return list(self._pods.values())

    def validate(self) -> None:
        """Assert that the index agrees with the pods."""
        rejector_keys: dict[RejectorKey, dict[str, QueuedEntityInfo]] = {}
        for key, queued in self._pods.items():
            assert queued.key == key, f"{queued.key} is kept as {key}"
            for rejector in _rejector_keys(queued):
                rejector_keys.setdefault(rejector, {})[key] = queued
        assert self._by_rejector == rejector_keys, (
            "the index by rejector is out of step with the pods"
        )
        assert self._rejector_keys_of.keys() == self._pods.keys(), "an indexed pod is gone"
        groups = {
            pod.key: key
            for key, queued in self._pods.items()
            if isinstance(queued, QueuedPodGroupInfo)
            for pod in queued.queued_pods
        }
        assert self._group_of == groups, "the pods of groups are out of step"


def _rejector_keys(queued: QueuedEntityInfo) -> tuple[RejectorKey, ...]:
    if isinstance(queued, QueuedPodGroupInfo):
        profiles = sorted(queued.profiles)
        if queued.gating_plugin:
            return tuple(RejectorKey(one, queued.gating_plugin, gated=True) for one in profiles)
        rejectors = sorted(queued.rejectors) or [""]
        return tuple(RejectorKey(one, plugin) for one in profiles for plugin in rejectors)
    profile = queued.pod.spec.scheduler_name
    if queued.gating_plugin:
        return (RejectorKey(profile, queued.gating_plugin, gated=True),)
    plugins = queued.unschedulable_plugins
    if queued.pending_plugins and not queued.pending_plugins <= plugins:
        plugins = queued.rejectors
    return tuple(RejectorKey(profile, plugin) for plugin in sorted(plugins)) or (
        RejectorKey(profile, ""),
    )
