"""The extension points, as base classes to inherit from.

A plugin is a class that inherits from one or more of these; its name is its class name unless it
says otherwise. Each docstring is a contract: when the method is called, how often, what it may
cost, and what each answer leads to. No status (None) means success; a raised exception is a bug of
the plugin, fails the attempt and is logged.

Filter and Score have two forms. Per node: easy to write, called for each node. Columnar (``_all``):
one call for all nodes, over NumPy columns. Whoever writes one form has the other: the base class
derives it. The runtime calls columns for many rows and the per-node form for a handful.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable, Iterable, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np

from proreus.config.types import PluginArgs
from proreus.framework.attempt_budget import ROWS_BETWEEN_LOOKS
from proreus.framework.cycle_state import CycleState
from proreus.framework.events import ALL_EVENTS, ClusterEvent
from proreus.framework.handle import Handle
from proreus.framework.node_info import NodeInfo
from proreus.framework.node_table import NodeTable
from proreus.framework.plugin_health import PluginHealth
from proreus.framework.pod_group import Placement, PodGroupAssignments, PodGroupInfo
from proreus.framework.pod_info import PodInfo, QueuedPodInfo
from proreus.framework.post_filter_result import PostFilterResult
from proreus.framework.status import Status
from proreus.framework.verdicts import IntArray, Rows, Verdicts
from proreus.metrics import Counter
from proreus.objects.scheduling import PodGroup

MIN_SCORE = 0
MAX_SCORE = 100
MAX_PERMIT_WAIT_SECONDS = 15 * 60.0


class Evaluations(NamedTuple):
    """How often a plugin was asked, at the points where kube-scheduler counts that."""

    pre_filter: Counter = Counter()
    filter: Counter = Counter()
    pre_score: Counter = Counter()
    score: Counter = Counter()


class Plugin:
    """What every plugin is.

    One instance a profile lives as long as the profile. ``args`` is what pluginConfig says, parsed
    by ``Args``; ``handle`` is the plugin's way to the cluster.
    """

    name: ClassVar[str] = ""
    """The name in configuration, metrics and messages; the class name where it is not set."""

    Args: ClassVar[type[PluginArgs] | None] = None
    """The model of the plugin's arguments, None where it takes none."""

    row_local: ClassVar[bool] = False
    """Filter and Score of a node depend on that node and the pod alone, so that an answer holds
    until that node changes. Leave it False when the plugin looks across nodes or at the outside.

    Where ``sign`` shares its answers, Filter is asked about every node, also about those that
    another plugin rejects."""

    looks_at_pods: ClassVar[bool] = True
    """Filter and Score look at the pods that are on a node, or at their sums. Where it is False,
    shared answers outlast pods that come and go, and preemption asks Filter once a node instead of
    once a victim, unless ``add_pod`` or ``remove_pod`` changed the plugin's notes."""

    fetches: ClassVar[bool] = False
    """Set by ``FetchingPlugin``."""

    evaluations: Evaluations = Evaluations()
    """Counters, set by the profile that the plugin belongs to."""

    health: PluginHealth = PluginHealth()
    """Is told of the plugin's failures; set by the profile that the plugin belongs to."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Name the plugin after its class where it does not name itself."""
        super().__init_subclass__(**kwargs)
        if "name" not in cls.__dict__:
            cls.name = cls.__name__

    def __init__(self, args: Any, handle: Handle) -> None:
        self.args = args
        self.handle = handle

    def events_to_register(self) -> Iterable[ClusterEvent]:
        """Return the events that may make schedulable a pod that this plugin rejected.

        Called once a profile. The default is everything, which is safe and wakes pods too often;
        an empty answer means that nothing but a change of the pod itself helps.
        """
        return ALL_EVENTS

    def sign(self, pod: PodInfo) -> Hashable | None:
        """Return the part of the pod that Filter and Score of this plugin read, or None.

        Pods with equal signatures share answers: of a ``row_local`` plugin until the row changes.
        None means: ask anew for every pod. Called once a cycle at most; must be cheap.
        """
        return None

    def invalidation_key(self, nodes: NodeTable) -> Hashable:
        """Return what else the answers of a ``row_local`` plugin depend on, beside row and pod.

        Shared answers are dropped when it changes. Called once a cycle; must be very cheap.
        """
        return None


