"""The public API for plugins: their base classes, arguments and results.

    from proreus.framework import CycleState, FilterPlugin, NodeInfo, PodInfo, Status

docs/api.md describes every name, and promises how names may change; it is made of ``__all__`` and
the docstrings (``make api-page``). API objects are in ``proreus.objects``, what tests need in
``proreus.testing``. Code inside proreus imports from the modules that define the names.
"""

from proreus.base.clock import Clock
from proreus.base.errors import ApiError, ConfigError, Conflict, NotFound, ProreusError
from proreus.base.feature_gates import FeatureGates
from proreus.base.logs import Logger, logger
from proreus.base.metrics import Counter, Family, Gauge, Histogram, MetricsRegistry
from proreus.config import field_errors
from proreus.config.fields import ConfigModel, PluginArgs, Seconds
from proreus.framework import events
from proreus.framework.cycle_state import CycleState
from proreus.framework.events import ClusterEvent, plugin_event
from proreus.framework.handle import (
    ApiWriter,
    EventRecorder,
    Handle,
    PluginsRunner,
    PodActivator,
    PodProvider,
    PodsInBinding,
    WaitingPod,
)
from proreus.framework.node_info import NodeInfo
from proreus.framework.node_table import NodeTable
from proreus.framework.nominated_pods import Nominator
from proreus.framework.plugin import (
    MAX_PERMIT_WAIT_SECONDS,
    MAX_SCORE,
    MIN_SCORE,
    BackgroundPlugin,
    BindPlugin,
    FeasibleFilterPlugin,
    FetchingPlugin,
    FilterPlugin,
    PermitPlugin,
    Plugin,
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
from proreus.framework.pod_group import (
    POD_GROUP_SCHEDULING_CYCLE,
    OrderedPlacements,
    PlacedPod,
    Placement,
    PlacementProgress,
    PodGroupAssignments,
    PodGroupDescription,
    PodGroupInfo,
    PodGroupPostFilterResult,
    PodGroupSchedulingCycle,
    PodGroupState,
    PodGroupStates,
    ProposedAssignment,
    SchedulePodGroup,
)
from proreus.framework.pod_group_plugin import (
    PlacementFeasiblePlugin,
    PlacementGeneratePlugin,
    PlacementScorePlugin,
    PodGroupPostFilterPlugin,
    PodGroupSourcePlugin,
)
from proreus.framework.pod_info import HostPort, PodInfo, PodRequests, QueuedPodInfo, QueueingParams
from proreus.framework.pod_source import PodSourcePlugin, is_provided
from proreus.framework.post_filter_result import NominatingInfo, PostFilterResult, Victims
from proreus.framework.quota_plugin import QuotaPlugin, QuotaUse
from proreus.framework.scores import default_normalize
from proreus.framework.status import Code, Status
from proreus.framework.verdicts import BoolArray, CodeArray, IntArray, Rows, Verdicts

__all__ = [
    "MAX_PERMIT_WAIT_SECONDS",
    "MAX_SCORE",
    "MIN_SCORE",
    "POD_GROUP_SCHEDULING_CYCLE",
    "ApiError",
    "ApiWriter",
    "BackgroundPlugin",
    "BindPlugin",
    "BoolArray",
    "Clock",
    "ClusterEvent",
    "Code",
    "CodeArray",
    "ConfigError",
    "ConfigModel",
    "Conflict",
    "Counter",
    "CycleState",
    "EventRecorder",
    "Family",
    "FeasibleFilterPlugin",
    "FeatureGates",
    "FetchingPlugin",
    "FilterPlugin",
    "Gauge",
    "Handle",
    "Histogram",
    "HostPort",
    "IntArray",
    "Logger",
    "MetricsRegistry",
    "NodeInfo",
    "NodeTable",
    "NominatingInfo",
    "Nominator",
    "NotFound",
    "OrderedPlacements",
    "PermitPlugin",
    "PlacedPod",
    "Placement",
    "PlacementFeasiblePlugin",
    "PlacementGeneratePlugin",
    "PlacementProgress",
    "PlacementScorePlugin",
    "Plugin",
    "PluginArgs",
    "PluginsRunner",
    "PodActivator",
    "PodGroupAssignments",
    "PodGroupDescription",
    "PodGroupInfo",
    "PodGroupPostFilterPlugin",
    "PodGroupPostFilterResult",
    "PodGroupSchedulingCycle",
    "PodGroupSourcePlugin",
    "PodGroupState",
    "PodGroupStates",
    "PodInfo",
    "PodProvider",
    "PodRequests",
    "PodSourcePlugin",
    "PodsInBinding",
    "PostBindPlugin",
    "PostFilterPlugin",
    "PostFilterResult",
    "PreBindPlugin",
    "PreEnqueuePlugin",
    "PreFilterPlugin",
    "PreScorePlugin",
    "ProposedAssignment",
    "ProreusError",
    "QueueSortPlugin",
    "QueuedPodInfo",
    "QueueingParams",
    "QuotaPlugin",
    "QuotaUse",
    "ReservePlugin",
    "Rows",
    "SchedulePodGroup",
    "ScorePlugin",
    "Seconds",
    "Status",
    "Verdicts",
    "Victims",
    "WaitingPod",
    "default_normalize",
    "events",
    "field_errors",
    "is_provided",
    "logger",
    "plugin_event",
]
