"""Pods that wait for something to change, found by the plugins that could be content with it.

Ten thousand pods may wait here while thousands of events a second pass by that help none of them:
so they are shelved by profile and plugin, and an event looks only at the shelves of the plugins
that registered it. A gated pod stands on one shelf, its gating plugin's: nobody else's events
matter to it. Where that plugin knows whom an event lets in, not even that shelf is looked through.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from proreus.framework.pod_info import QueuedPodInfo


class Shelf(NamedTuple):
    """Pods of one ``spec.schedulerName`` that a plugin rejected, or (``gated``) keeps out.

    The plugin "" is for pods that nobody rejected.
    """

    profile: str
    plugin: str
    gated: bool = False


class UnschedulablePods:
    """Pods by ``namespace/name``, in the order in which they came, gated ones among them."""

    # Invariants: _shelves_of has the keys of _pods; a pod is on exactly the shelves that
    # _shelves_of names; no shelf is empty; _gated has the keys of gated pods.

    def __init__(self) -> None:
        self._pods: dict[str, QueuedPodInfo] = {}
        self._shelves_of: dict[str, tuple[Shelf, ...]] = {}
        self._shelves: dict[Shelf, dict[str, QueuedPodInfo]] = {}
        self._gated: set[str] = set()

    def __len__(self) -> int:
        return len(self._pods)

    def __contains__(self, key: object) -> bool:
        return key in self._pods

    @property
    def gated_count(self) -> int:
        """How many of the pods are gated."""
        return len(self._gated)

    def get(self, key: str) -> QueuedPodInfo | None:
        """Return a pod by ``namespace/name``, if it is here."""
        return self._pods.get(key)

    def put(self, queued: QueuedPodInfo) -> None:
        """Add a pod, or shelve it anew after its rejecters or its gate have changed."""
        key = queued.key
        shelves = _shelves_for(queued)
        if self._shelves_of.get(key) != shelves or self._pods[key] is not queued:
            self._unshelve(key)
            self._shelves_of[key] = shelves
            for shelf in shelves:
                self._shelves.setdefault(shelf, {})[key] = queued
        self._pods[key] = queued
        if queued.gated:
            self._gated.add(key)
        else:
            self._gated.discard(key)

    def discard(self, key: str) -> QueuedPodInfo | None:
        """Remove and return a pod, if it is here."""
        queued = self._pods.pop(key, None)
        if queued is not None:
            self._unshelve(key)
            self._gated.discard(key)
        return queued

    def _unshelve(self, key: str) -> None:
        for shelf in self._shelves_of.pop(key, ()):
            pods = self._shelves[shelf]
            del pods[key]
            if not pods:
                del self._shelves[shelf]

    def waiting_for(self, shelves: Iterable[Shelf]) -> list[QueuedPodInfo]:
        """Return the pods on any of these shelves, each once, shelf by shelf."""
        found = [pods for shelf in shelves if (pods := self._shelves.get(shelf))]
        if len(found) == 1:
            return list(found[0].values())
        return list({key: queued for pods in found for key, queued in pods.items()}.values())

    def standing_on(self, shelf: Shelf, keys: Iterable[str]) -> list[QueuedPodInfo]:
        """Return those of the named pods that are on a shelf."""
        pods = self._shelves.get(shelf, {})
        return [pods[key] for key in keys if key in pods]

    def pods(self) -> list[QueuedPodInfo]:
        """Return all pods, in the order in which they came."""
        return list(self._pods.values())

    def validate(self) -> None:
        """Assert that the shelves are what the pods call for."""
        shelves: dict[Shelf, dict[str, QueuedPodInfo]] = {}
        for key, queued in self._pods.items():
            assert queued.key == key, f"{queued.key} is kept as {key}"
            for shelf in _shelves_for(queued):
                shelves.setdefault(shelf, {})[key] = queued
        assert self._shelves == shelves, "the shelves are out of step with the pods"
        assert self._shelves_of.keys() == self._pods.keys(), "a shelved pod is gone"
        gated = {key for key, queued in self._pods.items() if queued.gated}
        assert self._gated == gated, "gated pods are miscounted"


def _shelves_for(queued: QueuedPodInfo) -> tuple[Shelf, ...]:
    profile = queued.pod.spec.scheduler_name
    if queued.gating_plugin:
        return (Shelf(profile, queued.gating_plugin, gated=True),)
    plugins = queued.unschedulable_plugins
    if queued.pending_plugins and not queued.pending_plugins <= plugins:
        plugins = queued.rejectors
    return tuple(Shelf(profile, plugin) for plugin in sorted(plugins)) or (Shelf(profile, ""),)
