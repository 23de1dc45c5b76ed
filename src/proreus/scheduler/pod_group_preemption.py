"""Preemption for a whole PodGroup, after its trial failed (gate WorkloadAwarePreemption)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from proreus.errors import PluginError
from proreus.framework.cycle_state import CycleState
from proreus.framework.plugin import PodGroupPostFilterPlugin
from proreus.framework.pod_group import PodGroupInfo
from proreus.framework.status import Status
from proreus.objects.scheduling import PodGroup
from proreus.runtime.calls import as_status, await_plugin
from proreus.runtime.profile import Profile


async def run_pod_group_post_filter(
    profile: Profile,
    group: PodGroupInfo,
    groups: Mapping[str, PodGroup],
    fits: Callable[[], Awaitable[Status | None]],
) -> Status | None:
    """Let the profile's plugin make room; None if it will, else why not.

    ``fits``: tries the group on the nodes as they are at that moment.
    """
    plugins = [p for p in profile.post_filter if isinstance(p, PodGroupPostFilterPlugin)]
    if not plugins:
        return Status.unschedulable(
            "default preemption plugin is not registered, workload aware preemption is disabled"
        )
    found = groups.get(group.key)
    if found is None:
        text = f'podgroup.scheduling.k8s.io "{group.name}" not found'
        return Status.error(f"failed to get pod group object: {text}")
    if found.topology_keys:
        return Status.unschedulable(
            "workload aware preemption is not supported for pod groups with scheduling constraints"
        )
    plugin, point, state = plugins[0], "PodGroupPostFilter", CycleState()
    method = plugin.pod_group_post_filter
    try:
        answer = await await_plugin(plugin, point, state, method, found, group.pods, fits)
        return as_status(plugin, point, answer)
    except PluginError as error:
        return Status.error(str(error))
