"""Pre-queueing hints: plugins name the pods that an event concerns, before hints are called.

kube-scheduler's ``runPreQueueingHintPlugins`` (gate SchedulerPreQueueingHints).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec import Struct

from proreus.base import logs
from proreus.engine.queue.queue_recorder import QueueRecorder
from proreus.framework.events import PreQueueingHintFn

log = logs.logger(__name__)


class NamedPods(Struct, frozen=True):
    """The pods (``namespace/name``) that plugins named, all together and by plugin.

    A plugin that knows by an index which pods an event concerns saves its hints for all others.
    ``candidates``: None if all pods are looked at.

    Example: DynamicResources names the two pods of a claim that was created. Only these two are
    looked at; up to Kubernetes 1.37 also for plugins that name none and registered the same event.
    """

    candidates: frozenset[str] | None
    by_plugin: dict[str, frozenset[str]]

    def concerns(self, plugin: str, key: str) -> bool:
        """Return whether a plugin's hint is to be called for a pod."""
        named = self.by_plugin.get(plugin)
        return named is None or key in named

    def may_concern(self, key: str) -> bool:
        """Return whether a pod is looked at."""
        return self.candidates is None or key in self.candidates


class PreQueueingHints(Struct, frozen=True):
    """Calls pre-queueing hints about one event. ``by_plugin``: ``Change.NAMED_PODS_BY_PLUGIN``."""

    recorder: QueueRecorder
    event_label: str
    by_plugin: bool

    def named_pods(
        self, hints: Iterable[tuple[str, PreQueueingHintFn | None]], old: Any, new: Any
    ) -> NamedPods | None:
        """Return the pods that plugins name; None if hints decide about all."""
        by_plugin: dict[str, frozenset[str]] = {}
        of_all_pods: set[str] = set()
        for plugin, hint in hints:
            if hint is None and not self.by_plugin:
                continue
            named = None if hint is None else self._named_by(plugin, hint, old, new)
            if named is None:
                of_all_pods.add(plugin)
                if not self.by_plugin:
                    return None
            else:
                by_plugin[plugin] = by_plugin.get(plugin, frozenset()) | named
        candidates = None if of_all_pods else frozenset().union(*by_plugin.values())
        # One registration of a plugin that needs all pods spoils what the others name.
        narrowed = {name: keys for name, keys in by_plugin.items() if name not in of_all_pods}
        return NamedPods(candidates, narrowed)

    def _named_by(
        self, plugin: str, hint: PreQueueingHintFn, old: Any, new: Any
    ) -> frozenset[str] | None:
        """Return the pods that a plugin names; None for all, also where it fails."""
        try:
            answer = hint(old, new)
            named = None if answer is None else frozenset(answer)
        except Exception as error:
            log.error(
                "A pre-queueing hint raised; all pods are looked at",
                err=error,
                trace=True,
                plugin=plugin,
                event=self.event_label,
            )
            if self.by_plugin:
                self.recorder.record_pre_queueing_hint(plugin, "prequeueing_hint_fn_error")
            return None
        result = "all_pods" if named is None else "narrowed"
        self.recorder.record_pre_queueing_hint(plugin, result)
        return named
