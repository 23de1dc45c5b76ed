"""The plugin: extraneous system calls, those that a node's kernel serves and a pod does not use.

A node serves what any of its pods uses. Its raw score is how many of these calls the new pod does
not use, plus how many each pod that is there would have around it, which it does not use, with the
new one. The pod goes where that is least.

Worked example: on a node runs one pod that uses read and write. A pod that uses read and bind has 1
extraneous call there (write), and the pod that is there gets 1 (bind): raw score 2.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import NamedTuple

import numpy as np

from proreus.addons.sysched.objects import SECCOMP_PROFILES, SECURED_PODS, SecuredPod
from proreus.framework import (
    MAX_SCORE,
    CycleState,
    Handle,
    IntArray,
    NodeTable,
    PluginArgs,
    PodInfo,
    ScorePlugin,
)

Syscalls = frozenset[str]


class _Served(NamedTuple):
    """What a node serves: the calls of all its pods, the sum of their numbers, and the pods."""

    calls: Syscalls
    total: int
    pods: int

    def extraneous(self, own: Syscalls) -> int:
        """Return how many calls would be extraneous with a pod that uses its ``own``."""
        common = len(self.calls & own)
        served = len(self.calls)
        # Each of the pods uses a part of what is served.
        return served - common + self.pods * (served + len(own) - common) - self.total


_SPARE_UNIONS = 1024
_NOTHING_RAN = _Served(frozenset(), 0, 0)


class SySchedArgs(PluginArgs):
    """The profile of pods that use none."""

    default_profile_namespace: str = "default"
    default_profile_name: str = "all-syscalls"


class SySched(ScorePlugin):
    """Prefer nodes whose pods use the same system calls."""

    Args = SySchedArgs
    args: SySchedArgs
    row_local = True

    def __init__(self, args: SySchedArgs, handle: Handle) -> None:
        super().__init__(args, handle)
        self._profiles = handle.store(SECCOMP_PROFILES)
        self._pods = handle.store(SECURED_PODS)
        self._generation = 0
        self._running: dict[str, dict[str, tuple[str, ...]]] = {}
        """By node and UID: the profiles of each pod that runs; only nodes that have some."""
        self._served: dict[str, _Served] = {}
        """By node, as of ``_served_generation``: what ``_running`` comes to."""
        self._served_generation = 0
        self._unions: dict[Syscalls, Syscalls] = {}
        handle.on_change(SECCOMP_PROFILES, self._profile_changed)
        handle.on_change(SECURED_PODS, self._pod_changed)

    # ---- what runs where -----------------------------------------------------------------------

    def _profile_changed(self, old: object, new: object) -> None:
        self._generation += 1

    def _pod_changed(self, old: SecuredPod | None, new: SecuredPod | None) -> None:
        pod = new or old
        assert pod is not None
        node_name, uid = pod.spec.node_name, pod.metadata.uid
        if not node_name:
            return
        if new is None:
            running = self._running.get(node_name, {})
            running.pop(uid, None)
            if not running:
                self._running.pop(node_name, None)
        elif new.status.phase == "Running":
            self._running.setdefault(node_name, {})[uid] = tuple(new.profiles())
        else:
            return
        self._served.pop(node_name, None)
        self.handle.invalidate_results(node_name)

    def _syscalls(self, profiles: Iterable[str]) -> Syscalls:
        """Return the calls of some profiles; of the default one if they have none."""
        found = frozenset[str]().union(
            *(self._profiles[one].syscalls() for one in profiles if one in self._profiles)
        )
        if found:
            return found
        default = self._profiles.get(
            f"{self.args.default_profile_namespace}/{self.args.default_profile_name}"
        )
        return frozenset() if default is None else default.syscalls()

    def syscalls_of(self, pod: PodInfo) -> Syscalls:
        """Return the calls that a pod uses."""
        found = self._pods.get(pod.key)
        # The second watch may be a moment behind the first: the pod then counts as one without.
        return self._syscalls(() if found is None else found.profiles())

    # ---- Score ---------------------------------------------------------------------------------

    def sign(self, pod: PodInfo) -> Hashable:
        """Return the calls that the pod uses."""
        return self.syscalls_of(pod)

    def invalidation_key(self, nodes: NodeTable) -> Hashable:
        """Return the state of the profiles."""
        return self._generation

    def score_all(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> IntArray | int:
        """Score nodes by extraneous calls, computed once for nodes that serve the same calls."""
        own = self.syscalls_of(pod)
        if not own:
            return 0
        served = [self._served_by(node.name) for node in nodes]
        score_of = {one: one.extraneous(own) for one in set(served)}
        return np.fromiter((score_of[one] for one in served), np.int64, len(served))

    def _served_by(self, node_name: str) -> _Served:
        if self._served_generation != self._generation:
            self._served.clear()
            self._unions.clear()
            self._served_generation = self._generation
        found = self._served.get(node_name)
        if found is None:
            running = self._running.get(node_name)
            if running is None:
                return _NOTHING_RAN
            calls = [self._syscalls(profiles) for profiles in running.values()]
            union = frozenset[str]().union(*calls)
            # One object for equal sets: they are then compared by identity, node after node.
            union = self._unions.setdefault(union, union)
            if len(self._unions) > _SPARE_UNIONS + 2 * len(self._served):
                self._unions = {one.calls: one.calls for one in self._served.values()}
            found = self._served[node_name] = _Served(union, sum(map(len, calls)), len(calls))
        return found

    def normalize(self, state: CycleState, pod: PodInfo, scores: IntArray) -> IntArray:
        """Give 100 to nodes without extraneous calls, less to others, 0 to the most."""
        most = int(scores.max(initial=0))
        if not most:
            return np.full_like(scores, MAX_SCORE)
        normalized: IntArray = MAX_SCORE - MAX_SCORE * scores // most
        return normalized
