"""Handle: a plugin's access to the cluster and the scheduler (kube-scheduler's ``Handle``).

These are Protocols, implemented in ``scheduler`` and ``client``: packages that may not import each
other are connected through them.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from msgspec import Struct

from proreus.base.clock import Clock
from proreus.objects.meta import ApiObject, Resource

if TYPE_CHECKING:
    from proreus.base.feature_gates import FeatureGates
    from proreus.base.metrics import SchedulerMetrics
    from proreus.framework.cycle_state import CycleState
    from proreus.framework.events import ClusterEvent
    from proreus.framework.node_info import NodeInfo
    from proreus.framework.node_table import NodeTable
    from proreus.framework.nominated_pods import NominatedPodsByRow, Nominator
    from proreus.framework.pod_group import PlacedPod, PodGroupStates, ProposedAssignment
    from proreus.framework.pod_info import PodInfo
    from proreus.framework.pod_source import PodSourcePlugin
    from proreus.framework.post_filter_result import Victims
    from proreus.framework.status import Status
    from proreus.framework.verdicts import BoolArray, Rows, Verdicts
    from proreus.framework.workload_forest import WorkloadForest
    from proreus.objects.pod import Pod
    from proreus.objects.scheduling import CompositePodGroup, PodGroup

T = TypeVar("T", bound=ApiObject)


class HttpGet(Protocol):
    """The function behind ``Handle.http_get``."""

    async def __call__(
        self,
        url: str,
        *,
        headers: Mapping[str, str],
        timeout_seconds: float,
        insecure_skip_verify: bool,
    ) -> bytes:
        """Return the body of an answer; raises ``ApiError``."""
        ...


class WaitingPod(Protocol):
    """A pod that Permit plugins hold, ``pod``; the first signal decides."""

    pod: PodInfo

    def pending_plugins(self) -> list[str]:
        """Return the names of the plugins that have not allowed it yet."""
        ...

    def allow(self, plugin: str) -> None:
        """Allow the pod on behalf of a plugin; it goes on once no plugin is pending."""
        ...

    def reject(self, plugin: str, message: str) -> bool:
        """Reject the pod; return whether this was the first signal."""
        ...

    def preempt(self, plugin: str, message: str) -> bool:
        """Fail the pod with an error; return whether this was the first signal."""
        ...


class ApiWriter(Protocol):
    """Writes to the apiserver; every method raises ``errors.ApiError``."""

    async def bind(self, pod: Pod, node_name: str) -> None:
        """Create the pod's Binding."""
        ...

    async def wait_for_patches(self, pod: Pod) -> None:
        """Return once all earlier patches of the pod's status are done."""
        ...

    async def patch_pod_status(self, pod: Pod, patch: dict[str, Any]) -> None:
        """Apply a strategic merge patch ``{"status": …}`` to the pod's status."""
        ...

    async def patch_status(
        self, resource: Resource[Any], namespace: str, name: str, patch: dict[str, Any]
    ) -> dict[str, Any]:
        """Apply a strategic merge patch ``{"status": …}`` to any object; return the new object."""
        ...

    async def delete_pod(self, pod: Pod) -> None:
        """Delete a pod with its own grace period."""
        ...

    async def get(self, resource: Resource[T], namespace: str, name: str) -> T:
        """Read one object from the apiserver, after a conflict for instance."""
        ...

    async def list_all(self, resource: Resource[T], namespace: str = "") -> list[T]:
        """Read all objects of a resource (in one namespace) once: for what cannot be watched."""
        ...

    async def create(
        self, resource: Resource[Any], obj: dict[str, Any], subresource: str = ""
    ) -> dict[str, Any]:
        """Create an object and return it as the apiserver stored it."""
        ...

    async def update(
        self, resource: Resource[Any], obj: dict[str, Any], subresource: str = ""
    ) -> dict[str, Any]:
        """Replace an object (optimistic concurrency by its resourceVersion)."""
        ...

    async def patch(
        self,
        resource: Resource[Any],
        namespace: str,
        name: str,
        patch: dict[str, Any],
        subresource: str = "",
    ) -> dict[str, Any]:
        """Apply a merge patch."""
        ...

    async def add_finalizer(
        self, resource: Resource[Any], namespace: str, name: str, version: str, finalizer: str
    ) -> None:
        """Add a finalizer to the object at this resourceVersion, without changing anything else."""
        ...

    async def delete(
        self,
        resource: Resource[Any],
        namespace: str,
        name: str,
        uid: str = "",
        version: str = "",
    ) -> None:
        """Delete an object; only with this uid and this resourceVersion, if given."""
        ...


class EventRecorder(Protocol):
    """Records Events, as ``kubectl describe`` shows them. Never blocks, never raises."""

    def event(
        self,
        regarding: Pod,
        event_type: str,
        reason: str,
        action: str,
        note: str,
        controller: str,
        related: Pod | PodGroup | CompositePodGroup | None = None,
    ) -> None:
        """Record an Event about a pod; ``controller`` is the profile's scheduler name.

        ``related``: the object that caused it, such as the preemptor of a victim.
        """
        ...


