"""Which group a pod belongs to, whoever's labels or annotations say so.

=====================================================  =============================================
on the pod                                             group
=====================================================  =============================================
label ``scheduling.x-k8s.io/pod-group``                the PodGroup of that name
label ``pod-group.scheduling.sigs.k8s.io``             the same: the older spelling
labels ``pod-group.scheduling.sigs.k8s.io/name`` and   a group without PodGroup
``…/min-available``
(or ``pod-group.scheduling.x-k8s.io``)
annotations ``gang.scheduling.koordinator.sh/name``    a group without PodGroup
and ``…/min-available`` (``…/total-number``,
``…/waiting-time``, ``…/match-policy``)
annotation ``scheduling.k8s.io/group-name``            Volcano's PodGroup of that name; with
                                                       ``volcano.sh/task-spec``, that task of it
=====================================================  =============================================
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from proreus.objects import ApiStruct, ObjectMeta, Pod, Resource, parse_amount

POD_GROUP_LABEL = "scheduling.x-k8s.io/pod-group"
OLDER_LABEL = "pod-group.scheduling.sigs.k8s.io"
VOLCANO_ANNOTATION = "scheduling.k8s.io/group-name"
_VOLCANO_TASK = "volcano.sh/task-spec"
_VIRTUAL_PREFIXES = ("pod-group.scheduling.sigs.k8s.io", "pod-group.scheduling.x-k8s.io")
KOORDINATOR = "gang.scheduling.koordinator.sh"
SCHEDULER_PLUGINS = "scheduling.x-k8s.io"
VOLCANO = "scheduling.volcano.sh"
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0}


class GangSpec(ApiStruct, frozen=True):
    """How many pods are needed, what they need together, and how long to wait for them.

    ``min_task_member``: of Volcano, how many pods of each task are needed.
    """

    min_member: int = 0
    min_resources: dict[str, str | int | float] = {}
    schedule_timeout_seconds: int | None = None
    min_task_member: dict[str, int] = {}


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
    no PodGroup says more.
    """

    namespace: str
    source: str
    name: str
    task: str = ""
    virtual: Group | None = None

    @property
    def key(self) -> str:
        """The key of the group."""
        if self.source in (VOLCANO, KOORDINATOR):
            return f"{self.namespace}/{self.source}/{self.name}"
        return f"{self.namespace}/{self.name}"

    @property
    def object_key(self) -> str:
        """``namespace/name`` of the PodGroup."""
        return f"{self.namespace}/{self.name}"


def membership_of(pod: Pod) -> Membership | None:
    """Return what a pod says about its group; None if it has none."""
    meta = pod.metadata
    labels, annotations = meta.labels, meta.annotations
    name = labels.get(POD_GROUP_LABEL) or labels.get(OLDER_LABEL, "")
    if name:
        return Membership(meta.namespace, SCHEDULER_PLUGINS, name)
    for prefix in _VIRTUAL_PREFIXES:
        name, minimum = labels.get(f"{prefix}/name", ""), labels.get(f"{prefix}/min-available", "")
        if name and _is_number(minimum):
            group = Group(f"{meta.namespace}/{name}", int(minimum), created=_created(pod))
            return Membership(meta.namespace, prefix, name, virtual=group)
    if not annotations:
        return None
    name = annotations.get(f"{KOORDINATOR}/name", "")
    minimum = annotations.get(f"{KOORDINATOR}/min-available", "")
    if name and _is_number(minimum):
        return _of_koordinator(pod, name, int(minimum))
    name = annotations.get(VOLCANO_ANNOTATION, "")
    if name:
        return Membership(meta.namespace, VOLCANO, name, annotations.get(_VOLCANO_TASK, ""))
    return None


def _of_koordinator(pod: Pod, name: str, minimum: int) -> Membership:
    meta = pod.metadata
    total = meta.annotations.get(f"{KOORDINATOR}/total-number", "")
    policy = meta.annotations.get(f"{KOORDINATOR}/match-policy", "")
    group = Group(
        f"{meta.namespace}/{KOORDINATOR}/{name}",
        minimum,
        timeout_seconds=_seconds(meta.annotations.get(f"{KOORDINATOR}/waiting-time", "")) or 600.0,
        created=_created(pod),
        maximum=int(total) if _is_number(total) else 0,
        once=policy in ("", "once-satisfied"),
    )
    return Membership(meta.namespace, KOORDINATOR, name, virtual=group)


def group_key(pod: Pod) -> str:
    """Return the key of a pod's group, "" if it has none."""
    membership = membership_of(pod)
    return "" if membership is None else membership.key


def virtual_group(pod: Pod) -> Group | None:
    """Return the group of a pod that names it without a PodGroup; None if it does not."""
    membership = membership_of(pod)
    return None if membership is None else membership.virtual


def _created(pod: Pod) -> float:
    created = pod.metadata.creation_timestamp
    return 0.0 if created is None else created.timestamp()


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal()


def _seconds(text: str) -> float:
    """Return the seconds of a duration such as ``90s`` or ``10m``, 0 for any other text."""
    number, unit = text[:-1], text[-1:]
    return int(number) * _SECONDS[unit] if unit in _SECONDS and _is_number(number) else 0.0
