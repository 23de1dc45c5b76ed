"""Finds the group of a pod by the labels or annotations of any project.

``_NAMINGS`` is the table of the keys that name a group and its size. The first naming of a pod
counts. docs/addons/workloads.md lists them by operator.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from typing import NamedTuple, Self

from proreus.base.bounded_cache import BYTES_AN_ENTRY, BoundedCache
from proreus.config.durations import DurationError, parse_duration
from proreus.framework import is_provided
from proreus.objects import ApiStruct, ObjectMeta, Pod, Resource
from proreus.objects.codec import UNDECODABLE
from proreus.objects.selectors import parse_count

POD_GROUP_LABEL = "scheduling.x-k8s.io/pod-group"
OLDER_LABEL = "pod-group.scheduling.sigs.k8s.io"
KUEUE = "kueue.x-k8s.io"
LEADER_WORKER_SET = "leaderworkerset.sigs.k8s.io"
SCHEDULER_PLUGINS = "scheduling.x-k8s.io"
VOLCANO = "scheduling.volcano.sh"
KOORDINATOR = "gang.scheduling.koordinator.sh"
NOT_STRICT = "NonStrict"
"""The mode in which pods go on waiting at Permit when one of their gang fails."""
_LONGEST_DURATION = 100


class TopologyOfGang(ApiStruct, frozen=True):
    """The HyperNodes that a PodGroup of Volcano may be in: by tier, or by the name of a tier.

    ``mode``: ``hard``, or ``soft`` for a preference.
    """

    mode: str = "hard"
    highest_tier_allowed: int | None = None
    highest_tier_name: str = ""


class GangSpec(ApiStruct, frozen=True):
    """The minimum of pods, their resources, and the time to wait for them.

    Of Volcano: ``min_task_member``, how many pods of each task are needed, and
    ``network_topology``.
    """

    min_member: int = 0
    min_resources: dict[str, str | int | float] = {}
    schedule_timeout_seconds: int | None = None
    min_task_member: dict[str, int] = {}
    network_topology: TopologyOfGang | None = None


class Gang(ApiStruct, frozen=True):
    """A PodGroup of scheduler-plugins or Volcano; another kind of that name is Kubernetes' own."""

    metadata: ObjectMeta = ObjectMeta()
    spec: GangSpec = GangSpec()


GANGS = Resource(SCHEDULER_PLUGINS, "v1alpha1", "podgroups", "PodGroup", True, Gang, custom=True)
VOLCANO_GANGS = Resource(VOLCANO, "v1beta1", "podgroups", "PodGroup", True, Gang, custom=True)


class MatchPolicy(StrEnum):
    """The pods that count to a gang's minimum.

    ``ONLY_WAITING``: those without a node, so that its pods always start in groups of at least the
    minimum. ``WAITING_AND_RUNNING``: those with a node as well. ``ONCE_SATISFIED``: once the gang
    has had its minimum, any of its pods may start alone.
    """

    ONLY_WAITING = "only-waiting"
    WAITING_AND_RUNNING = "waiting-and-running"
    ONCE_SATISFIED = "once-satisfied"

    @classmethod
    def of(cls, text: str, default: Self) -> Self:
        """Return the policy of that name, ``default`` for any other text."""
        return next((one for one in cls if one == text), default)


@dataclass(frozen=True)
class Group:
    """A group. ``key``: see ``Membership``; ``created``: in seconds since the epoch.

    ``min_resources``: as written, since its definition may let pass what is no quantity.
    ``minimums``: how many pods of each task are needed, where there are tasks. ``maximum``: how
    many pods it may have, 0 for any number. ``policy``: which pods count to the minimum. ``gangs``:
    the keys of all groups that start with it, its own included; () if it starts by itself.
    ``strict``: whether a pod that fails ends the wait of the others, in mode ``permit``.
    """

    key: str
    min_member: int
    min_resources: Mapping[str, str | int | float] = field(default_factory=dict)
    timeout_seconds: float = 0.0
    created: float = 0.0
    minimums: Mapping[str, int] = field(default_factory=dict)
    maximum: int = 0
    policy: MatchPolicy = MatchPolicy.WAITING_AND_RUNNING
    gangs: tuple[str, ...] = ()
    strict: bool = True

    @property
    def together(self) -> tuple[str, ...]:
        """The keys of all groups that start at once, its own included."""
        return self.gangs or (self.key,)

    @classmethod
    def of(cls, gang: Gang, key: str = "") -> Group:
        """Return the group of a PodGroup, with Koordinator's annotations."""
        meta, spec = gang.metadata, gang.spec
        created, notes = meta.creation_timestamp, meta.annotations
        key = key or f"{meta.namespace}/{meta.name}"
        total = notes.get(f"{KOORDINATOR}/total-number", "")
        policy = notes.get(f"{KOORDINATOR}/match-policy", "")
        return cls(
            key,
            spec.min_member,
            spec.min_resources,
            float(spec.schedule_timeout_seconds or 0),
            0.0 if created is None else created.timestamp(),
            spec.min_task_member,
            parse_count(total) or 0,
            MatchPolicy.of(policy, MatchPolicy.WAITING_AND_RUNNING),
            gangs_together(key, meta.name, notes.get(f"{KOORDINATOR}/groups", "")),
            notes.get(f"{KOORDINATOR}/mode") != NOT_STRICT,
        )


