"""What a plugin may ask of the scheduler that runs it.

Protocols, given by ``app``: rooms that do not import each other meet here.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from proreus.clock import Clock
from proreus.objects.meta import ApiObject, Resource

if TYPE_CHECKING:
    from proreus.feature_gates import FeatureGates
    from proreus.framework.cycle_state import CycleState
    from proreus.framework.events import ClusterEvent
    from proreus.framework.node_table import NodeTable
    from proreus.framework.nominated_pods import NominatedPodsByRow, Nominator
    from proreus.framework.pod_group import PodGroupStates
    from proreus.framework.pod_info import PodInfo
    from proreus.framework.status import Status
    from proreus.framework.verdicts import BoolArray, Rows, Verdicts
    from proreus.framework.victims import Victims
    from proreus.metrics import SchedulerMetrics
    from proreus.objects.pod import Pod
    from proreus.objects.scheduling import PodGroup

T = TypeVar("T", bound=ApiObject)


class WaitingPod(Protocol):
    """A pod that Permit holds. Only the first signal counts."""

    pod: PodInfo

    def pending_plugins(self) -> list[str]:
        """Return the plugins that still hold it."""
        ...

    def allow(self, plugin: str) -> None:
        """Withdraw one plugin's hold; with the last one the pod goes on."""
        ...

    def reject(self, plugin: str, message: str) -> bool:
        """Turn the pod down; tell whether this was the first signal."""
        ...

    def preempt(self, plugin: str, message: str) -> bool:
        """Fail the pod with an error; tell whether this was the first signal."""
        ...


class ApiWriter(Protocol):
    """Writes to the apiserver; every method raises ``errors.ApiError``."""

    async def bind(self, pod: Pod, node_name: str) -> None:
        """Create the pod's Binding."""
        ...

    async def wait_for_patches(self, pod: Pod) -> None:
        """Return once the patches of a pod's status that were asked for before are done."""
        ...

    async def patch_pod_status(self, pod: Pod, patch: dict[str, Any]) -> None:
        """Apply a strategic merge patch ``{"status": …}`` to the pod's status."""
        ...

    async def patch_status(
        self, resource: Resource[Any], namespace: str, name: str, patch: dict[str, Any]
    ) -> dict[str, Any]:
        """Apply a strategic merge patch ``{"status": …}`` to any object; return what it became."""
        ...

    async def delete_pod(self, pod: Pod) -> None:
        """Delete a pod with its own grace period."""
        ...

    async def get(self, resource: Resource[T], namespace: str, name: str) -> T:
        """Read one object anew, after a conflict."""
        ...

    async def list_all(self, resource: Resource[T], namespace: str = "") -> list[T]:
        """Read all objects of a resource (in one namespace) once: for what cannot be watched."""
        ...

    async def create(
        self, resource: Resource[Any], obj: dict[str, Any], subresource: str = ""
    ) -> dict[str, Any]:
        """Create an object and return what the apiserver made of it."""
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
        """Add a finalizer to the object of this resourceVersion; all else stays byte by byte."""
        ...

    async def delete(self, resource: Resource[Any], namespace: str, name: str) -> None:
        """Delete an object."""
        ...


class EventRecorder(Protocol):
    """Events, as ``kubectl describe`` shows them. Never blocks, never raises."""

    def event(
        self,
        regarding: Pod,
        event_type: str,
        reason: str,
        action: str,
        note: str,
        controller: str,
        related: Pod | PodGroup | None = None,
    ) -> None:
        """Note an event about a pod; ``controller`` is the profile's scheduler name.

        ``related``: on whose account it happened to the pod.
        """
        ...


@dataclass(frozen=True, slots=True)
class DryRunKey:
    """What the trials of a pod rest on, beside its priority, the nodes and the pods on them."""

    signature: Hashable
    """The same for pods that all filters take for alike."""

    nominated_by_row: NominatedPodsByRow
    """The nominated pods that the pod has to respect."""


class PreemptionDryRun(Protocol):
    """One pod is tried on many nodes, each by itself, without pods that might have to go.

    These have numbers: the ``n``-th one of row ``r`` is ``first[r] + n``.
    """

    first: Rows

    def remove_all_victims(self) -> Verdicts:
        """Take all of them off and judge the nodes. To be called once, before ``reprieve``."""
        ...

    def reprieve(self, numbers: Rows) -> BoolArray:
        """Put some back, at most one a node, in ascending order, on nodes that the pod fits.

        Returns which of them can stay; the others are taken off again.
        """
        ...

    def error(self, row: int) -> Status | None:
        """Return the Error that a plugin gave about a row so far."""
        ...


