"""Which group a pod belongs to, whoever's labels or annotations say so.

``_NAMINGS`` is the table: what names a group, and what says how large it is. The first naming that
a pod has counts. docs/addons/workloads.md says which operator's pods have which.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from proreus.objects import ApiStruct, ObjectMeta, Pod, Resource, parse_amount

POD_GROUP_LABEL = "scheduling.x-k8s.io/pod-group"
OLDER_LABEL = "pod-group.scheduling.sigs.k8s.io"
KOORDINATOR = "gang.scheduling.koordinator.sh"
KUEUE = "kueue.x-k8s.io"
LEADER_WORKER_SET = "leaderworkerset.sigs.k8s.io"
SCHEDULER_PLUGINS = "scheduling.x-k8s.io"
VOLCANO = "scheduling.volcano.sh"
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0}


class TopologyOfGang(ApiStruct, frozen=True):
    """The HyperNodes that a PodGroup of Volcano may be in: by tier, or by the name of a tier.

    ``mode``: ``hard``, or ``soft`` for a preference.
    """

    mode: str = "hard"
    highest_tier_allowed: int | None = None
    highest_tier_name: str = ""


class GangSpec(ApiStruct, frozen=True):
    """How many pods are needed, what they need together, and how long to wait for them.

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


@dataclass(frozen=True)
class Group:
    """A group. ``key``: see ``Membership``; ``created``: in seconds since the epoch.

    ``minimums``: how many pods of each task are needed, where there are tasks. ``maximum``: how
    many pods it may have, 0 for any number. ``once``: whether its pods may start alone after it has
    had its minimum.
    """

    key: str
    min_member: int
    min_resources: Mapping[str, int] = field(default_factory=dict)
    timeout_seconds: float = 0.0
    created: float = 0.0
    minimums: Mapping[str, int] = field(default_factory=dict)
    maximum: int = 0
    once: bool = False

    @classmethod
    def of(cls, gang: Gang, key: str = "") -> Group:
        """Return the group of a PodGroup."""
        meta, spec = gang.metadata, gang.spec
        created = meta.creation_timestamp
        return cls(
            key or f"{meta.namespace}/{meta.name}",
            spec.min_member,
            {name: parse_amount(name, value) for name, value in spec.min_resources.items()},
            float(spec.schedule_timeout_seconds or 0),
            0.0 if created is None else created.timestamp(),
            spec.min_task_member,
        )


@dataclass(frozen=True)
class Membership:
    """What a pod says about its group.

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

    @property
    def key(self) -> str:
        """The key of the group."""
        if self.source in _PLAIN_KEYS:
            return f"{self.namespace}/{self.name}"
        return f"{self.namespace}/{self.source}/{self.name}"

    @property
    def object_key(self) -> str:
        """``namespace/name`` of the PodGroup."""
        return f"{self.namespace}/{self.name}"


class _Naming(NamedTuple):
    """How pods name their group. Each field but the first, and ``default_seconds``, is a key.

    ``name``: of a label or annotation whose value names the group. ``minimum``: of one that says
    how many pods are needed; "" if a PodGroup of ``source`` says it. ``maximum``, ``wait``,
    ``policy`` and ``task``: how many pods there may be, how long they wait, whether they may start
    alone once there were enough, and which task of the group the pod is. ``alone``: of labels and
    annotations with which, if "true", pods come one after another, so that they are no such group.
    ``owner``: of one that names the object which says when the pods are created.
    """

    source: str
    name: str
    minimum: str = ""
    maximum: str = ""
    wait: str = ""
    default_seconds: float = 0.0
    policy: str = ""
    task: str = ""
    alone: tuple[str, ...] = ()
    owner: str = ""


_ONCE = ("", "once-satisfied")
"""The values of ``_Naming.policy`` with which pods may start alone later."""

_NAMINGS = (
    _Naming(SCHEDULER_PLUGINS, POD_GROUP_LABEL),
    _Naming(SCHEDULER_PLUGINS, OLDER_LABEL),
    *(
        _Naming(prefix, f"{prefix}/name", f"{prefix}/min-available", policy=f"{prefix}/name")
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
_PLAIN_KEYS = (SCHEDULER_PLUGINS, *(one.source for one in _NAMINGS[2:4]))
"""The sources whose groups have the key ``namespace/name``."""


def membership_of(pod: Pod) -> Membership | None:
    """Return what a pod says about its group; None if it has none."""
    labels, annotations = pod.metadata.labels, pod.metadata.annotations
    if not labels and not annotations:
        return None
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
    minimum, maximum = value(naming.minimum), value(naming.maximum)
    if not _is_number(minimum) or any(value(key) == "true" for key in naming.alone):
        return None
    membership = Membership(namespace, naming.source, name, owner=value(naming.owner))
    created = pod.metadata.creation_timestamp
    group = Group(
        membership.key,
        int(minimum),
        timeout_seconds=_seconds(value(naming.wait)) or naming.default_seconds,
        created=0.0 if created is None else created.timestamp(),
        maximum=int(maximum) if _is_number(maximum) else 0,
        once=value(naming.policy) in _ONCE,
    )
    return replace(membership, virtual=group)


def group_key(pod: Pod) -> str:
    """Return the key of a pod's group, "" if it has none."""
    membership = membership_of(pod)
    return "" if membership is None else membership.key


def virtual_group(pod: Pod) -> Group | None:
    """Return the group of a pod that names it without a PodGroup; None if it does not."""
    membership = membership_of(pod)
    return None if membership is None else membership.virtual


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal()


def _seconds(text: str) -> float:
    """Return the seconds of a duration such as ``90s`` or ``10m``, 0 for any other text."""
    number, unit = text[:-1], text[-1:]
    return int(number) * _SECONDS[unit] if unit in _SECONDS and _is_number(number) else 0.0
