"""PreEnqueue: plugins that keep a pod out of the queue until something outside is ready.

They are asked when a pod is about to become active or to back off, not again when it leaves
back-off. A gated pod gets no Event and no condition: the apiserver has told its owner already.
"""

from __future__ import annotations

from collections.abc import Mapping
from time import perf_counter

from proreus import logs
from proreus.framework.event_registrations import PreEnqueue, QueueProfile
from proreus.framework.pod_info import QueuedPodInfo
from proreus.framework.status import Code
from proreus.queue.queue_recorder import QueueRecorder

log = logs.logger(__name__)


class PreEnqueuePlugins:
    """The PreEnqueue plugins of all profiles."""

    def __init__(self, profiles: Mapping[str, QueueProfile], recorder: QueueRecorder) -> None:
        self._plugins = {name: dict(profile.pre_enqueue) for name, profile in profiles.items()}
        self._recorder = recorder

    def has(self, profile: str, plugin: str) -> bool:
        """Tell whether a profile has this PreEnqueue plugin."""
        return plugin in self._plugins.get(profile, ())

    def run(self, queued: QueuedPodInfo) -> None:
        """Set ``gating_plugin`` to the first plugin that says no, or to "" when all agree.

        The plugin that gated the pod so far is asked first: it is the likeliest to do so again.
        """
        profile = queued.pod.spec.scheduler_name
        plugins = self._plugins.get(profile)
        gating_plugin, queued.gating_plugin = queued.gating_plugin, ""
        if not plugins:
            return
        started = perf_counter()
        names = (
            (gating_plugin, *(n for n in plugins if n != gating_plugin))
            if gating_plugin in plugins
            else plugins
        )
        for name in names:
            if not _admits(name, plugins[name], queued):
                queued.gating_plugin = name
                if name not in queued.unschedulable_plugins:
                    queued.unschedulable_plugins.add(name)
                    self._recorder.add_unschedulable_reasons(profile, (name,))
                break
        self._recorder.record_pre_enqueue(profile, perf_counter() - started)


def _admits(name: str, pre_enqueue: PreEnqueue, queued: QueuedPodInfo) -> bool:
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
