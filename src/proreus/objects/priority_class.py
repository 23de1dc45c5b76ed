"""scheduling.k8s.io PriorityClass, which plugins and simulations read: pods have a priority."""

from __future__ import annotations

from proreus.objects.meta import ApiStruct, Resource, UnownedObjectMeta


class PriorityClass(ApiStruct, frozen=True):
    """A class that pods name in ``spec.priorityClassName``; ``value`` is their priority.

    What admission makes of the name: that priority, and ``preemption_policy``.
    """

    metadata: UnownedObjectMeta = UnownedObjectMeta()
    value: int = 0
    global_default: bool = False
    preemption_policy: str | None = None


PRIORITY_CLASSES = Resource(
    "scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", False, PriorityClass
)
