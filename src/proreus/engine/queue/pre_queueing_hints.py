"""Which pods an event can help at all, as plugins name them before any hint is called.

Gate SchedulerPreQueueingHints (Kubernetes 1.37). A plugin that knows by an index which pods an
event concerns saves its hints for all others. kube-scheduler's ``runPreQueueingHintPlugins``.

Example: DynamicResources names the two pods of a claim that was created. Only these two are looked
at, also for plugins that name none and registered the same event.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec import Struct

from proreus.base import logs
from proreus.engine.queue.queue_recorder import QueueRecorder
from proreus.framework.events import ClusterEvent, PreQueueingHintFn

log = logs.logger(__name__)


class NamedPods(Struct, frozen=True):
    """The pods (``namespace/name``) that plugins named: all together, and by plugin."""

    candidates: frozenset[str]
    by_plugin: dict[str, frozenset[str]]

    def concerns(self, plugin: str, key: str) -> bool:
        """Return whether a plugin's hint is to be called for a pod."""
        named = self.by_plugin.get(plugin)
        return named is None or key in named


def run_pre_queueing_hints(
    hints: Iterable[tuple[str, PreQueueingHintFn]],
    recorder: QueueRecorder,
    event: ClusterEvent,
    old: Any,
    new: Any,
) -> NamedPods | None:
    """Return the pods that an event may help; None: any may be."""
    if event.wildcard or (old is None and new is None):
        return None
    by_plugin: dict[str, frozenset[str]] = {}
    for plugin, hint in hints:
        try:
            answer = hint(old, new)
            named = None if answer is None else frozenset(answer)
        except Exception as error:
            log.error(
                "A pre-queueing hint raised; all pods are looked at",
                err=error,
                trace=True,
                plugin=plugin,
                event=event.label,
            )
            return None
        recorder.record_pre_queueing_hint(plugin, "all_pods" if named is None else "narrowed")
        if named is None:
            return None
        by_plugin[plugin] = by_plugin.get(plugin, frozenset()) | named
    return NamedPods(frozenset().union(*by_plugin.values()), by_plugin) if by_plugin else None
