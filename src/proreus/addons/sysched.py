"""SySched: pods that use similar system calls, on the same nodes.

Source: kubernetes-sigs/scheduler-plugins, ``pkg/sysched`` (KEP 399).

It counts extraneous system calls, which the kernel of a node serves in vain for a pod.

A node serves the calls of all its pods. Its raw score is the number of these calls that the new pod
does not use, plus for each pod that is there the number of calls that it would not use after the
new one has come. The pod goes to the node with the lowest score.

Worked example: on a node runs one pod that uses read and write. A pod that uses read and bind has 1
extraneous call there (write), and the pod that is there gets 1 (bind): raw score 2.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from typing import NamedTuple

import numpy as np

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
from proreus.objects import PODS, ApiStruct, ObjectMeta, Pod, Resource

_ANNOTATION = "seccomp.security.alpha.kubernetes.io"
_COUNTED_ACTIONS = ("SCMP_ACT_ALLOW", "SCMP_ACT_LOG")


class SyscallRule(ApiStruct, frozen=True):
    """The action for some system calls."""

    action: str = ""
    names: tuple[str, ...] = ()


class SeccompProfileSpec(ApiStruct, frozen=True):
    """The rules of a profile."""

    syscalls: tuple[SyscallRule, ...] = ()


class SeccompProfile(ApiStruct, frozen=True):
    """A profile of the security-profiles-operator."""

    metadata: ObjectMeta = ObjectMeta()
    spec: SeccompProfileSpec = SeccompProfileSpec()

    def syscalls(self) -> frozenset[str]:
        """Return the names of the calls that are allowed or logged."""
        rules = (rule for rule in self.spec.syscalls if rule.action in _COUNTED_ACTIONS)
        return frozenset(name for rule in rules for name in rule.names)


def profiles_of(pod: Pod) -> Iterator[str]:
    """Yield ``namespace/name`` of the profiles that a pod and its containers use."""
    spec = pod.spec
    for context in (spec.security_context, *(one.security_context for one in spec.containers)):
        reference = None if context is None else context.seccomp_profile
        if reference is not None and reference.type == "Localhost":
            yield from _profile_of(reference.localhost_profile or "")
    for key, path in pod.metadata.annotations.items():
        if _ANNOTATION in key:
            yield from _profile_of(path)
            return


def _profile_of(path: str) -> Iterator[str]:
    parts = path.split("/")
    if len(parts) >= 2:
        yield f"{parts[-2]}/{parts[-1].removesuffix('.json')}"


SECCOMP_PROFILES = Resource(
    "security-profiles-operator.x-k8s.io",
    "v1beta1",
    "seccompprofiles",
    "SeccompProfile",
    True,
    SeccompProfile,
    custom=True,
)

Syscalls = frozenset[str]


class _Served(NamedTuple):
    """The calls of all pods of a node, the sum of their numbers, and the number of pods."""

    calls: Syscalls
    total: int
    pods: int

    def extraneous(self, own: Syscalls) -> int:
        """Return the number of extraneous calls with one more pod that uses ``own``."""
        common = len(self.calls & own)
        served = len(self.calls)
        # Each pod uses a part of the served calls.
        return served - common + self.pods * (served + len(own) - common) - self.total


_SPARE_UNIONS = 1024
_NOTHING_RAN = _Served(frozenset(), 0, 0)


class SySchedArgs(PluginArgs):
    """The profile of pods that use none."""

    default_profile_namespace: str = "default"
    default_profile_name: str = "all-syscalls"


class SySched(ScorePlugin):
    """Prefers nodes with pods that use the same system calls."""

    Args = SySchedArgs
    args: SySchedArgs
    row_local = True

    def __init__(self, args: SySchedArgs, handle: Handle) -> None:
        super().__init__(args, handle)
        self._profiles = handle.store(SECCOMP_PROFILES)
        self._generation = 0
        self._running: dict[str, dict[str, tuple[str, ...]]] = {}
        """By node and UID: the profiles of each pod that runs; only nodes that have some."""
        self._served: dict[str, _Served] = {}
        """By node: the calls of ``_running`` by the present profiles."""
        self._unions: dict[Syscalls, Syscalls] = {}
        handle.on_change(SECCOMP_PROFILES, self._profile_changed)
        handle.on_change(PODS, self._pod_changed)

    # ---- what runs where -----------------------------------------------------------------------

    def _profile_changed(self, old: object, new: object) -> None:
        self._generation += 1
        self._served.clear()
        self._unions.clear()

    def _pod_changed(self, old: Pod | None, new: Pod | None) -> None:
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
            self._running.setdefault(node_name, {})[uid] = tuple(profiles_of(new))
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
        return self._syscalls(profiles_of(pod.pod))

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