@dataclass(frozen=True)
class Membership:
    """The group that a pod names.

    ``source``: the API group whose labels or annotations it has. ``key``: ``namespace/name``, with
    the source in between for those other than scheduler-plugins' own. ``virtual``: the group, where
    no PodGroup says more. ``owner``: the object that says when its pods are created.
    """

    namespace: str
    source: str
    name: str
    task: str = ""
    virtual: Group | None = None
    owner: str = ""

    @cached_property
    def key(self) -> str:
        """The key of the group."""
        return _key(self.source, self.namespace, self.name)

    def provided_name(self, task: str = "") -> str:
        """The name of the PodGroup that the scheduler has for the group, or for a task of it."""
        name = f"{self.source}/{self.name}"
        return f"{name}/{task}" if task else name

    @property
    def object_key(self) -> str:
        """``namespace/name`` of the PodGroup."""
        return f"{self.namespace}/{self.name}"


class _Naming(NamedTuple):
    """The keys by which pods name their group.

    ``name``: of a label or annotation whose value names the group. ``minimum``: of one that says
    how many pods are needed; "" if a PodGroup of ``source`` says it. ``maximum``, ``wait``,
    ``policy``, ``groups``, ``mode`` and ``task``: how many pods there may be, how long they wait,
    which of them count, which groups start together, whether it is strict, and which task of the
    group the pod is. ``alone``: of labels and annotations with which, if "true", pods come one
    after another, so that they are no such group. ``owner``: of one that names the object which
    says when the pods are created.
    """

    source: str
    name: str
    minimum: str = ""
    maximum: str = ""
    wait: str = ""
    default_seconds: float = 0.0
    policy: str = ""
    default_policy: MatchPolicy = MatchPolicy.ONCE_SATISFIED
    groups: str = ""
    mode: str = ""
    task: str = ""
    alone: tuple[str, ...] = ()
    owner: str = ""


_NAMINGS = (
    _Naming(SCHEDULER_PLUGINS, POD_GROUP_LABEL),
    _Naming(SCHEDULER_PLUGINS, OLDER_LABEL),
    *(
        _Naming(
            prefix,
            f"{prefix}/name",
            f"{prefix}/min-available",
            default_policy=MatchPolicy.WAITING_AND_RUNNING,
        )
        for prefix in ("pod-group.scheduling.sigs.k8s.io", "pod-group.scheduling.x-k8s.io")
    ),
    _Naming(
        KOORDINATOR,
        f"{KOORDINATOR}/name",
        f"{KOORDINATOR}/min-available",
        f"{KOORDINATOR}/total-number",
        f"{KOORDINATOR}/waiting-time",
        600.0,
        f"{KOORDINATOR}/match-policy",
        groups=f"{KOORDINATOR}/groups",
        mode=f"{KOORDINATOR}/mode",
    ),
    _Naming(VOLCANO, "scheduling.k8s.io/group-name", task="volcano.sh/task-spec"),
    _Naming(
        KUEUE,
        f"{KUEUE}/pod-group-name",
        f"{KUEUE}/pod-group-total-count",
        alone=(f"{KUEUE}/pod-group-serving", f"{KUEUE}/pod-group-fast-admission"),
    ),
    _Naming(
        LEADER_WORKER_SET,
        f"{LEADER_WORKER_SET}/group-key",
        f"{LEADER_WORKER_SET}/size",
        owner=f"{LEADER_WORKER_SET}/name",
    ),
)
_NAMES = frozenset(one.name for one in _NAMINGS)
_PLAIN_KEYS = (SCHEDULER_PLUGINS, *(one.source for one in _NAMINGS[2:4]))
"""Sources with group keys of the form ``namespace/name``."""

