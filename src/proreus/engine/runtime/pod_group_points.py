"""The extension points of a whole PodGroup: PlacementFeasible and PodGroupPostFilter.

pod_groups/algorithm ─► run_placement_feasible    before the first pod, and after each
pod_groups/cycle     ─► run_pod_group_post_filter  once, if the group does not fit
"""

from __future__ import annotations

from time import perf_counter

from proreus.base.errors import PluginError
from proreus.engine.runtime.plugin_errors import as_status, invalid_result_error
from proreus.engine.runtime.points import await_plugin, call_plugin
from proreus.engine.runtime.profile import Profile
from proreus.framework.cycle_state import CycleState
from proreus.framework.pod_group import (
    PlacementProgress,
    PodGroupInfo,
    PodGroupPostFilterResult,
    SchedulePodGroup,
)
from proreus.framework.status import Code, Status, code_of


def run_placement_feasible(
    profile: Profile, state: CycleState, group: PodGroupInfo, progress: PlacementProgress
) -> Status | None:
    """Return whether the group can be scheduled: None, Wait, Unschedulable or Error."""
    started = perf_counter()
    status = _placement_feasible(profile, state, group, progress)
    profile.point_seconds["PlacementFeasible", code_of(status)].observe(perf_counter() - started)
    return status


def _placement_feasible(
    profile: Profile, state: CycleState, group: PodGroupInfo, progress: PlacementProgress
) -> Status | None:
    waits: Status | None = None
    for plugin in profile.placement_feasible:
        point, method = "PlacementFeasible", plugin.placement_feasible
        try:
            result = call_plugin(plugin, point, state, method, state, group, progress)
            status = as_status(plugin, point, result)
        except PluginError as error:
            return Status.error(f"running PlacementFeasible plugin: {error}")
        match code_of(status):
            case Code.SUCCESS:
                continue
            case Code.WAIT:
                waits = status
            case Code.UNSCHEDULABLE:
                return status
            case Code.ERROR:
                assert status is not None
                return Status.error(f"running PlacementFeasible plugin: {status.message}")
            case other:
                text = "unexpected status from PlacementFeasible plugin"
                return Status.error(f"{text}: {other.label}")
    return waits


async def run_pod_group_post_filter(
    profile: Profile, state: CycleState, group: PodGroupInfo, schedule: SchedulePodGroup
) -> PodGroupPostFilterResult:
    """Return the result of the first plugin that ends the point, or the reasons of all."""
    started = perf_counter()
    result = await _pod_group_post_filter(profile, state, group, schedule)
    seconds = perf_counter() - started
    profile.point_seconds["PodGroupPostFilter", result.status.code].observe(seconds)
    return result


async def _pod_group_post_filter(
    profile: Profile, state: CycleState, group: PodGroupInfo, schedule: SchedulePodGroup
) -> PodGroupPostFilterResult:
    reasons: list[str] = []
    for plugin in profile.pod_group_post_filter:
        point, method = "PodGroupPostFilter", plugin.pod_group_post_filter
        try:
            result = await await_plugin(plugin, point, state, method, state, group, schedule)
            if not isinstance(result, PodGroupPostFilterResult):
                raise invalid_result_error(plugin, point, "a PodGroupPostFilterResult", result)
        except PluginError as error:
            return _failed(plugin.name, str(error))
        if result.status.code in (Code.SUCCESS, Code.UNRESOLVABLE):
            return result
        if result.status.code != Code.UNSCHEDULABLE:
            return _failed(plugin.name, result.status.message)
        reasons += result.status.reasons
    return PodGroupPostFilterResult(Status.unschedulable(*reasons))


def _failed(plugin: str, text: str) -> PodGroupPostFilterResult:
    return PodGroupPostFilterResult(
        Status.error(f'error in "{plugin}" PodGroupPostFilter plugins: {text}')
    )
