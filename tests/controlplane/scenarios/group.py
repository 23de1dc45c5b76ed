"""A PodGroup of a scenario, and its pods."""

from __future__ import annotations

from typing import Any

from envtest.pod_groups import GROUPS, MEMBERS_DIFFER_IN_PRIORITY
from envtest.scenario_cluster import ScenarioCluster


class Group:
    """A gang of at least ``count`` pods, a basic group if that is 0; ``create`` adds the object.

    Its pods are called ``<name>-0``, ``<name>-1`` and so on.
    """

    def __init__(
        self, cluster: ScenarioCluster, name: str, count: int, priority: str = "top", **spec: Any
    ) -> None:
        self._cluster = cluster
        self._name = name
        self._priority = priority
        policy = {"gang": {"minCount": count}} if count else {"basic": {}}
        self._spec = {"schedulingPolicy": policy, "priorityClassName": priority, **spec}
        self._size = 0

    @property
    def path(self) -> str:
        """The path of the object."""
        return f"{GROUPS}/{self._name}"

    def create(self) -> Group:
        """Add the PodGroup."""
        self._cluster.add(GROUPS, {"metadata": {"name": self._name}, "spec": self._spec})
        return self

    def member(self, cpu: str = "2", rank: str = "", **options: Any) -> str:
        """Add a pod, and return its name.

        ``rank``: its priority where members may differ, so that their order does not depend on
        chance: it has to descend.
        """
        name = f"{self._name}-{self._size}"
        self._size += 1
        priority = rank if rank and MEMBERS_DIFFER_IN_PRIORITY else self._priority
        membership = {"podGroupName": self._name}
        self._cluster.pod(name, cpu, priority=priority, schedulingGroup=membership, **options)
        return name
