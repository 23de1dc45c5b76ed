"""The base of the classes that compute the statuses of one kind of objects from pods."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from proreus.objects import Pod, Resource
from proreus.objects.meta import ApiObject


class PodSets:
    """Pods by a name that ``name_for(pod)`` returns; "" for a pod that belongs to nothing.

    Invariant: each pod is in the one set that its name had when it was put there.
    """

    def __init__(self, name_for: Callable[[Pod], str]) -> None:
        self._name_for = name_for
        self._sets: dict[str, dict[str, Pod]] = {}
        self._names: dict[str, str] = {}

    def put(self, pod: Pod) -> set[str]:
        """Add a pod or its new version; return the names of the sets that have changed."""
        uid = pod.metadata.uid
        changed = self.remove(pod)
        name = self._name_for(pod)
        if name:
            self._names[uid] = name
            self._sets.setdefault(name, {})[uid] = pod
            changed.add(name)
        return changed

    def remove(self, pod: Pod) -> set[str]:
        """Remove a pod; return the name of the set that it was in."""
        name = self._names.pop(pod.metadata.uid, "")
        if not name:
            return set()
        pods = self._sets[name]
        del pods[pod.metadata.uid]
        if not pods:
            del self._sets[name]
        return {name}

    def of(self, name: str) -> Collection[Pod]:
        """Return the pods of a name."""
        return self._sets.get(name, {}).values()

    def all(self) -> list[Pod]:
        """Return all pods that belong to something."""
        return [pod for pods in self._sets.values() for pod in pods.values()]


T = TypeVar("T", bound=ApiObject)


@dataclass(frozen=True)
class WithStatus(Generic[T]):
    """An object as it is decoded, and its status as JSON."""

    obj: T
    status: Mapping[str, Any]


class StatusReconciler(ABC, Generic[T]):
    """Keeps the objects of ``resource`` and the pods that belong to them, as they were seen last.

    ``pods``: by the name that ``name_for(pod)`` returns. Methods that note a change return the keys
    of objects whose status may be another now; all of them run on one event loop.
    """

    def __init__(self, resource: Resource[Any], name_for: Callable[[Pod], str]) -> None:
        self.resource = resource
        self.objects: dict[str, WithStatus[T]] = {}
        self.pods = PodSets(name_for)

    def put(self, key: str, obj: WithStatus[T]) -> Iterable[str]:
        """Note an object that is new or has changed."""
        self.objects[key] = obj
        return self.keys_after(key)

    def remove(self, key: str) -> Iterable[str]:
        """Note that an object is gone."""
        self.objects.pop(key, None)
        return self.keys_after(key)

    def put_pod(self, pod: Pod) -> Iterable[str]:
        """Note a pod that is new or has changed."""
        return self.keys_that_count(self.pods.put(pod))

    def remove_pod(self, pod: Pod) -> Iterable[str]:
        """Note that a pod is gone."""
        return self.keys_that_count(self.pods.remove(pod))

    def keys_after(self, key: str) -> Collection[str]:
        """Return the keys of statuses that may change with the object of this key."""
        return {key} & self.objects.keys()

    def keys_that_count(self, names: Collection[str]) -> Collection[str]:
        """Return the keys of statuses that count pods of these names; by default the names are
        keys.
        """
        return self.objects.keys() & names

    @abstractmethod
    def status(self, key: str, now: float) -> dict[str, Any]:
        """Return the fields of an object's status as they should be; ``now``: Unix seconds."""
