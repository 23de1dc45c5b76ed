"""The extension points of the binding cycle: PreBind, Bind, PostBind.

They run in a task of their own, one a pod, and may wait for volumes, claims and the apiserver while
the next pods are scheduled.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager, suppress
from itertools import groupby
from time import perf_counter
from typing import Any

from proreus.base.errors import PluginError
from proreus.engine.runtime.plugin_errors import (
    allowed_status,
    as_status,
    raise_status,
    with_plugin_context,
)
from proreus.engine.runtime.points import await_plugin, call_plugin
from proreus.engine.runtime.profile import Profile
from proreus.framework.cycle_state import CycleState
from proreus.framework.plugin import PreBindPlugin
from proreus.framework.pod_info import PodInfo
from proreus.framework.status import ERROR, SKIP, SUCCESS, Status, checked


def run_pre_bind_pre_flight(
    profile: Profile, state: CycleState, pod: PodInfo, node_name: str
) -> frozenset[str]:
    """Return the names of the PreBind plugins that have work for this pod."""
    plugins_with_work = []
    for plugin in profile.pre_bind:
        method = plugin.pre_bind_pre_flight
        result = call_plugin(plugin, "PreBindPreFlight", state, method, state, pod, node_name)
        status = as_status(plugin, "PreBindPreFlight", result)
        if status is None:
            plugins_with_work.append(plugin.name)
        elif status.code == ERROR:
            raise_status(plugin, "PreBindPreFlight", status)
        elif status.code != SKIP:
            plugin.health.note("PreBindPreFlight", "invalid_answer")
            raise PluginError(
                plugin.name,
                "PreBindPreFlight",
                f'PreBindPreFlight {plugin.name} returned "{status.code.label}", which is '
                "unsupported. It is supposed to return Success, Skip, or Error status",
            )
    return frozenset(plugins_with_work)


class Cancellation:
    """Lets preemption cancel a binding before Bind. ``cause``: the reason given first, or ""."""

    def __init__(self) -> None:
        self.cause = ""
        self._task: asyncio.Task[Status | None] | None = None

    async def run(self, work: Coroutine[Any, Any, Status | None]) -> Status | None:
        """Await the work; once cancelled it has failed, even if the plugins completed it."""
        self._task = asyncio.ensure_future(work)
        try:
            status = await self._task
        except asyncio.CancelledError:
            # Two cancellations look the same here: ``cancel`` below ends the inner task only, and
            # becomes a failure of this pod; one of the binding task itself (shutdown) passes on.
            current = asyncio.current_task()
            if not self.cause or (current is not None and current.cancelling()):
                self._task.cancel()
                raise
            return Status.error(self.cause)
        # A plugin may catch the cancellation and return success. The pod is a victim by now, and
        # binding it would give the preemptor's node away.
        return Status.error(self.cause) if self.cause else status

    def cancel(self, cause: str) -> bool:
        """Cancel the work, now or before it begins; return False if it was cancelled already."""
        if self.cause:
            return False
        self.cause = checked(Status.error(cause)).message
        if self._task is not None:
            self._task.cancel()
        return True


async def run_pre_bind(
    profile: Profile,
    state: CycleState,
    pod: PodInfo,
    node_name: str,
    plugins_with_work: frozenset[str],
    cancellation: Cancellation | None = None,
) -> Status | None:
    """Run PreBind of the plugins that have work.

    Adjacent plugins with ``allow_parallel`` run concurrently; the first failure cancels its group.
    Raises ``PluginError``, also when it was cancelled.
    """
    cancellation = cancellation or Cancellation()
    return await cancellation.run(
        _run_pre_bind(profile, state, pod, node_name, plugins_with_work, cancellation)
    )


async def _run_pre_bind(
    profile: Profile,
    state: CycleState,
    pod: PodInfo,
    node_name: str,
    plugins_with_work: frozenset[str],
    cancellation: Cancellation,
) -> Status | None:
    # Only neighbours are grouped: a plugin that must run alone still runs after all those that come
    # before it in the configuration, and before all that come later.
    for parallel, group in groupby(profile.pre_bind, key=lambda plugin: plugin.allow_parallel):
        working = [plugin for plugin in group if plugin.name in plugins_with_work]
        if parallel and len(working) > 1:
            with _with_cancellation_cause(working, cancellation):
                status = await _pre_bind_together(working, state, pod, node_name)
            if status is not None:
                return status
            continue
        for plugin in working:
            with _with_cancellation_cause([plugin], cancellation):
                status = await _pre_bind(plugin, state, pod, node_name)
            if status is not None:
                return status
    return None


@contextmanager
def _with_cancellation_cause(
    plugins: list[PreBindPlugin], cancellation: Cancellation
) -> Iterator[None]:
    """Name the plugin whose work preemption cancelled, whatever the plugin raised then."""
    try:
        yield
    except (asyncio.CancelledError, PluginError) as error:
        if not cancellation.cause:
            raise
        plugin = next((p for p in plugins if p.name == getattr(error, "plugin", "")), plugins[0])
        text = with_plugin_context(plugin, "PreBind", cancellation.cause)
        raise PluginError(plugin.name, "PreBind", text) from error


async def _pre_bind_together(
    plugins: list[PreBindPlugin], state: CycleState, pod: PodInfo, node_name: str
) -> Status | None:
    tasks = [asyncio.ensure_future(_pre_bind(p, state, pod, node_name)) for p in plugins]
    try:
        for task in asyncio.as_completed(tasks):
            status = await task
            if status is not None:
                return status
        return None
    finally:
        # Gathered after cancelling: a sibling must not patch a volume after the pod has failed.
        for left in tasks:
            left.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _pre_bind(
    plugin: PreBindPlugin, state: CycleState, pod: PodInfo, node_name: str
) -> Status | None:
    state.binding_plugins += (plugin.name,)
    try:
        method = plugin.pre_bind
        result = await await_plugin(plugin, "PreBind", state, method, state, pod, node_name)
    finally:
        state.binding_plugins = tuple(name for name in state.binding_plugins if name != plugin.name)
    return allowed_status(plugin, "PreBind", result)


async def run_bind(
    profile: Profile, state: CycleState, pod: PodInfo, node_name: str
) -> Status | None:
    """Run Bind plugins in order until one does not return Skip; None if it has bound the pod.

    Return Skip if all of them skipped; the caller treats that as a failure.
    """
    for plugin in profile.bind:
        state.binding_plugins = (plugin.name,)
        result = await await_plugin(plugin, "Bind", state, plugin.bind, state, pod, node_name)
        status = allowed_status(plugin, "Bind", result)
        if status is None or status.code != SKIP:
            return status
    return Status(SKIP, ("no Bind plugin took the pod",))


def run_post_bind(profile: Profile, state: CycleState, pod: PodInfo, node_name: str) -> None:
    """Run PostBind plugins; what one raises is logged, since the pod is bound already."""
    started = perf_counter()
    for plugin in profile.post_bind:
        with suppress(PluginError):
            call_plugin(plugin, "PostBind", state, plugin.post_bind, state, pod, node_name)
    profile.point_seconds["PostBind", SUCCESS].observe(perf_counter() - started)
