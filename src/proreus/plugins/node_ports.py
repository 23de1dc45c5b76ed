"""NodePorts: no two pods use the same port of a node.

Ports are those of containers and sidecars with a hostPort. A port on ``0.0.0.0`` conflicts with the
same port and protocol on any address. Nodes have few distinct sets of used ports: each set is
compared once.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence, Set

from proreus.framework.cycle_state import CycleState
from proreus.framework.events import ADD, DELETE, NODE, ClusterEvent
from proreus.framework.interning import once_per_value
from proreus.framework.node_info import NodeInfo
from proreus.framework.node_table import NodeTable
from proreus.framework.plugin import FilterPlugin, PreFilterPlugin
from proreus.framework.pod_events import pod_registrations
from proreus.framework.pod_info import HostPort, PodInfo, host_ports_of
from proreus.framework.status import Status
from proreus.framework.verdicts import Verdicts
from proreus.objects.pod import Pod

REASON = "node(s) didn't have free ports for the requested pod ports"
ANY_ADDRESS = "0.0.0.0"

_REJECTED = Status.unschedulable(REASON).with_plugin("NodePorts")


class NodePorts(PreFilterPlugin, FilterPlugin):
    """Rejects nodes where a host port of the pod is taken."""

    row_local = True

    def sign(self, pod: PodInfo) -> Hashable:
        """Sign the host ports."""
        # A frozenset keeps its hash, which a tuple computes each time.
        return frozenset(pod.host_ports)

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> Status | None:
        """Skip pods without host ports."""
        return None if pod.host_ports else Status.skip()

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        """Filter one node."""
        used = node.used_ports
        return _REJECTED if used and ports_conflict(pod.host_ports, used) else None

    def filter_all(
        self, state: CycleState, pod: PodInfo, nodes: NodeTable, verdicts: Verdicts
    ) -> None:
        """Filter all nodes."""
        wanted = pod.host_ports
        if not wanted:
            return
        taken = once_per_value(
            nodes.port_set,
            nodes.port_sets.values,
            lambda used: ports_conflict(wanted, used),
        )
        if taken is not None:
            verdicts.reject_with(taken, _REJECTED)

    def events_to_register(self) -> Iterable[ClusterEvent]:
        """Register deleted pods that used a port of the pod, and new nodes."""
        return (
            *pod_registrations(
                self.handle.feature_gates, assigned=DELETE, hint=_is_schedulable_after_pod_deleted
            ),
            ClusterEvent(NODE, ADD),
        )


def ports_conflict(wanted: Sequence[HostPort], used: Set[HostPort]) -> bool:
    """Return whether a port is in use on its address, or either of both is on all addresses."""
    # Two pods may have 30,000 ports each: so they are not compared pairwise.
    on_any_address = {(one.port, one.protocol) for one in used}
    for port in wanted:
        if port.ip == ANY_ADDRESS:
            if (port.port, port.protocol) in on_any_address:
                return True
        # An address conflicts with itself, and with a pod that uses all addresses.
        elif port in used or port._replace(ip=ANY_ADDRESS) in used:
            return True
    return False


def _is_schedulable_after_pod_deleted(pod: PodInfo, old: Pod, new: Pod | None) -> bool:
    # A pod that was not on a node, nor nominated to one, used no port.
    if not old.spec.node_name and not old.status.nominated_node_name:
        return False
    return ports_conflict(pod.host_ports, set(host_ports_of(old)))
