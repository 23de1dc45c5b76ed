"""Waiting for plugins that have their answers from elsewhere, right before they are asked.

Plugins of one point are waited for together. Raises ``PluginError`` as the point itself does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from proreus.framework.cycle_state import CycleState
from proreus.framework.plugin import FetchingPlugin
from proreus.framework.pod_info import PodInfo
from proreus.framework.status import Status
from proreus.framework.verdicts import Rows
from proreus.runtime.calls import await_plugin, raise_status
from proreus.runtime.profile import Profile

Fetch = Callable[[FetchingPlugin], Coroutine[Any, Any, Status | None]]


async def fetch_pre_filter(profile: Profile, state: CycleState, pod: PodInfo) -> None:
    """Let plugins fetch what PreFilter will ask for."""
    await _fetch(profile, "PreFilter", state, lambda plugin: plugin.fetch_pre_filter(state, pod))


async def fetch_filter(
    profile: Profile, state: CycleState, pod: PodInfo, rows: Rows | None
) -> None:
    """Let plugins fetch what Filter will ask for about some rows, None = all."""
    await _fetch(profile, "Filter", state, lambda plugin: plugin.fetch_filter(state, pod, rows))


async def fetch_score(profile: Profile, state: CycleState, pod: PodInfo, rows: Rows) -> None:
    """Let plugins fetch what Score will ask for about the rows that passed."""
    await _fetch(profile, "Score", state, lambda plugin: plugin.fetch_score(state, pod, rows))


async def fetch_reserve(profile: Profile, state: CycleState, pod: PodInfo, node_name: str) -> None:
    """Let plugins fetch what Reserve will ask for."""
    await _fetch(profile, "Reserve", state, lambda p: p.fetch_reserve(state, pod, node_name))


async def fetch_permit(profile: Profile, state: CycleState, pod: PodInfo, node_name: str) -> None:
    """Let plugins fetch what Permit will ask for."""
    await _fetch(profile, "Permit", state, lambda p: p.fetch_permit(state, pod, node_name))


async def _fetch(profile: Profile, point: str, state: CycleState, fetch: Fetch) -> None:
    skipped = state.skip_filter if point == "Filter" else ()
    if point == "Score":
        skipped = state.skip_score
    plugins = [
        plugin
        for plugin in profile.fetching.get(point, ())
        if plugin.name not in skipped and not plugin.health.disabled
    ]
    if len(plugins) == 1:
        await _fetch_one(plugins[0], point, state, fetch)
    elif plugins:
        # All are waited for, also where one fails: none may go on while the cycle has ended.
        fetched = (_fetch_one(plugin, point, state, fetch) for plugin in plugins)
        for outcome in await asyncio.gather(*fetched, return_exceptions=True):
            if isinstance(outcome, BaseException):
                raise outcome


async def _fetch_one(plugin: FetchingPlugin, point: str, state: CycleState, fetch: Fetch) -> None:
    status = await await_plugin(plugin, point, state, fetch, plugin)
    if status is not None:
        raise_status(plugin, point, status)
