"""The dry run of preemption by one pod on one node that runs pods of groups.

A unit that is evicted as a whole may have pods on other nodes too. These nodes stay as they are,
and only the pod's counts across nodes are told of them, as in kube-scheduler's
``SelectVictimsOnNode``: the filters run for this node alone.

Worked example: group ``g`` (mode all) has pods on nodes ``a`` and ``b``, and the preemptor may be
in no zone with one of them. On ``a`` both are removed from its counts, and one from the node ``a``;
if the preemptor fits ``a`` only then, both are the victims of the candidate ``a``.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from proreus.framework.cycle_state import CycleState
from proreus.framework.handle import Handle
from proreus.framework.node_info import NodeInfo
from proreus.framework.pod_info import PodInfo
from proreus.framework.status import Status
from proreus.plugins.default_preemption.domain_victims import (
    DomainVictim,
    check_nodes,
    with_dependents,
)
from proreus.plugins.default_preemption.potential_victims import NO_VICTIMS, DisruptionBudgets
from proreus.plugins.default_preemption.select_candidate import Candidate


class NodeDryRun:
    """A copy of a node, and of the state that plugins keep about a pod's cycle (``state``).

    For units of pods, and for plugins that select victims by rules of their own
    (``DefaultPreemption.select_victims_on_node``).
    """

    def __init__(self, handle: Handle, state: CycleState, pod: PodInfo, node: NodeInfo) -> None:
        self._handle = handle
        self._pod = pod
        self.state: CycleState = state.clone()
        row = handle.nodes.rows[node.name]
        self._fork = handle.nodes.fork(np.array([row], dtype=np.intp))

    def remove(self, victim: PodInfo) -> None:
        """Remove a pod from the node, and tell PreFilter plugins (``remove_pod``)."""
        self._fork.remove_pod(0, victim.uid)
        self._handle.run_pre_filter_extension_remove_pod(
            self.state, self._pod, victim, self._fork[0]
        )

    def add(self, victim: PodInfo) -> None:
        """Put a pod back on the node, and tell PreFilter plugins (``add_pod``)."""
        self._fork.add_pod(0, victim)
        self._handle.run_pre_filter_extension_add_pod(self.state, self._pod, victim, self._fork[0])

    def rejection(self) -> Status | None:
        """Run Filter, nominated pods taken into account; return why the pod does not fit."""
        verdicts = self._handle.run_filters_with_nominated_pods(self.state, self._pod, self._fork)
        return verdicts.status(0)


def candidate_of_units(
    node_name: str, victims: list[DomainVictim], violations: dict[int, int]
) -> Candidate | Status:
    """Return the candidate for units that have to be evicted from a node; without any, an Error."""
    victims = with_dependents(victims)
    pods = tuple(pod for unit in victims for pod in unit.pods)
    if not pods:
        return Status.error(f'expected at least one victim pod on node "{node_name}"')
    return Candidate(node_name, pods, sum(violations.get(id(unit), 0) for unit in victims))


class UnitDryRun:
    """The dry run on a row of ``handle.nodes``, for a pod and the state of its cycle."""

    def __init__(self, handle: Handle, state: CycleState, pod: PodInfo, row: int) -> None:
        self._handle = handle
        self._pod = pod
        self._name = handle.nodes[row].name
        self._dry_run = NodeDryRun(handle, state, pod, handle.nodes[row])

    def select_victims(
        self, units: list[DomainVictim], budgets: DisruptionBudgets
    ) -> Candidate | Status:
        """Return the units that have to be evicted, or why the node is no candidate.

        ``units``: those with a pod on the node. Raises ``NodeNotFound`` and ``PluginError``.
        """
        check_nodes(units, self._handle.nodes)
        lower = (unit for unit in units if unit.priority < self._pod.priority)
        units, violations = budgets.reprieve_order(lower)
        if not units:
            return Status.unresolvable(NO_VICTIMS)
        for unit in units:
            self.remove(unit)
        rejected = self.rejection()
        if rejected is not None:
            return rejected
        victims = []
        for unit in units:
            self.add(unit)
            if self.rejection() is not None:
                self.remove(unit)
                victims.append(unit)
        return candidate_of_units(self._name, victims, violations)

    @property
    def state(self) -> CycleState:
        """The copy of the state that the dry run changes."""
        return self._dry_run.state

    def rejection(self) -> Status | None:
        """Run Filter on the node, nominated pods taken into account; return why it does not fit."""
        return self._dry_run.rejection()

    def remove(self, unit: DomainVictim) -> None:
        """Remove the pods of a unit: from the node, and from counts across nodes.

        Raises ``NodeNotFound`` if one of them is on a node that the scheduler does not know.
        """
        self._apply(unit, self._dry_run.remove, self._handle.run_pre_filter_extension_remove_pod)

    def add(self, unit: DomainVictim) -> None:
        """Put the pods of a unit back."""
        self._apply(unit, self._dry_run.add, self._handle.run_pre_filter_extension_add_pod)

    def _apply(
        self,
        unit: DomainVictim,
        here: Callable[[PodInfo], None],
        elsewhere: Callable[[CycleState, PodInfo, PodInfo, NodeInfo], None],
    ) -> None:
        nodes = self._handle.nodes
        check_nodes((unit,), nodes)
        for pod, node_name in unit.placed:
            if node_name == self._name:
                here(pod)
            else:
                elsewhere(self.state, self._pod, pod, nodes[nodes.rows[node_name]])
