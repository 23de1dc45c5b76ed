"""A dry run of preemption on one node, pod by pod.

For nodes with pods of groups (``unit_dry_run``), and for plugins that select victims by rules of
their own (``DefaultPreemption.select_victims_on_node``).
"""

from __future__ import annotations

import numpy as np

from proreus.framework.cycle_state import CycleState
from proreus.framework.handle import Handle
from proreus.framework.node_info import NodeInfo
from proreus.framework.pod_info import PodInfo
from proreus.framework.status import Status


class NodeDryRun:
    """A copy of a node, and of what plugins keep about a pod's cycle (``state``)."""

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