SOURCES_OF_GANGS = (SCHEDULER_PLUGINS, KOORDINATOR, KUEUE)
"""Sources of groups that a PodGroup of scheduler-plugins may describe."""


def _key(source: str, namespace: str, name: str) -> str:
    return f"{namespace}/{name}" if source in _PLAIN_KEYS else f"{namespace}/{source}/{name}"


def group_key_of(source: str, meta: ObjectMeta) -> str:
    """Return the key of the group that an object describes."""
    return _key(source, meta.namespace, meta.name)


_BUDGET_BYTES = 32 << 20
_memberships: BoundedCache[str, tuple[ObjectMeta, Membership | None]] = BoundedCache(_BUDGET_BYTES)
"""By UID: the metadata of the parsed version of a pod, and its membership."""


def membership_of(pod: Pod) -> Membership | None:
    """Return the group that a pod names, None without one; each version is parsed once."""
    meta = pod.metadata
    labels, annotations = meta.labels, meta.annotations
    if _NAMES.isdisjoint(labels) and _NAMES.isdisjoint(annotations):
        return None
    # A provided pod, which holds room for a member, has its labels and is no member.
    if is_provided(pod):
        return None
    known = _memberships.get(meta.uid)
    if known is None or known[0] is not meta:
        texts = (*labels.values(), *annotations.values())
        size_bytes = BYTES_AN_ENTRY * (1 + len(texts)) + 5 * sum(map(len, texts))
        known = _memberships.put(meta.uid, (meta, _parsed(pod)), size_bytes)
    return known[1]


def _parsed(pod: Pod) -> Membership | None:
    labels, annotations = pod.metadata.labels, pod.metadata.annotations
    for naming in _NAMINGS:
        name = labels.get(naming.name) or annotations.get(naming.name)
        if name and (found := _membership(pod, naming, name)) is not None:
            return found
    return None


def _membership(pod: Pod, naming: _Naming, name: str) -> Membership | None:
    labels, annotations = pod.metadata.labels, pod.metadata.annotations

    def value(key: str) -> str:
        return labels.get(key) or annotations.get(key, "")

    namespace = pod.metadata.namespace
    if not naming.minimum:
        return Membership(namespace, naming.source, name, value(naming.task))
    minimum = parse_count(value(naming.minimum))
    if minimum is None or any(value(key) == "true" for key in naming.alone):
        return None
    membership = Membership(namespace, naming.source, name, owner=value(naming.owner))
    created = pod.metadata.creation_timestamp
    group = Group(
        membership.key,
        minimum,
        timeout_seconds=_seconds(value(naming.wait)) or naming.default_seconds,
        created=0.0 if created is None else created.timestamp(),
        maximum=parse_count(value(naming.maximum)) or 0,
        policy=MatchPolicy.of(value(naming.policy), naming.default_policy),
        gangs=gangs_together(membership.key, name, value(naming.groups)),
        strict=value(naming.mode) != NOT_STRICT,
    )
    return replace(membership, virtual=group)


def group_key(pod: Pod) -> str:
    """Return the key of a pod's group, "" if it has none."""
    membership = membership_of(pod)
    return "" if membership is None else membership.key


def _seconds(text: str) -> float:
    """Return the seconds of a duration such as ``90s`` or ``1h30m``, 0 for any other text."""
    try:
        return max(parse_duration(text), 0.0) if len(text) <= _LONGEST_DURATION else 0.0
    except DurationError:
        return 0.0


def gangs_together(key: str, name: str, text: str) -> tuple[str, ...]:
    """Return the keys of the gangs that start together with the gang ``key``, which is called
    ``name``; () if it starts by itself.

    ``text``: a list in JSON of ``namespace/name``. Gangs of other namespaces are left out: who may
    write to one namespace does not hold up the pods of another.
    """
    try:
        listed = json.loads(text) if text else []
    except UNDECODABLE:
        return ()
    if not isinstance(listed, list):
        return ()
    prefix, namespace = key.removesuffix(name), key.partition("/")[0]
    keys = {key}
    for one in listed:
        of_namespace, _, of_name = one.partition("/") if isinstance(one, str) else ("", "", "")
        if of_namespace == namespace and of_name:
            keys.add(prefix + of_name)
    return tuple(sorted(keys)) if len(keys) > 1 else ()