class DryRunKey(Struct, frozen=True):
    """The inputs of a pod's dry runs, besides its priority, the nodes and the pods on them."""

    signature: Hashable
    """Equal for pods that all filters sign alike."""

    nominated_by_row: NominatedPodsByRow
    """The nominated pods that the pod must respect."""


class PreemptionDryRun(Protocol):
    """A dry run of preemption by one pod on many nodes, each independent of the others.

    Potential victims have numbers: the ``n``-th one of row ``r`` is ``first[r] + n``.
    """

    first: Rows

    def remove_all_victims(self) -> Verdicts:
        """Remove all potential victims and filter the nodes. Call it once, before ``reprieve``."""
        ...

    def reprieve(self, numbers: Rows) -> BoolArray:
        """Add potential victims again, at most one a node, ascending, on nodes that the pod fits.

        Return the mask of those that are reprieved; the others are removed again.
        """
        ...

    def error(self, row: int) -> Status | None:
        """Return the Error that a plugin returned for a row so far, or None."""
        ...


class PodGroupReprieve(Protocol):
    """Puts victims back as long as the pods of a group, which have no node, fit where they go."""

    def reprieve(self, unit: Sequence[PlacedPod]) -> bool:
        """Put the pods of a unit back on their nodes; return False if the group does not fit then,
        and they were removed again. Raises ``PluginError``."""
        ...


class PluginsRunner(Protocol):
    """Runs the profile's plugins, and extenders, for a plugin that tries what would happen."""

    def run_filters_with_nominated_pods(
        self, state: CycleState, pod: PodInfo, nodes: NodeTable
    ) -> Verdicts:
        """Run this profile's Filter plugins over a table, nominated pods taken into account."""
        ...

    def dry_run_preemption(
        self,
        state: CycleState,
        pod: PodInfo,
        rows: Rows,
        potential_victims: Sequence[Sequence[PodInfo]],
    ) -> PreemptionDryRun:
        """Start a dry run on rows of ``nodes`` with these potential victims, by row.

        It must be finished before anything is awaited.
        """
        ...

    def run_pre_filter_extension_add_pod(
        self, state: CycleState, pod: PodInfo, added: PodInfo, node: NodeInfo
    ) -> None:
        """Update a clone of a pod's ``state`` for another pod that was added to a node."""
        ...

    def run_pre_filter_extension_remove_pod(
        self, state: CycleState, pod: PodInfo, removed: PodInfo, node: NodeInfo
    ) -> None:
        """Update a clone of a pod's ``state`` for another pod that was removed from a node."""
        ...

    def pod_group_reprieve(self, assignments: Sequence[ProposedAssignment]) -> PodGroupReprieve:
        """Return an object that puts victims back on ``nodes`` while a group's assignments fit.

        It must be finished before anything is awaited.
        """
        ...

    def dry_run_key(self, state: CycleState, pod: PodInfo) -> DryRunKey | None:
        """Return a key of the further inputs of ``dry_run_preemption``.

        With equal keys, a row that did not change has the same result for pods of equal priority.
        None if a filter reads more than it signs, or if the pod is nominated itself, since other
        pods with its signature must respect that nomination.
        """
        ...

    def extender_may_preempt(self, pod: Pod) -> bool:
        """Return whether an HTTP extender with a preemptVerb is interested in a pod."""
        ...

    async def preempt_through_extenders(
        self, pod: Pod, victims: Mapping[str, Victims]
    ) -> Mapping[str, Victims]:
        """Return the candidates that HTTP extenders leave, by node (ProcessPreemption).

        ``victims`` itself if no extender changes it. Raises ``ExtenderError``.
        """
        ...


class PodProvider(Protocol):
    """Takes pods and groups of pods that plugins make: the apiserver has no objects for them."""

    def put_pod_group(self, *groups: PodGroup | CompositePodGroup) -> None:
        """Provide groups of a ``PodGroupSourcePlugin``, or their new versions, parents first.

        All groups of one call are one change: their pods are tried anew once. Raises ``ValueError``
        if a name has no slash: it might be that of an object of the API.
        """
        ...

    def remove_pod_group(self, group: PodGroup | CompositePodGroup) -> None:
        """Take back a group that ``put_pod_group`` provided; its pods wait until it is there again.

        A group that is not there is ignored.
        """
        ...

    def put_pod(self, pod: Pod, source: PodSourcePlugin) -> None:
        """Provide a pod that the apiserver does not have, or its new version.

        ``source``: the plugin that calls. Raises ``ValueError`` if the pod's name has no slash: it
        might be that of a pod of the API. The pod's UID must be unique too.
        """
        ...

    def remove_pod(self, pod_key: str) -> None:
        """Take back a pod that ``put_pod`` provided; one that is not there is ignored."""
        ...

    def provided_for(self, pod: PodInfo) -> Mapping[str, PodInfo]:
        """Return the provided pods whose room a pod may take, by node.

        It takes from the one on the node that it gets, and uses that much less of what is free.
        """
        ...


