"""The extension points, as base classes to inherit from.

A plugin is a class that inherits from one or more of these; its name is its class name unless
``name`` is set. Each docstring is a contract: when the method is called, how often, what it may
cost, and the effect of each result. None means success; an exception is a bug of the plugin, fails
the attempt and is logged.

Filter and Score have two forms. Per node: easy to write, called for each node. Columnar (``_all``):
one call for all nodes, over NumPy columns. A plugin defines at least one of them; the base class
derives the other. The runtime calls the columnar form for many rows, the per-node form for a few.

``pod_group_plugin`` has the extension points of PodGroups.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np
from msgspec import Struct

from proreus.base.metrics import Counter
from proreus.config.fields import PluginArgs
from proreus.framework.attempt_budget import ROWS_BETWEEN_CHECKS
from proreus.framework.cycle_state import CycleState
from proreus.framework.events import ALL_EVENTS, ClusterEvent
from proreus.framework.handle import Handle
from proreus.framework.node_info import NodeInfo
from proreus.framework.node_table import NodeTable
from proreus.framework.plugin_health import PluginHealth
from proreus.framework.pod_info import PodInfo, QueuedPodInfo
from proreus.framework.post_filter_result import PostFilterResult
from proreus.framework.status import Status
from proreus.framework.verdicts import IntArray, Rows, Verdicts

MIN_SCORE = 0
"""The lowest score of a node, after ``normalize``."""
MAX_SCORE = 100
"""The highest score of a node, after ``normalize``."""
MAX_PERMIT_WAIT_SECONDS = 15 * 60.0
"""The longest that a Permit plugin may hold a pod."""


class Evaluations(Struct, frozen=True):
    """How often a plugin ran, at the points where kube-scheduler counts it."""

    pre_filter: Counter = Counter()
    filter: Counter = Counter()
    pre_score: Counter = Counter()
    score: Counter = Counter()


class Plugin:
    """The base class of all plugins.

    There is one instance for each profile, for the life of the profile. ``args`` is its
    pluginConfig, parsed by ``Args``; ``handle`` gives access to the cluster and the scheduler.
    """

    name: ClassVar[str] = ""
    """The name in configuration, metrics and messages; by default the class name."""

    Args: ClassVar[type[PluginArgs] | None] = None
    """The model of the plugin's arguments, a ``PluginArgs``; None if it takes none."""

    row_local: ClassVar[bool] = False
    """Whether Filter and Score of a node depend on that node and the pod alone, so that a result
    holds until that node changes. Leave it False if the plugin looks across nodes or at external
    state.

    If ``sign`` allows its results to be cached, Filter runs on every node, also on nodes that
    another plugin rejects."""

    looks_at_pods: ClassVar[bool] = True
    """Whether Filter and Score look at the pods on a node, or at their sums. If False, cached
    results stay valid when pods are added or removed, and preemption runs Filter once a node, not
    once a victim, unless ``add_pod`` or ``remove_pod`` changed the plugin's data."""

    needs_points: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """By extension point, an earlier one whose data it reads, as ``{"filter": "preFilter"}``. A
    profile that enables the later point without the earlier one is refused."""

    fetches: ClassVar[bool] = False
    """Set by ``FetchingPlugin``."""

    evaluations: Evaluations = Evaluations()
    """Counters, set by the profile that the plugin belongs to."""

    health: PluginHealth = PluginHealth()
    """Records the plugin's failures; set by the profile that the plugin belongs to."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Set ``name`` to the class name unless the class sets it."""
        super().__init_subclass__(**kwargs)
        # Only this class's own: a subclass that inherited the name of its base would replace it.
        if "name" not in cls.__dict__:
            cls.name = cls.__name__

    def __init__(self, args: Any, handle: Handle) -> None:
        self.args: Any = args
        """An instance of ``Args``; None if that is None."""
        self.handle: Handle = handle
        """Access to the cluster and the scheduler."""

    def events_to_register(self) -> Iterable[ClusterEvent]:
        """Return the events that may make schedulable a pod that this plugin rejected.

        Called once a profile. The default, all events, is safe but moves pods too often; an empty
        result means that only a change of the pod itself helps.
        """
        return ALL_EVENTS

    def sign(self, pod: PodInfo) -> Hashable | None:
        """Return the part of the pod that Filter and Score of this plugin read, or None.

        Pods with equal signatures share the results of a ``row_local`` plugin until the row
        changes. None: the plugin runs for every pod. Called at most once a cycle; must be cheap.
        """
        return None

    def invalidation_key(self, nodes: NodeTable) -> Hashable:
        """Return the inputs of a ``row_local`` plugin other than row and pod.

        Cached results are discarded when it changes. Called once a cycle; must be very cheap.
        """
        return None


