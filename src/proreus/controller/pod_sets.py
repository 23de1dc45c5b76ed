"""Sets of pods by their group, namespace or queue."""

from __future__ import annotations

from collections.abc import Callable, Collection

from proreus.objects import Pod


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
