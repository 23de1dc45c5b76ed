"""Keep new pods off nodes that will soon be taken out of service."""

from proreus.config.types import PluginArgs
from proreus.framework.cycle_state import CycleState
from proreus.framework.node_info import NodeInfo
from proreus.framework.plugin import FilterPlugin
from proreus.framework.pod_info import PodInfo
from proreus.framework.status import Status


class Maintenance(FilterPlugin):
    """Turns down nodes that have a label, ``maintenance=soon`` unless the args say otherwise."""

    class Args(PluginArgs):
        """Which label it is."""

        label: str = "maintenance"
        value: str = "soon"

    # the answer for a node depends on the node alone, and is the same for every pod
    row_local = True

    def sign(self, pod: PodInfo) -> str:
        """All pods are alike."""
        return ""

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        """Turn the node down if it has the label."""
        if node.labels.get(self.args.label) == self.args.value:
            return Status.unschedulable("node(s) will soon be taken out of service")
        return None
