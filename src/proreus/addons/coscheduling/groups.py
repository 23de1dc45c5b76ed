"""Which group a pod belongs to: by label and PodGroup, or by labels alone.

=========================================================  =========================================
on the pod                                                 group
=========================================================  =========================================
label ``scheduling.x-k8s.io/pod-group``                    the PodGroup of that name
label ``pod-group.scheduling.sigs.k8s.io``                 the same: the older spelling
labels ``pod-group.scheduling.sigs.k8s.io/name`` and       a group without PodGroup
``…/min-available`` (or ``pod-group.scheduling.x-k8s.io``)
=========================================================  =========================================
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from proreus.objects import ApiStruct, ObjectMeta, Pod, Resource, parse_amount

POD_GROUP_LABEL = "scheduling.x-k8s.io/pod-group"
OLDER_LABEL = "pod-group.scheduling.sigs.k8s.io"
_VIRTUAL_PREFIXES = ("pod-group.scheduling.sigs.k8s.io", "pod-group.scheduling.x-k8s.io")


class GangSpec(ApiStruct, frozen=True):
    """How many pods are needed, what they need together, and how long to wait for them."""

    min_member: int = 0
    min_resources: dict[str, str | int | float] = {}
    schedule_timeout_seconds: int | None = None


class Gang(ApiStruct, frozen=True):
    """scheduling.x-k8s.io PodGroup; another kind of that name is Kubernetes' own."""

    metadata: ObjectMeta = ObjectMeta()
    spec: GangSpec = GangSpec()


GANGS = Resource(
    "scheduling.x-k8s.io", "v1alpha1", "podgroups", "PodGroup", True, Gang, custom=True
)


@dataclass(frozen=True)
class Group:
    """A group. ``key``: ``namespace/name``; ``created``: in seconds since the epoch."""

    key: str
    min_member: int
    min_resources: Mapping[str, int] = field(default_factory=dict)
    timeout_seconds: float = 0.0
    created: float = 0.0

    @classmethod
    def of(cls, gang: Gang) -> Group:
        """Return the group of a PodGroup."""
        meta, spec = gang.metadata, gang.spec
        created = meta.creation_timestamp
        return cls(
            f"{meta.namespace}/{meta.name}",
            spec.min_member,
            {name: parse_amount(name, value) for name, value in spec.min_resources.items()},
            float(spec.schedule_timeout_seconds or 0),
            0.0 if created is None else created.timestamp(),
        )


def group_key(pod: Pod) -> str:
    """Return ``namespace/name`` of a pod's group, "" if it has none."""
    labels = pod.metadata.labels
    name = labels.get(POD_GROUP_LABEL) or labels.get(OLDER_LABEL, "")
    if not name and _virtual_minimum(pod) is not None:
        name = next(filter(None, (labels.get(f"{one}/name") for one in _VIRTUAL_PREFIXES)))
    return f"{pod.metadata.namespace}/{name}" if name else ""


def virtual_group(pod: Pod) -> Group | None:
    """Return the group of a pod that names it without a PodGroup; None if it does not."""
    minimum, key = _virtual_minimum(pod), group_key(pod)
    if minimum is None:
        return None
    created = pod.metadata.creation_timestamp
    return Group(key, minimum, created=0.0 if created is None else created.timestamp())


def _virtual_minimum(pod: Pod) -> int | None:
    labels = pod.metadata.labels
    if labels.get(POD_GROUP_LABEL) or labels.get(OLDER_LABEL):
        return None
    for prefix in _VIRTUAL_PREFIXES:
        text = labels.get(f"{prefix}/min-available", "")
        if labels.get(f"{prefix}/name") and text.isascii() and text.isdecimal():
            return int(text)
    return None
