"""The handle and environment of plugins of a candidate configuration.

They read what plugins in force read. What would change the cluster, the queue or another pod's
binding is refused (writes to the apiserver, which raise) or does nothing (all else, whose callers
do not expect errors).
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, NoReturn, TypeVar

from msgspec.structs import replace

from proreus.base.errors import Forbidden
from proreus.base.metrics import SchedulerMetrics
from proreus.engine.environment import Environment
from proreus.engine.profile_handle import ProfileHandle
from proreus.engine.runtime.background import BackgroundWork
from proreus.engine.runtime.out_of_tree import is_out_of_tree
from proreus.engine.runtime.plugin_health import (
    DEFAULT_RULES,
    CurrentCall,
    EventSink,
    HealthContext,
)
from proreus.engine.runtime.waiting_pods import WaitingPod
from proreus.framework.events import ClusterEvent
from proreus.framework.handle import ApiWriter
from proreus.framework.nominated_pods import Nominator
from proreus.framework.pod_info import PodInfo
from proreus.framework.pod_source import PodSourcePlugin
from proreus.framework.post_filter_result import NominatingInfo
from proreus.objects.meta import ApiObject, Resource
from proreus.objects.pod import Pod
from proreus.objects.scheduling import CompositePodGroup, PodGroup

T = TypeVar("T", bound=ApiObject)


class ReadOnlyApi(ApiWriter):
    """Reads from the apiserver; every write raises ``Forbidden``."""

    def __init__(self, api: ApiWriter) -> None:
        self._api = api

    async def get(self, resource: Resource[T], namespace: str, name: str) -> T:
        """Read one object."""
        return await self._api.get(resource, namespace, name)

    async def list_all(self, resource: Resource[T], namespace: str = "") -> list[T]:
        """Read all objects of a resource."""
        return await self._api.list_all(resource, namespace)

    async def _refuse(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise Forbidden(403, "Forbidden", "plugins that run in the shadow must not write")

    bind = wait_for_patches = patch_pod_status = patch_status = delete_pod = _refuse
    create = update = patch = add_finalizer = delete = _refuse


class DiscardingRecorder:
    """Discards Events (``framework.handle.EventRecorder``)."""

    def event(self, *args: Any, **kwargs: Any) -> None:
        """Do nothing."""


class ReadOnlyNominator:
    """The scheduler's nominations, which cannot be changed through it."""

    def __init__(self, nominator: Nominator) -> None:
        self._nominator = nominator
        self.nominated_pods = nominator.nominated_pods
        self.nominated_nodes = nominator.nominated_nodes
        self.nominated_node_of = nominator.nominated_node_of
        self.changes_since = nominator.changes_since

    @property
    def position(self) -> int:
        """The end of the change log."""
        return self._nominator.position

    def add_nominated_pod(self, pod: PodInfo, nominating: NominatingInfo | None) -> None:
        """Do nothing."""

    def delete_nominated_pod(self, uid: str) -> None:
        """Do nothing."""


class ShadowHandle(ProfileHandle):
    """The handle of a profile that runs in the shadow."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.nominator = ReadOnlyNominator(self.nominator)

    def _connect(
        self,
        resource: Resource[T],
        handler: Callable[[T | None, T | None], None],
        with_provided: bool,
    ) -> None:
        if self.shared is self and not is_out_of_tree(handler):
            # Data that in-tree plugins of all profiles share outlive the trial that needed them
            # first: plugins in force may use them by then.
            tuple(self._subscribe(resource, handler, with_provided))
        else:
            super()._connect(resource, handler, with_provided)

    def put_pod_group(self, *groups: PodGroup | CompositePodGroup) -> None:
        """Do nothing: groups are those of the configuration in force."""

    def remove_pod_group(self, group: PodGroup | CompositePodGroup) -> None:
        """Do nothing."""

    def put_pod(self, pod: Pod, source: PodSourcePlugin) -> None:
        """Do nothing: pods are those of the configuration in force."""

    def remove_pod(self, pod_key: str) -> None:
        """Do nothing."""

    def activate(self, pod_keys: Iterable[str]) -> None:
        """Do nothing: the queue belongs to the configuration in force."""

    def announce(self, event: ClusterEvent, old: Any = None, new: Any = None) -> None:
        """Do nothing."""

    def get_waiting_pod(self, uid: str) -> WaitingPod | None:
        """Return None, since a waiting pod could be allowed or rejected."""
        return None

    def waiting_pods(self) -> Iterable[WaitingPod]:
        """Return nothing."""
        return ()

    def cancel_binding(self, uid: str, message: str) -> bool:
        """Return False; nothing is cancelled."""
        return False

    async def wait_for_binding(self, uid: str) -> bool:
        """Return True at once, without waiting."""
        return True


class ShadowTasks:
    """The background work of plugins in the shadow, which ends with their trial."""

    def __init__(self) -> None:
        self.background = BackgroundWork()
        self._spawned: set[asyncio.Task[None]] = set()

    def spawn(self, work: Coroutine[Any, Any, None]) -> Awaitable[None]:
        """Run a coroutine until it ends or the trial does."""
        # Not among the process's tasks: it waits for those when it ends, for up to 20 seconds.
        task = asyncio.get_running_loop().create_task(work)
        self._spawned.add(task)
        task.add_done_callback(self._spawned.discard)
        return task

    def cancel(self) -> None:
        """Cancel everything, without waiting for it."""
        self.background.sync(())
        for task in self._spawned:
            task.cancel()


def shadow_environment(
    environment: Environment,
    metrics: SchedulerMetrics,
    spawn: Callable[[Coroutine[Any, Any, None]], Awaitable[None]],
    record_event: EventSink,
) -> Environment:
    """Return the environment of a candidate: it reads the same cluster, and leaves no trace.

    ``metrics``: its own, since those of the process describe what is in force. ``record_event``:
    receives what would be an Event about a failing plugin.
    """
    in_force = environment.health_context
    rules = DEFAULT_RULES if in_force is None else in_force.rules
    health_context = HealthContext(
        environment.clock,
        metrics,
        # A plugin that is disabled for its failures passes every node: its trial would look good.
        replace(rules, policy="fail"),
        record_event,
        "Plugin in the shadow",
        # It runs on the same event loop, and may block it as any other.
        CurrentCall() if in_force is None else in_force.current_call,
    )
    return replace(
        environment,
        api=ReadOnlyApi(environment.api),
        event_recorder=DiscardingRecorder(),
        # A generator of its own: the scheduler's random choices stay what they were.
        rng=random.Random(),
        metrics=metrics,
        spawn=spawn,
        informers=None,
        health_context=health_context,
    )
