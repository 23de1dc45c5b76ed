"""Preemption for a whole pod group as in Kubernetes 1.37."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from proreus.framework.pod_group import PodGroupInfo, ProposedAssignment
from proreus.framework.pod_info import PodInfo
from proreus.framework.status import Status
from proreus.framework.workload_forest import Group
from proreus.plugins.default_preemption.domain_victims import (
    DomainVictim,
    NodeNotFound,
    check_nodes,
)
from proreus.plugins.default_preemption.pod_group_preemption import (
    NO_VICTIMS,
    Nominations,
    PodGroupEvaluator,
)


class PodGroupEvaluatorV137(PodGroupEvaluator):
    """Preempts for groups: all nodes are equal, and any unit on an unknown node is an error."""

    no_victims = Status.unresolvable(NO_VICTIMS)

    def _end_before_victims(
        self, group: Group, pods: Sequence[PodInfo], units: Iterable[DomainVictim]
    ) -> Nominations | Status | None:
        try:
            check_nodes(units, self._handle.nodes)
        except NodeNotFound as error:
            return Status.error(f"failed to create domain: {error}")
        return self._refusal(group, pods) or self._ongoing(group, pods)

    def _policies(self, group: Group, pods: Iterable[PodInfo]) -> list[str | None]:
        """Return the policies of the pods; by gate PodGroupPreemptionPolicy that of the group."""
        if self._handle.feature_gates.enabled("PodGroupPreemptionPolicy"):
            return [group.spec.preemption_policy]
        return [pod.pod.spec.preemption_policy for pod in pods]

    def _prefer_nodes(self, units: Iterable[DomainVictim], violations: Mapping[int, int]) -> None:
        """Prefer none."""

    def _nodes_to_clear(self, assignments: Iterable[ProposedAssignment]) -> tuple[str, ...]:
        return ()

    def _disruptions(self, victims: Iterable[DomainVictim]) -> tuple[tuple[str, int], ...]:
        """Return how many units of groups are evicted, of any kind."""
        return tuple(Counter("podgroup" for unit in victims if unit.is_group).items())

    def _kind_of(self, group: PodGroupInfo) -> str:
        return "podgroup"
