"""Whether a waiting pod would pass now, if it were tried: what a fresh twin of it would find."""

from __future__ import annotations

from collections.abc import Iterator

from proreus.base.errors import PluginError
from proreus.engine.cycles.attempt import Attempt, Failure
from proreus.engine.runtime.plugin_errors import as_status
from proreus.engine.runtime.profile import Profile
from proreus.framework.pod_info import QueuedPodInfo
from proreus.framework.post_filter_result import NominatingInfo
from proreus.framework.queued_pod_group import QueuedPodGroupInfo
from proreus.offline.cluster import OfflineCluster

DEFERRED_RESIZE = "DeferredPodScheduling"


async def left_behind(cluster: OfflineCluster) -> list[QueuedPodInfo]:
    """Return the pods that wait for an event although they would pass PreEnqueue to Reserve.

    An attempt without effect tells: it ends before Permit, and is undone.
    """
    return [queued for queued in waiting_pods(cluster) if await _would_pass(cluster, queued)]


def waiting_pods(cluster: OfflineCluster) -> Iterator[QueuedPodInfo]:
    """Yield the pods that wait for an event or a gate, by themselves or in a group."""
    queue, scheduler = cluster.scheduler.queue, cluster.scheduler
    for queued in (*queue.unschedulable_pods(), *queue.gated_pods()):
        profile = scheduler.profiles.get(queued.pod.spec.scheduler_name)
        if profile is not None and not scheduler.skip_pod_schedule(queued, profile):
            yield queued


async def _would_pass(cluster: OfflineCluster, queued: QueuedPodInfo) -> bool:
    profile = cluster.scheduler.profiles[queued.pod.spec.scheduler_name]
    if not _admitted(profile, queued):
        return False
    entity = cluster.scheduler.queue.entity_of(queued)
    if isinstance(entity, QueuedPodGroupInfo):
        # Whether they fit together, only the cycle of the group tells.
        return all(_admitted(profile, pod) for pod in entity.queued_pods)
    twin = QueuedPodInfo(queued.info, queued.timestamp)
    attempt = cluster.scheduler.begin(twin, profile)
    attempt.may_preempt = False
    cluster.scheduler.scheduling_cycle.set_interested_extenders(attempt)
    found = await cluster.scheduler.scheduling_cycle.schedule_pod(attempt)
    if isinstance(found, Failure):
        return False
    if profile.is_deferred_resize(queued.pod):
        # Permit has it wait for its kubelet, where it passes all that comes before.
        return DEFERRED_RESIZE not in queued.unschedulable_plugins
    return await _can_be_reserved(cluster, attempt, found)


def _admitted(profile: Profile, queued: QueuedPodInfo) -> bool:
    for plugin in profile.pre_enqueue:
        try:
            if as_status(plugin, "PreEnqueue", plugin.pre_enqueue(queued.info)) is not None:
                return False
        except PluginError:
            return False
    return True


async def _can_be_reserved(cluster: OfflineCluster, attempt: Attempt, node_name: str) -> bool:
    cycle, nominator = cluster.scheduler.scheduling_cycle, cluster.scheduler.queue.nominator
    nominated = nominator.nominated_node_of(attempt.pod.uid)
    try:
        if await cycle.assume_and_reserve(attempt, node_name) is not None:
            return False
        cycle.unreserve_and_forget(attempt, node_name)
        return True
    finally:
        if nominated is not None:
            nominator.add_nominated_pod(attempt.pod, NominatingInfo(nominated))
