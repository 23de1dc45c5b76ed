"""PreEnqueue plugins: they keep pods out of the active queue and of back-off."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from time import perf_counter

from proreus.base import logs
from proreus.engine.queue.queue_recorder import QueueRecorder
from proreus.framework.event_registrations import PreEnqueue, QueueProfile
from proreus.framework.pod_info import QueuedPodInfo
from proreus.framework.queued_pod_group import QueuedEntityInfo, QueuedPodGroupInfo
from proreus.framework.status import Code

log = logs.logger(__name__)


class PreEnqueuePlugins:
    """The PreEnqueue plugins of all profiles: they keep a pod out until something else is ready.

    They run when a pod is about to become active or to back off, and not again when it leaves
    back-off. A gated pod gets no Event and no condition: the apiserver has set SchedulingGated.
    ``first_gates``: see ``Change.FIRST_GATED_POD_GATES``.
    """

    def __init__(
        self, profiles: Mapping[str, QueueProfile], recorder: QueueRecorder, *, first_gates: bool
    ) -> None:
        self.use_profiles(profiles)
        self._recorder = recorder
        self._first_gates = first_gates

    def use_profiles(self, profiles: Mapping[str, QueueProfile]) -> None:
        """Use the plugins of other profiles."""
        self._plugins = {name: dict(profile.pre_enqueue) for name, profile in profiles.items()}
        self._group_wide = {name: profile.group_wide for name, profile in profiles.items()}

    def has(self, profile: str, plugin: str) -> bool:
        """Return whether a profile has this PreEnqueue plugin."""
        return plugin in self._plugins.get(profile, ())

    def run(self, queued: QueuedEntityInfo) -> None:
        """Set ``gating_plugin`` to the first plugin that rejects the pod, or to "" if none does.

        One gated pod gates its group.
        """
        if isinstance(queued, QueuedPodGroupInfo):
            self._run_for_group(queued)
        else:
            self._run(queued, None)

    def run_for(self, group: QueuedPodGroupInfo, pods: Iterable[QueuedPodInfo]) -> None:
        """Run the plugins for some pods of a group that is not gated; one gated pod gates it."""
        for queued in pods:
            self._run(queued, None)
            group.gating_plugin = queued.gating_plugin or group.gating_plugin
            if group.gating_plugin and self._first_gates:
                break

    def _run_for_group(self, group: QueuedPodGroupInfo) -> None:
        group.gating_plugin = ""
        for pods in group.pods_by_group.values():
            results: dict[tuple[str, str], bool] = {}
            still_gated = None
            # Up to 1.37 all of them, also after a gated one: each knows its own gate.
            for queued in pods:
                # A gang of a thousand pods is looked at a thousand times while its pods arrive: a
                # pod that a group-wide plugin gated before, as it does the one before, stays so.
                gate = (queued.pod.spec.scheduler_name, queued.gating_plugin)
                if gate != still_gated:
                    self._run(queued, results)
                    gate = (queued.pod.spec.scheduler_name, queued.gating_plugin)
                    still_gated = gate if results.get(gate) is False else None
                group.gating_plugin = queued.gating_plugin or group.gating_plugin
                if group.gating_plugin and self._first_gates:
                    return

    def _run(self, queued: QueuedPodInfo, results: dict[tuple[str, str], bool] | None) -> None:
        """Run the plugins for a pod; ``results``: of group-wide plugins for pods of its group."""
        profile = queued.pod.spec.scheduler_name
        plugins = self._plugins.get(profile)
        gating_plugin, queued.gating_plugin = queued.gating_plugin, ""
        if not plugins:
            return
        group_wide = () if results is None else self._group_wide[profile]
        started = perf_counter()
        # The plugin that gated the pod before runs first: it is the likeliest to do so again.
        names = (
            (gating_plugin, *(n for n in plugins if n != gating_plugin))
            if gating_plugin in plugins
            else plugins
        )
        for name in names:
            if results is None or name not in group_wide:
                admitted = _admits(name, plugins[name], queued)
            else:
                known = results.get((profile, name))
                if known is None:
                    known = results[profile, name] = _admits(name, plugins[name], queued)
                admitted = known
            if not admitted:
                queued.gating_plugin = name
                if name not in queued.unschedulable_plugins:
                    queued.unschedulable_plugins.add(name)
                    self._recorder.add_unschedulable_reasons(profile, (name,))
                break
        self._recorder.record_pre_enqueue(profile, perf_counter() - started)


def _admits(name: str, pre_enqueue: PreEnqueue, queued: QueuedPodInfo) -> bool:
    # A plugin that fails gates the pod: a pod that is let in too early cannot be called back.
    try:
        status = pre_enqueue(queued.info)
    except Exception as error:
        log.error("PreEnqueue raised; gated", err=error, trace=True, pod=queued.key, plugin=name)
        return False
    if status is None or status.code == Code.SUCCESS:
        return True
    if status.code == Code.ERROR:
        log.error("PreEnqueue failed; gated", err=status.message, pod=queued.key, plugin=name)
    return False
