"""scheduling.k8s.io PriorityClass, as far as plugins read it: pods have their priority already."""

from __future__ import annotations

from proreus.objects.meta import ApiStruct, ObjectMeta, Resource


class PriorityClass(ApiStruct, frozen=True):
    """A class that pods name in ``spec.priorityClassName``; ``value`` is their priority."""

    metadata: ObjectMeta = ObjectMeta()
    value: int = 0


PRIORITY_CLASSES = Resource(
    "scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", False, PriorityClass
)