class BackgroundPlugin(Plugin):
    """A plugin with work in the background: to read external state, or to report something.

    It is no extension point: the work runs while the plugin is enabled at any point of a profile.
    Before a first reading PreFilter may return ``Status.unresolvable(why)``, so that no pod is
    decided without it; ``handle.announce`` wakes these pods.
    """

    async def run_in_background(self) -> None:
        """Run until cancelled: when the profile ends, in a process after its last binding.

        Called once scheduling begins, in the scheduler's own loop: it may wait, but not block. An
        exception is logged, and the method called again after a pause, 1 s at first, 60 s at most.
        If it returns, it is not called again.
        """
        raise NotImplementedError


class FetchingPlugin(Plugin):
    """A plugin that fetches its results, over the network for instance.

    The scheduling cycle never waits inside an extension point. It awaits ``fetch_x`` right before
    the point ``x``; meanwhile no event is handled and no other pod is scheduled, so be quick. If a
    fetch returns an Error, the attempt fails as if ``x`` had. It is no extension point: each method
    is called only if the plugin is enabled at the point.
    """

    fetches: ClassVar[bool] = True

    async def fetch_pre_filter(self, state: CycleState, pod: PodInfo) -> Status | None:
        """Called before any PreFilter plugin runs."""
        return None

    async def fetch_filter(
        self, state: CycleState, pod: PodInfo, rows: Rows | None
    ) -> Status | None:
        """Called with the rows of ``handle.nodes`` that may be filtered, None for all.

        Filter runs on tables made of these rows, also in dry runs of preemption.
        """
        return None

    async def fetch_score(self, state: CycleState, pod: PodInfo, rows: Rows) -> Status | None:
        """Called with the rows of the feasible nodes, two or more."""
        return None

    async def fetch_reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        """Called before any Reserve plugin runs; the pod is assumed."""
        return None

    async def fetch_permit(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        """Called after Reserve has succeeded, before any Permit plugin runs."""
        return None


class PreEnqueuePlugin(Plugin):
    """Decides whether a pod may enter the active queue."""

    group_wide: ClassVar[bool] = False
    """Whether the result is the same for all pods of a PodGroup: it is asked for one of them."""

    def pre_enqueue(self, pod: PodInfo) -> Status | None:
        """Called before the pod enters the active queue; any status but success gates it."""
        raise NotImplementedError


class QueueSortPlugin(Plugin):
    """Orders the active queue; every scheduler has exactly one."""

    sort_key_changes: ClassVar[bool] = False
    """Whether keys that ``sort_key`` returned may compare otherwise later, by the state of the
    plugin. Then the active queue compares them as kube-scheduler's does, which is slower."""

    def sort_key(self, queued: QueuedPodInfo) -> Any:
        """Return a sort key, the smallest first. Called when a pod enters a queue."""
        raise NotImplementedError


class PreFilterPlugin(Plugin):
    """Checks the pod, or prepares data, once before nodes are filtered."""

    has_pre_filter_extensions: ClassVar[bool] = False
    """Whether the plugin defines ``add_pod`` or ``remove_pod``; set for each class."""
    passes_without_node_name: ClassVar[bool] = False
    """Whether ``pre_filter`` just succeeds for a pod without ``spec.nodeName``. Such a plugin is
    counted as called, and not called; the first ones of a profile only."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Set ``has_pre_filter_extensions``."""
        super().__init_subclass__(**kwargs)
        cls.has_pre_filter_extensions = (
            cls.add_pod is not PreFilterPlugin.add_pod
            or cls.remove_pod is not PreFilterPlugin.remove_pod
        )

    def pre_filter(
        self, state: CycleState, pod: PodInfo, nodes: NodeTable
    ) -> Status | frozenset[str] | None:
        """Called once a cycle, with the whole cluster.

        A set of names: only these nodes are filtered. Skip: this plugin's Filter does not run in
        this cycle. Unresolvable: the pod is rejected at once. Unschedulable: the pod is rejected,
        and the remaining PreFilter plugins still run.
        """
        raise NotImplementedError

    def add_pod(
        self, state: CycleState, pod: PodInfo, added: PodInfo, node: NodeInfo
    ) -> bool | None:
        """Update the data in ``state`` for a pod that is added to a node in a dry run.

        Called on a clone of the state, for nominated pods and in preemption; the node has the pod
        already. Only plugins that keep counts across nodes need it. False: the pod makes no
        difference to the data on any node; preemption does not call it for this pod again.
        """
        return None

    def remove_pod(
        self, state: CycleState, pod: PodInfo, removed: PodInfo, node: NodeInfo
    ) -> bool | None:
        """The reverse of ``add_pod``: the node has lost the pod already."""
        return None


def _undefined(cls: type[Plugin], *names: str) -> TypeError:
    """Return the error of a class without any of these methods, with those in another spelling."""
    bare = {name.replace("_", "") for name in names}
    wrong = [name for name in vars(cls) if name.replace("_", "").lower() in bare]
    text = f"{cls.__name__} must define {' or '.join(names)}"
    return TypeError(f"{text}; {wrong[0]} has no effect" if wrong else text)


class FilterPlugin(Plugin):
    """Decides which nodes can take the pod."""

    columnar_filter: ClassVar[bool] = False
    per_node_filter: ClassVar[bool] = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Set which forms the plugin defines; raises ``TypeError`` if it defines none."""
        super().__init_subclass__(**kwargs)
        # Each form of the base class calls the other one: a class with neither would recurse until
        # the interpreter stops it, at the first pod instead of at its import.
        cls.columnar_filter = cls.filter_all is not FilterPlugin.filter_all
        cls.per_node_filter = cls.filter is not FilterPlugin.filter
        if not (cls.columnar_filter or cls.per_node_filter):
            raise _undefined(cls, "filter", "filter_all")

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        """Filter one node. Called for nodes that no earlier plugin rejected, until enough pass.

        Unschedulable: preemption may help. Unresolvable: preemption would not help.
        """
        # For authors' own calls and tests. The runtime never gets here
        # (``engine.runtime.node_points``), because ``node`` may be of a fork, whose pods the
        # cluster's table does not have.
        nodes = self.handle.nodes.take(np.array([node.row], dtype=np.intp))
        verdicts = Verdicts(1, self.name)
        self.filter_all(state, pod, nodes, verdicts)
        return verdicts.status(0)

    def filter_all(
        self, state: CycleState, pod: PodInfo, nodes: NodeTable, verdicts: Verdicts
    ) -> None:
        """Filter all nodes of a table: ``verdicts.reject`` those that cannot take the pod.

        Called once a cycle or less; must not depend on which rows the table happens to hold.
        """
        # Not every row: reading the clock costs as much as a simple filter.
        for row, node in enumerate(nodes):
            if row % ROWS_BETWEEN_CHECKS == 0:
                state.check_budget(self.name, "Filter")
            status = self.filter(state, pod, node)
            if status is not None:
                verdicts.reject_row(row, status)


class FeasibleFilterPlugin(Plugin):
    """Chooses among the nodes that can take the pod, or has it wait although there are some.

    Unlike Filter, which is asked about each node by itself, it sees all that are left. It is no
    extension point of the configuration: each enabled plugin that defines it is called.
    """

    def filter_feasible(
        self, state: CycleState, pod: PodInfo, feasible: Rows, verdicts: Verdicts
    ) -> None:
        """Reject some of the ``feasible`` rows of ``handle.nodes``, or all of them.

        Called once a cycle, after Filter and extenders, if they left a node; ``verdicts``, by row
        of ``handle.nodes``, say why they rejected the others, and take the rejections. The nodes
        that remain are scored. If none remains, the pod waits for an event that this plugin
        registered; PostFilter does not run, since the pod does fit. Not called where a nominated
        node can take the pod, nor in dry runs of preemption.
        """
        raise NotImplementedError


class PostFilterPlugin(Plugin):
    """Tries to make the pod schedulable when no node can take it, by preemption for instance."""

    async def post_filter(
        self, state: CycleState, pod: PodInfo, verdicts: Verdicts
    ) -> PostFilterResult:
        """Called when Filter left no node; ``verdicts`` are by row of ``handle.nodes``.

        Nodes, pods and stores stay as they are until the point has ended, also while it awaits
        something: what the watch reports is handled afterwards, and cannot be waited for. Success
        ends the point and may nominate a node; Unschedulable goes on to the next plugin;
        Unresolvable ends the point.
        """
        raise NotImplementedError


class PreScorePlugin(Plugin):
    """Prepares data before nodes are scored."""

    def pre_score(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> Status | None:
        """Called once a cycle with the feasible nodes (two or more). Skip: Score does not run."""
        raise NotImplementedError


class ScorePlugin(Plugin):
    """Scores the feasible nodes."""

    columnar_score: ClassVar[bool] = False
    per_node_score: ClassVar[bool] = False
    normalizes: ClassVar[bool] = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Set which forms the plugin defines; raises ``TypeError`` if it defines none."""
        super().__init_subclass__(**kwargs)
        cls.columnar_score = cls.score_all is not ScorePlugin.score_all
        cls.per_node_score = cls.score is not ScorePlugin.score
        cls.normalizes = cls.normalize is not ScorePlugin.normalize
        if not (cls.columnar_score or cls.per_node_score):
            raise _undefined(cls, "score", "score_all")

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        """Score one feasible node: an int in 0..100, or any int if ``normalize`` is defined."""
        nodes = self.handle.nodes.take(np.array([node.row], dtype=np.intp))
        scores = self.score_all(state, pod, nodes)
        return scores if isinstance(scores, int) else int(scores[0])

    def score_all(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> IntArray | int:
        """Score all nodes of a table, shape ``(len(nodes),)``; an int scores every node."""
        return np.array([self.score(state, pod, node) for node in nodes], dtype=np.int64)

    def normalize(self, state: CycleState, pod: PodInfo, scores: IntArray) -> IntArray:
        """Return the scores of all feasible nodes scaled to 0..100. Must not change its argument.

        Must depend on the scores alone (and the pod), not on the order of the nodes.
        """
        return scores


class ReservePlugin(Plugin):
    """Keeps state of its own about the nodes that pods are assigned to."""

    reserve_changes_filter: ClassVar[bool] = True
    """Whether a Filter plugin of the profile reads that state. If False, a preemption by a pod
    group need not call Reserve for each pod of the group whenever it puts a victim back."""

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        """Called after the pod was assumed on a node. A rejection ends the attempt."""
        return None

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        """Undo ``reserve``; also called if this plugin's ``reserve`` was not reached."""


class PermitPlugin(Plugin):
    """Approves, delays or rejects the binding of a pod."""

    def permit(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        """Called after Reserve. ``Status.wait(seconds)`` (15 minutes at most) holds the pod until
        ``handle.get_waiting_pod(uid).allow(name)`` or ``.reject(name, message)``."""
        raise NotImplementedError


class PreBindPlugin(Plugin):
    """Does what must be done before a pod is bound: volumes, claims."""

    allow_parallel: ClassVar[bool] = False
    """Whether it may run concurrently with adjacent plugins that allow it too."""

    def pre_bind_pre_flight(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        """Return None if PreBind has work for this pod, Skip if not."""
        return None

    async def pre_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        """Prepare the binding; may wait. Any status but success returns the pod to the queue."""
        raise NotImplementedError


class BindPlugin(Plugin):
    """Binds the pod to its node."""

    async def bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        """Bind the pod, or return Skip to leave it to the next Bind plugin."""
        raise NotImplementedError


class PostBindPlugin(Plugin):
    """Runs after a pod was bound."""

    def post_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        """Called after the binding succeeded; must be quick."""
        raise NotImplementedError