class BackgroundPlugin(Plugin):
    """Has work beside scheduling: to learn something from outside, or to pass something on.

    Not an extension point of its own: whatever else enables the plugin in a profile does.
    """

    async def run_in_background(self) -> None:
        """Called once scheduling begins; cancelled when the plugin's profile ends, in a process
        after its last binding. Runs in the scheduler's own loop: it may wait, but not block.

        What it raises is logged, and it is called again after a pause: 1 s at first, 60 s at most.
        Returning is the end of it.
        """
        raise NotImplementedError


class FetchingPlugin(Plugin):
    """Has its answers from elsewhere: they are fetched, then the usual method is asked for them.

    The scheduling cycle does not wait inside an extension point. It waits for ``fetch_x`` right
    before it asks ``x``; meanwhile no event is handled and no other pod is scheduled, so be quick.
    Where a fetch answers an Error status, the attempt fails as if ``x`` had. Not an extension
    point of its own: each is called only where the plugin is enabled at the point.
    """

    fetches: ClassVar[bool] = True

    async def fetch_pre_filter(self, state: CycleState, pod: PodInfo) -> Status | None:
        """Called before any PreFilter plugin is asked."""
        return None

    async def fetch_filter(
        self, state: CycleState, pod: PodInfo, rows: Rows | None
    ) -> Status | None:
        """Called with the rows of ``handle.nodes`` that Filter may ask about, None for all.

        Filter is asked about any tables made of these rows, also in trials of preemption.
        """
        return None

    async def fetch_score(self, state: CycleState, pod: PodInfo, rows: Rows) -> Status | None:
        """Called with the rows that passed, two or more."""
        return None

    async def fetch_reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        """Called before any Reserve plugin is asked; the pod is assumed."""
        return None

    async def fetch_permit(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        """Called once all Reserve plugins agreed, before any Permit plugin is asked."""
        return None


class PreEnqueuePlugin(Plugin):
    """Decides whether a pod may enter the active queue."""

    def pre_enqueue(self, pod: PodInfo) -> Status | None:
        """Called whenever the pod is about to become active. Any status but success gates it."""
        raise NotImplementedError


class QueueSortPlugin(Plugin):
    """Orders the active queue; every scheduler has exactly one."""

    def sort_key(self, queued: QueuedPodInfo) -> Any:
        """Return a value that orders pods: smallest first. Called when a pod enters a queue."""
        raise NotImplementedError


class PreFilterPlugin(Plugin):
    """Looks at the pod once before nodes are filtered."""

    has_pre_filter_extensions: ClassVar[bool] = False
    """Whether the plugin has an ``add_pod`` or ``remove_pod``; set for each class."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Note whether the plugin wants to hear of pods that are tried."""
        super().__init_subclass__(**kwargs)
        cls.has_pre_filter_extensions = (
            cls.add_pod is not PreFilterPlugin.add_pod
            or cls.remove_pod is not PreFilterPlugin.remove_pod
        )

    def pre_filter(
        self, state: CycleState, pod: PodInfo, nodes: NodeTable
    ) -> Status | frozenset[str] | None:
        """Called once a cycle, with the whole cluster.

        A set of names: only these nodes can do. Skip: this plugin's Filter is not asked in this
        cycle. Unresolvable: no node can do, stop here. Unschedulable: no node can do, go on asking.
        """
        raise NotImplementedError

    def add_pod(
        self, state: CycleState, pod: PodInfo, added: PodInfo, node: NodeInfo
    ) -> bool | None:
        """Bring the notes in ``state`` in step with a pod that is tried on a node.

        Called on a clone of the state, for nominated pods and in preemption; the node has the pod
        already. Only plugins that keep counts across nodes need it. False: the pod makes no
        difference to the notes, wherever it is; preemption does not ask about it again.
        """
        return None

    def remove_pod(
        self, state: CycleState, pod: PodInfo, removed: PodInfo, node: NodeInfo
    ) -> bool | None:
        """The reverse of ``add_pod``: the node has lost the pod already."""
        return None


class FilterPlugin(Plugin):
    """Decides which nodes can take the pod."""

    columnar_filter: ClassVar[bool] = False
    per_node_filter: ClassVar[bool] = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Note which form the plugin has, and insist on one."""
        super().__init_subclass__(**kwargs)
        cls.columnar_filter = cls.filter_all is not FilterPlugin.filter_all
        cls.per_node_filter = cls.filter is not FilterPlugin.filter
        if not (cls.columnar_filter or cls.per_node_filter):
            raise TypeError(f"{cls.__name__} must define filter or filter_all")

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        """Judge one node. Called for nodes that no earlier plugin rejected, until enough are found.

        Unschedulable: not now, preemption may help. Unresolvable: preemption would not help.
        """
        nodes = self.handle.nodes.take(np.array([node.row], dtype=np.intp))
        verdicts = Verdicts(1, self.name)
        self.filter_all(state, pod, nodes, verdicts)
        return verdicts.status(0)

    def filter_all(
        self, state: CycleState, pod: PodInfo, nodes: NodeTable, verdicts: Verdicts
    ) -> None:
        """Judge all nodes of a table at once: call ``verdicts.reject`` for those that cannot do.

        Called once a cycle or less; must not depend on which rows the table happens to hold.
        """
        for row, node in enumerate(nodes):
            if row % ROWS_BETWEEN_LOOKS == 0:
                state.check_budget(self.name, "Filter")
            status = self.filter(state, pod, node)
            if status is not None:
                verdicts.reject_row(row, status)


class PostFilterPlugin(Plugin):
    """Tries to make room when no node can take the pod."""

    async def post_filter(
        self, state: CycleState, pod: PodInfo, verdicts: Verdicts
    ) -> PostFilterResult:
        """Called when Filter left no node; ``verdicts`` are by row of ``handle.nodes``.

        Success ends the point and may nominate a node; Unschedulable goes on to the next plugin;
        Unresolvable ends the point.
        """
        raise NotImplementedError


class PodGroupPostFilterPlugin(Plugin):
    """Tries to make room for a whole PodGroup; not configurable by itself: it comes with PostFilter
    (gate WorkloadAwarePreemption)."""

    async def pod_group_post_filter(
        self,
        group: PodGroup,
        pods: Sequence[PodInfo],
        fits: Callable[[], Awaitable[Status | None]],
    ) -> Status | None:
        """Called when the group did not fit. None: room will be made.

        ``fits`` tries the group on the nodes as they are at that moment, without PostFilter; its
        answer None means that it fits. The plugin may take pods off ``handle.nodes`` meanwhile, and
        must have put them back when it returns.
        """
        raise NotImplementedError


class PreScorePlugin(Plugin):
    """Prepares scoring."""

    def pre_score(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> Status | None:
        """Called once a cycle with the nodes that passed (two or more). Skip: do not score."""
        raise NotImplementedError


class ScorePlugin(Plugin):
    """Says how good a node is for the pod."""

    columnar_score: ClassVar[bool] = False
    per_node_score: ClassVar[bool] = False
    normalizes: ClassVar[bool] = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Note which form the plugin has, and insist on one."""
        super().__init_subclass__(**kwargs)
        cls.columnar_score = cls.score_all is not ScorePlugin.score_all
        cls.per_node_score = cls.score is not ScorePlugin.score
        cls.normalizes = cls.normalize is not ScorePlugin.normalize
        if not (cls.columnar_score or cls.per_node_score):
            raise TypeError(f"{cls.__name__} must define score or score_all")

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        """Score one node that passed: any int, if ``normalize`` brings it to 0..100."""
        nodes = self.handle.nodes.take(np.array([node.row], dtype=np.intp))
        scores = self.score_all(state, pod, nodes)
        return scores if isinstance(scores, int) else int(scores[0])

    def score_all(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> IntArray | int:
        """Score all nodes of a table, shape ``(len(nodes),)``; one int stands for the same score
        everywhere."""
        return np.array([self.score(state, pod, node) for node in nodes], dtype=np.int64)

    def normalize(self, state: CycleState, pod: PodInfo, scores: IntArray) -> IntArray:
        """Bring the scores of all nodes that passed to 0..100. Must not change its argument.

        Must depend on the scores alone (and the pod), not on the order of the nodes.
        """
        return scores


class ReservePlugin(Plugin):
    """Keeps books of its own about where pods go."""

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        """Called once a node was chosen and assumed. Any rejection undoes the choice."""
        return None

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        """Undo ``reserve``; also called when this plugin's reserve was never reached."""


class PermitPlugin(Plugin):
    """Lets a decided pod through, holds it, or turns it down."""

    def permit(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        """Called after Reserve. ``Status.wait(seconds)`` (15 minutes at most) holds the pod until
        ``handle.get_waiting_pod(uid).allow(name)`` or ``.reject(name, message)``."""
        raise NotImplementedError


class PreBindPlugin(Plugin):
    """Does what must be done before a pod is bound: volumes, claims."""

    allow_parallel: ClassVar[bool] = False
    """May run at the same time as its neighbours that allow it too."""

    def pre_bind_pre_flight(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        """Say whether PreBind has work for this pod: None if so, Skip if not."""
        return None

    async def pre_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        """May wait. Any status but success sends the pod back to the queue."""
        raise NotImplementedError


class BindPlugin(Plugin):
    """Tells the apiserver where the pod goes."""

    async def bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        """Bind, or answer Skip to leave it to the next bind plugin."""
        raise NotImplementedError


class PostBindPlugin(Plugin):
    """Is told of every bound pod."""

    def post_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        """Called after the binding succeeded; must be quick."""
        raise NotImplementedError


class PlacementGeneratePlugin(Plugin):
    """Names sets of nodes among which a whole PodGroup may go; a profile has at most one."""

    def generate_placements(
        self, state: CycleState, group: PodGroupInfo, nodes: NodeTable
    ) -> Sequence[Placement] | Status:
        """Called once a cycle of a group, with the whole cluster. The group is tried in each
        placement in turn. None at all: it is unschedulable. Unschedulable rejects the group."""
        raise NotImplementedError


class PlacementScorePlugin(Plugin):
    """Says how good a placement is for a PodGroup."""

    def score_placement(
        self, state: CycleState, group: PodGroupInfo, assignments: PodGroupAssignments
    ) -> int | Status:
        """Score one placement in which the group fits: any int, if ``normalize_placements``
        brings it to 0..100. Called only if there are several."""
        raise NotImplementedError

    def normalize_placements(
        self, state: CycleState, group: PodGroupInfo, scores: IntArray
    ) -> IntArray | Status:
        """Bring the scores of all placements to 0..100. Must not change its argument."""
        return scores


POINTS: dict[str, type[Plugin]] = {
    "preEnqueue": PreEnqueuePlugin,
    "queueSort": QueueSortPlugin,
    "preFilter": PreFilterPlugin,
    "filter": FilterPlugin,
    "postFilter": PostFilterPlugin,
    "preScore": PreScorePlugin,
    "score": ScorePlugin,
    "reserve": ReservePlugin,
    "permit": PermitPlugin,
    "preBind": PreBindPlugin,
    "bind": BindPlugin,
    "postBind": PostBindPlugin,
    "placementGenerate": PlacementGeneratePlugin,
    "placementScore": PlacementScorePlugin,
}
"""Extension points by their names in KubeSchedulerConfiguration."""


def points_of(plugin: type[Plugin]) -> frozenset[str]:
    """Return the extension points that a plugin takes part in."""
    return frozenset(point for point, base in POINTS.items() if issubclass(plugin, base))
