"""Keep new pods off nodes that will soon be taken out of service."""

from __future__ import annotations

from proreus.framework import (
    ClusterEvent,
    CycleState,
    FilterPlugin,
    NodeInfo,
    PluginArgs,
    PodInfo,
    Status,
    events,
)


class Maintenance(FilterPlugin):
    """Rejects nodes that have a label, ``maintenance=soon`` unless the args say otherwise."""

    class Args(PluginArgs):
        """Which label it is."""

        label: str = "maintenance"
        value: str = "soon"

    args: Args

    # the result depends on the node alone, and is the same for every pod
    row_local = True

    def sign(self, pod: PodInfo) -> str:
        """Return the same signature for all pods: they share results."""
        return ""

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        """Reject the node if it has the label."""
        if node.labels.get(self.args.label) == self.args.value:
            return Status.unresolvable("node(s) will soon be taken out of service")
        return None

    def events_to_register(self) -> list[ClusterEvent]:
        """Return the events that may help a pod that was rejected everywhere."""
        return [ClusterEvent(events.NODE, events.ADD | events.UPDATE_NODE_LABEL)]