class PodActivator(Protocol):
    """Brings pods back to the active queue."""

    def activate(self, pod_keys: Iterable[str]) -> None:
        """Move pods (``namespace/name``) to the active queue."""
        ...

    def announce(self, event: ClusterEvent, old: Any = None, new: Any = None) -> None:
        """Report a ``plugin_event`` to the queue: pods registered for it move, hints permitting."""
        ...


class PodsInBinding(Protocol):
    """Reaches pods between Permit and the end of their binding."""

    def get_waiting_pod(self, uid: str) -> WaitingPod | None:
        """Return a waiting pod; None if Permit does not hold it."""
        ...

    def waiting_pods(self) -> Iterable[WaitingPod]:
        """Return all pods that Permit holds, of all profiles."""
        ...

    def cancel_binding(self, uid: str, message: str) -> bool:
        """Cancel a pod's binding between Permit and Bind.

        Return False if the pod is not there, or its binding was cancelled before. The pod counts on
        its node until its binding has ended.
        """
        ...

    async def wait_for_binding(self, uid: str) -> bool:
        """Return whether a pod counts on a node, once its binding has ended if one is under way."""
        ...


class Handle(PluginsRunner, PodProvider, PodActivator, PodsInBinding, Protocol):
    """Access to the cluster and the scheduler, for the plugins of one profile."""

    @property
    def profile_name(self) -> str:
        """The schedulerName that this profile serves."""
        ...

    @property
    def shared(self) -> Handle:
        """The handle for state that plugins of all profiles share, across configurations.

        Handlers of its ``on_change`` last as long as the scheduler; those of this handle, as long
        as the profile.
        """
        ...

    @property
    def nodes(self) -> NodeTable:
        """All nodes as the cache has them now, assumed pods included."""
        ...

    def node_order(self) -> Rows:
        """Return all rows of ``nodes`` in the order of kube-scheduler: round robin over zones."""
        ...

    def store(self, resource: Resource[T], *, with_provided: bool = False) -> Mapping[str, T]:
        """Return the watched objects of a resource by ``namespace/name`` (or ``name``).

        The first call for a resource makes proreus watch it: call it in ``__init__``.
        ``with_provided``: of pods, also those that a ``PodSourcePlugin`` provides.
        """
        ...

    def on_change(
        self,
        resource: Resource[T],
        handler: Callable[[T | None, T | None], None],
        *,
        with_provided: bool = False,
    ) -> None:
        """Call ``handler(old, new)`` on each change of a resource, before the queue handles it.

        ``old`` is None on add, ``new`` on delete. For objects that exist already it is called as
        if they were added, at once; if the call is made in ``__init__``, as it should be, then as
        soon as that has returned: no handler sees a plugin that is not complete.
        ``with_provided``: of pods, also those that a ``PodSourcePlugin`` provides.
        """
        ...

    @property
    def nominator(self) -> Nominator:
        """The pods that are nominated to nodes, waiting or being tried."""
        ...

    @property
    def pod_group_states(self) -> PodGroupStates:
        """The pods of PodGroups; none are known unless gate GenericWorkload is on."""
        ...

    @property
    def workload_forest(self) -> WorkloadForest:
        """The PodGroups and CompositePodGroups; none are known unless gate GenericWorkload is on,
        and none with the plugins of Kubernetes 1.36."""
        ...

    @property
    def api(self) -> ApiWriter:
        """Writes to the apiserver."""
        ...

    @property
    def event_recorder(self) -> EventRecorder:
        """Records Events about pods and other objects."""
        ...

    async def http_get(
        self,
        url: str,
        *,
        headers: Mapping[str, str] = MappingProxyType({}),
        timeout_seconds: float = 10.0,
        insecure_skip_verify: bool = False,
    ) -> bytes:
        """Return the answer of another server to GET: metrics, for instance.

        Raises ``ApiError``, whatever goes wrong (``status`` 0: no answer). In tests a
        ``HarnessOptions.http_get`` answers.
        """
        ...

    def spawn(self, work: Coroutine[Any, Any, None]) -> Awaitable[None]:
        """Run a coroutine that ends by itself in the background; the process waits for it at exit.

        Not in ``__init__``. Work for the whole life of a plugin belongs in a ``BackgroundPlugin``.
        """
        ...

    def invalidate_results(self, node_name: str) -> None:
        """Discard the cached results of ``row_local`` plugins for one node.

        For what a plugin knows of a node that the node itself does not show; what concerns all
        nodes goes into ``invalidation_key``. An unknown name is ignored.
        """
        ...

    @property
    def clock(self) -> Clock:
        """The time; plugins must not read the machine's clock, which tests do not control."""
        ...

    @property
    def polls_only(self) -> bool:
        """Whether waits in PreBind look at their intervals only, as kube-scheduler's do.

        False in a running scheduler, where a change that is waited for ends the wait at once.
        """
        ...

    @property
    def rng(self) -> random.Random:
        """The seedable random number generator."""
        ...

    @property
    def feature_gates(self) -> FeatureGates:
        """Feature gates of this process."""
        ...

    @property
    def metrics(self) -> SchedulerMetrics:
        """The scheduler's metrics."""
        ...