class Handle(Protocol):
    """A profile's plugins' way to the cluster and to the scheduler."""

    @property
    def profile_name(self) -> str:
        """The schedulerName that this profile serves."""
        ...

    @property
    def nodes(self) -> NodeTable:
        """All nodes, as they are believed to be at this moment."""
        ...

    @property
    def clock(self) -> Clock:
        """The time; never ask the machine for it."""
        ...

    @property
    def rng(self) -> random.Random:
        """The seedable source of chance."""
        ...

    @property
    def feature_gates(self) -> FeatureGates:
        """Feature gates of this process."""
        ...

    @property
    def metrics(self) -> SchedulerMetrics:
        """Where to count."""
        ...

    @property
    def nominator(self) -> Nominator:
        """Nominated pods."""
        ...

    @property
    def pod_group_states(self) -> PodGroupStates:
        """The pods of PodGroups; none are known unless gate GenericWorkload is on."""
        ...

    @property
    def api(self) -> ApiWriter:
        """Writes to the apiserver."""
        ...

    @property
    def event_recorder(self) -> EventRecorder:
        """Events."""
        ...

    def store(self, resource: Resource[T]) -> Mapping[str, T]:
        """Return the watched objects of a resource by ``namespace/name`` (or ``name``).

        The first call for a resource makes proreus watch it: call it in ``__init__``.
        """
        ...

    def on_change(
        self, resource: Resource[T], handler: Callable[[T | None, T | None], None]
    ) -> None:
        """Call ``handler(old, new)`` on each change of a resource, before the queue is told.

        ``old`` is None on add, ``new`` on delete. What is there already is told of at once, as
        added. To be called in ``__init__``.
        """
        ...

    @property
    def shared(self) -> Handle:
        """The handle for what plugins of all profiles share, and those of later configurations.

        What ``on_change`` is told through it lasts as long as the scheduler; otherwise as long as
        the profile.
        """
        ...

    def run_filters(
        self, state: CycleState, pod: PodInfo, nodes: NodeTable, verdicts: Verdicts
    ) -> None:
        """Run this profile's Filter plugins over a table, without nominated pods."""
        ...

    def run_filters_with_nominated_pods(
        self, state: CycleState, pod: PodInfo, nodes: NodeTable
    ) -> Verdicts:
        """Run this profile's Filter plugins over a table, nominated pods taken into account."""
        ...

    def filters_are_row_local(self, state: CycleState) -> bool:
        """Tell whether no Filter plugin that takes part in this cycle looks across nodes."""
        ...

    def run_add_pod(
        self, state: CycleState, pod: PodInfo, added: PodInfo, nodes: NodeTable, row: int
    ) -> None:
        """Try a pod on a row of a fork: count it in and tell the PreFilter plugins."""
        ...

    def run_remove_pod(
        self, state: CycleState, pod: PodInfo, removed: PodInfo, nodes: NodeTable, row: int
    ) -> None:
        """Try a row of a fork without a pod: count it out and tell the PreFilter plugins."""
        ...

    def dry_run_preemption(
        self,
        state: CycleState,
        pod: PodInfo,
        rows: Rows,
        potential_victims: Sequence[Sequence[PodInfo]],
    ) -> PreemptionDryRun:
        """Try rows of ``nodes``, each without the pods on it that may go; filters as above.

        To be done with before anything is awaited.
        """
        ...

    def dry_run_key(self, state: CycleState, pod: PodInfo) -> DryRunKey | None:
        """Return what else ``dry_run_preemption`` rests on; None where filters read more than they
        sign, or other pods like this one have to respect a nomination of its own.

        On equal grounds a row that did not change answers the same to pods of the same priority.
        """
        ...

    async def preempt_through_extenders(
        self, pod: Pod, victims: Mapping[str, Victims]
    ) -> Mapping[str, Victims]:
        """Let HTTP extenders take nodes and victims from what preemption would do, by node.

        The same mapping comes back when none of them minds. Raises ``ExtenderError``.
        """
        ...

    def activate(self, pod_keys: Iterable[str]) -> None:
        """Move pods (``namespace/name``) to the active queue."""
        ...

    def announce(self, event: ClusterEvent, old: Any = None, new: Any = None) -> None:
        """Tell the queue of a ``plugin_event``: pods move that wait for it, hints permitting."""
        ...

    def get_waiting_pod(self, uid: str) -> WaitingPod | None:
        """Return the pod if Permit holds it."""
        ...

    def waiting_pods(self) -> Iterable[WaitingPod]:
        """Return all pods that Permit holds, of all profiles."""
        ...

    def reject_waiting_pod(self, uid: str, plugin: str = "", message: str = "removed") -> bool:
        """Turn down a pod that Permit holds; tell whether it was held."""
        ...

    def cancel_binding(self, uid: str, message: str) -> bool:
        """Cancel a pod's binding while it is in PreBind; tell whether that was still possible."""
        ...

    def spawn(self, work: Coroutine[Any, Any, None]) -> Awaitable[None]:
        """Run something that ends by itself, beside scheduling; a process waits for it at its end.

        Not in ``__init__``. What goes on as long as the plugin lives is a ``BackgroundPlugin``'s.
        """
        ...
