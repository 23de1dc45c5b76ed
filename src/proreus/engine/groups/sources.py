"""Pods with the groups that plugins name for them (``PodGroupSourcePlugin``).

    informer ─► GroupedPodHandlers ─┐
    queue, failure handler ─► get ──┴─► with_group ─► the pod, its ``spec.schedulingGroup`` set

All of the scheduler reads a pod's group from ``spec.schedulingGroup``. A pod of a plugin's group
gets it where the pod enters the scheduler, so that queue, cache and the group's cycle treat it as
one of a PodGroup. The informer's store keeps the pod as the apiserver has it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec.structs import replace

from proreus.base.logs import logger
from proreus.engine.event_handlers import PodHandlers
from proreus.engine.runtime.profile import Profile
from proreus.framework.pod_group_plugin import PodGroupSourcePlugin
from proreus.objects.meta import key_of
from proreus.objects.pod import Pod, PodSchedulingGroup

log = logger(__name__)


class PodGroupSources:
    """The plugins that name groups, by schedulerName.

    ``pods``: the informer's store. ``api_groups``: gate GenericWorkload; without it a group that
    the API has for a pod is ignored, as elsewhere.
    """

    # Invariant: _grouped has, by UID, the last version of a pod and what was made of it.

    def __init__(self, pods: Mapping[str, Pod], *, api_groups: bool) -> None:
        self._pods = pods
        self._api_groups = api_groups
        self._sources: dict[str, PodGroupSourcePlugin] = {}
        self._grouped: dict[str, tuple[Pod, Pod]] = {}

    def use(self, profiles: Mapping[str, Profile]) -> None:
        """Ask the plugins of these profiles from now on."""
        self._grouped.clear()
        self._sources = {
            name: profile.pod_group_source
            for name, profile in profiles.items()
            if profile.pod_group_source is not None
        }

    def get(self, key: str) -> Pod | None:
        """Return a pod of the store by ``namespace/name``, with its group."""
        pod = self._pods.get(key)
        return None if pod is None else self.with_group(pod)

    def with_group(self, pod: Pod) -> Pod:
        """Return a pod with the group that a plugin names for it; the pod itself if none does."""
        source = self._sources.get(pod.spec.scheduler_name)
        name = "" if source is None else _name_of(source, pod)
        if not name and (pod.spec.scheduling_group is None or self._api_groups):
            return pod
        uid = pod.metadata.uid
        known = self._grouped.get(uid)
        # The same object for the same version: a pod that fails is not prepared anew then.
        if known is not None and known[0] is pod:
            return known[1]
        group = PodSchedulingGroup(name) if name else None
        grouped = replace(pod, spec=replace(pod.spec, scheduling_group=group))
        self._grouped[uid] = (pod, grouped)
        return grouped

    def forget(self, uid: str) -> None:
        """Forget a pod that is gone."""
        self._grouped.pop(uid, None)


def _name_of(source: PodGroupSourcePlugin, pod: Pod) -> str:
    try:
        return source.pod_group_name(pod)
    except Exception as error:
        log.error(
            "pod_group_name raised; the pod is scheduled alone",
            err=error,
            trace=True,
            plugin=source.name,
            pod=key_of(pod),
        )
        return ""


class GroupedPodHandlers:
    """Calls other handlers of the pod informer with the pods' groups."""

    def __init__(self, handlers: PodHandlers, sources: PodGroupSources) -> None:
        self._handlers = handlers
        self.responsible_for_pod = handlers.responsible_for_pod
        self.is_queued_on_node = handlers.is_queued_on_node
        self._sources = sources

    def on_add(self, pod: Pod) -> None:
        """A pod appeared."""
        self._handlers.on_add(self._sources.with_group(pod))

    def on_add_all(self, pods: Sequence[Pod]) -> None:
        """All these pods appeared: the first list."""
        self._handlers.on_add_all([self._sources.with_group(pod) for pod in pods])

    def on_update(self, old: Pod, new: Pod) -> None:
        """A pod changed."""
        before = self._sources.with_group(old)
        after = self._sources.with_group(new)
        if before.spec.scheduling_group == after.spec.scheduling_group:
            self._handlers.on_update(before, after)
            return
        # Labels may change, and gates go: it leaves its queue entry, and joins the other group's.
        self._handlers.on_delete(before)
        self._handlers.on_add(after)

    def on_delete(self, pod: Pod, final_state_unknown: bool = False) -> None:
        """A pod is gone, or has finished."""
        self._handlers.on_delete(self._sources.with_group(pod), final_state_unknown)
        self._sources.forget(pod.metadata.uid)

    def regroup(
        self,
        pods: Iterable[Pod],
        profiles: Mapping[str, Profile],
        keeps: Callable[[str], bool],
    ) -> None:
        """Use other plugins for ``pods``; ``keeps``: whether the pod of a UID is left as it is."""
        pods = list(pods)
        before = [self._sources.with_group(pod) for pod in pods]
        self._sources.use(profiles)
        for pod, old in zip(pods, before, strict=True):
            new = self._sources.with_group(pod)
            same = old.spec.scheduling_group == new.spec.scheduling_group
            if not same and not keeps(pod.metadata.uid):
                self._handlers.on_delete(old)
                self._handlers.on_add(new)
