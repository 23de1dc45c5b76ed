"""The plugin API: what plugins see and return; the names that plugin authors need are here.

    from proreus.framework import CycleState, FilterPlugin, NodeInfo, PodInfo, Status

See each name's own module for details. Code inside proreus imports from those.
"""

from proreus.config.types import PluginArgs
from proreus.framework import events
from proreus.framework.cycle_state import CycleState
from proreus.framework.events import ClusterEvent, plugin_event
from proreus.framework.handle import Handle
from proreus.framework.node_info import NodeInfo
from proreus.framework.node_table import NodeTable
from proreus.framework.plugin import (
    BackgroundPlugin,
    BindPlugin,
    FetchingPlugin,
    FilterPlugin,
    PermitPlugin,
    PostBindPlugin,
    PostFilterPlugin,
    PreBindPlugin,
    PreEnqueuePlugin,
    PreFilterPlugin,
    PreScorePlugin,
    QueueSortPlugin,
    ReservePlugin,
    ScorePlugin,
)
from proreus.framework.pod_info import PodInfo, QueuedPodInfo
from proreus.framework.post_filter_result import NominatingInfo, PostFilterResult
from proreus.framework.status import Code, Status
from proreus.framework.verdicts import BoolArray, CodeArray, IntArray, Rows, Verdicts

__all__ = [
    "BackgroundPlugin",
    "BindPlugin",
    "BoolArray",
    "ClusterEvent",
    "Code",
    "CodeArray",
    "CycleState",
    "FetchingPlugin",
    "FilterPlugin",
    "Handle",
    "IntArray",
    "NodeInfo",
    "NodeTable",
    "NominatingInfo",
    "PermitPlugin",
    "PluginArgs",
    "PodInfo",
    "PostBindPlugin",
    "PostFilterPlugin",
    "PostFilterResult",
    "PreBindPlugin",
    "PreEnqueuePlugin",
    "PreFilterPlugin",
    "PreScorePlugin",
    "QueueSortPlugin",
    "QueuedPodInfo",
    "ReservePlugin",
    "Rows",
    "ScorePlugin",
    "Status",
    "Verdicts",
    "events",
    "plugin_event",
]
