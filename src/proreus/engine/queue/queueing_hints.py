"""Matches events with registrations, and calls queueing hints to find the pods that they help.

    candidates_for(event)          the pods whose rejectors registered such an event
    queueing_strategy(pod, event)  the hints of those rejectors: SKIP, AFTER_BACKOFF, IMMEDIATELY
    group_queueing_strategy(group) the same for the pods of a group
    strategy_after_failure(pod)    the same for the events that a pod missed in flight

Registrations are matched once for each kind of event. kube-scheduler's ``isPodWorthRequeuing``
(KEP-4247).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from enum import IntEnum
from time import perf_counter
from typing import Any

from msgspec import Struct

from proreus.base import logs
from proreus.engine.queue.in_flight import InFlightEvent
from proreus.engine.queue.named_pods import NamedPods, PreQueueingHints
from proreus.engine.queue.queue_recorder import QueueRecorder
from proreus.engine.queue.unschedulable import RejectorKey, UnschedulablePods
from proreus.framework.event_registrations import EventRegistration, QueueProfile
from proreus.framework.events import (
    ALL,
    ANY,
    ClusterEvent,
    PreQueueingHintFn,
    QueueingHintFn,
    UngatedPodsFn,
    is_announced,
)
from proreus.framework.pod_info import PodInfo, QueuedPodInfo
from proreus.framework.queued_pod_group import QueuedEntityInfo, QueuedPodGroupInfo

log = logs.logger(__name__)


class QueueingStrategy(IntEnum):
    """The effect of an event on a pod that was rejected."""

    SKIP = 0
    """The event does not help."""
    AFTER_BACKOFF = 1
    """Try the pod again once its back-off is over."""
    IMMEDIATELY = 2
    """Try the pod again at once: the event that its plugin held it pending for has occurred."""


class ProfileMatches(Struct, frozen=True):
    """The plugins of a profile that registered a kind of event, and their hints."""

    plugins: frozenset[str]
    hints: tuple[tuple[str, QueueingHintFn | None], ...]


class EventMatches(Struct, frozen=True):
    """The registrations that match a kind of event, by schedulerName, and the rejectors concerned.

    ``gated_lookups``: gating plugins that name the pods which an event ungates, with their
    functions (``ClusterEvent.ungated_pods``). ``pre_hints``: the pre-queueing hints by plugin, None
    of a registration without; empty if there is none.
    """

    by_profile: Mapping[str, ProfileMatches]
    rejector_keys: frozenset[RejectorKey]
    gated_lookups: tuple[tuple[RejectorKey, tuple[UngatedPodsFn, ...]], ...]
    pre_hints: tuple[tuple[str, PreQueueingHintFn | None], ...] = ()


_MOST_KINDS = 8
"""For how many kinds of a group's placed pods hints are called; of more, any event helps one."""

NO_MATCHES = EventMatches({}, frozenset(), ())


class QueueingHints:
    """The registrations of all profiles.

    ``first_gates``: see ``Change.FIRST_GATED_POD_GATES``; ``named_by_plugin``: see
    ``Change.NAMED_PODS_BY_PLUGIN``.
    """

    def __init__(
        self,
        profiles: Mapping[str, QueueProfile],
        recorder: QueueRecorder,
        *,
        first_gates: bool = False,
        named_by_plugin: bool = False,
    ) -> None:
        self._recorder = recorder
        self._first_gates = first_gates
        self._named_by_plugin = named_by_plugin
        self.use_profiles(profiles)

    def use_profiles(self, profiles: Mapping[str, QueueProfile]) -> None:
        """Use the registrations of other profiles."""
        self._registrations = {name: tuple(p.registrations) for name, p in profiles.items()}
        self._matches: dict[tuple[str, int], EventMatches] = {}

    def registered_by(self, profile: str, plugins: Collection[str]) -> list[EventRegistration]:
        """Return the events that some plugins of a profile registered, in their order."""
        registrations = self._registrations.get(profile, ())
        return [(plugin, event) for plugin, event in registrations if plugin in plugins]

    def matches_of(self, event: ClusterEvent) -> EventMatches:
        """Return the registrations that cover an event; ``NO_MATCHES`` if there are none."""
        kind = (event.resource, event.action)
        matches = self._matches.get(kind)
        if matches is None:
            matches = self._matches[kind] = self._match(event)
        return matches

    def _match(self, event: ClusterEvent) -> EventMatches:
        by_profile = {}
        rejector_keys: set[RejectorKey] = set()
        gated_lookups: dict[RejectorKey, tuple[UngatedPodsFn, ...]] = {}
        pre_hints: list[tuple[str, PreQueueingHintFn | None]] = []
        for profile, registrations in self._registrations.items():
            matching = [(pl, reg) for pl, reg in registrations if reg.matches(event)]
            if not matching:
                continue
            plugins = frozenset(plugin for plugin, _ in matching)
            hints = tuple((plugin, reg.hint) for plugin, reg in matching)
            pre_hints += [(plugin, reg.pre_queueing_hint) for plugin, reg in matching]
            by_profile[profile] = ProfileMatches(plugins, hints)
            rejector_keys.update(RejectorKey(profile, plugin) for plugin in plugins)
            for plugin in plugins:
                # Ten thousand gated pods, and an event ungates ten: a plugin that can name them
                # saves the hints of all others. One registration that cannot spoils it.
                gate = RejectorKey(profile, plugin, gated=True)
                functions = [reg.ungated_pods for name, reg in matching if name == plugin]
                if all(functions):
                    gated_lookups[gate] = tuple(
                        ungated_pods for ungated_pods in functions if ungated_pods
                    )
                else:
                    rejector_keys.add(gate)
        if not by_profile:
            if is_announced(event.resource):
                log.warning(
                    "A plugin announces an event that none registers: it wakes no pod",
                    event=event.label,
                    remedy="return it from events_to_register of the plugin that rejects the pods",
                )
            return NO_MATCHES
        # Pods without a rejector have no hint to call: any event that a plugin registered helps.
        rejector_keys.update(RejectorKey(profile, "") for profile in self._registrations)
        return EventMatches(
            by_profile,
            frozenset(rejector_keys),
            tuple(gated_lookups.items()),
            tuple(pre_hints) if any(hint for _, hint in pre_hints) else (),
        )

    def named_pods(self, event: ClusterEvent, old: Any, new: Any) -> NamedPods | None:
        """Return the pods that plugins name for an event; None if hints decide about all."""
        pre_hints = self.matches_of(event).pre_hints
        if not pre_hints or event.wildcard or (old is None and new is None):
            return None
        calls = PreQueueingHints(self._recorder, event.label, by_plugin=self._named_by_plugin)
        return calls.named_pods(pre_hints, old, new)

    def candidates_for(
        self,
        pods: UnschedulablePods,
        event: ClusterEvent,
        changes: Iterable[tuple[Any, Any]] | None,
    ) -> list[QueuedEntityInfo]:
        """Return the pods and groups that an event could help, before hints are called.

        ``changes``: the old and the new version of each object that it is about; None if not known.
        """
        if event.wildcard:
            return pods.pods()
        matches = self.matches_of(event)
        found = pods.rejected_by(matches.rejector_keys)
        for gate, gated_lookups in matches.gated_lookups:
            # Most gangs are not gated, and to name their pods costs more with each of them.
            if not pods.has_rejected_by(gate):
                continue
            keys = (
                None
                if changes is None
                else _ungated_pods(gate.plugin, gated_lookups, event, changes)
            )
            found += pods.rejected_by((gate,)) if keys is None else pods.rejected_among(gate, keys)
        return found

    def gating_plugin_registered(self, queued: QueuedEntityInfo, event: ClusterEvent) -> bool:
        """Return whether the plugin that gates a pod registered an event that covers this one."""
        matches = self.matches_of(event).by_profile.get(queued.pod.spec.scheduler_name)
        return matches is not None and queued.gating_plugin in matches.plugins

    def queueing_strategy(
        self,
        queued: QueuedPodInfo,
        event: ClusterEvent,
        old: Any,
        new: Any,
        named: NamedPods | None = None,
    ) -> QueueingStrategy:
        """Return the strategy of an event for a pod; hints get the pod, ``old`` and ``new``.

        A wildcard event helps every pod, or only the one that it carries as ``new``. ``named``: the
        pods that plugins named; the hint of such a plugin is called for them only.
        """
        unschedulable, pending = queued.unschedulable_plugins, queued.pending_plugins
        if not (unschedulable or pending):
            return QueueingStrategy.AFTER_BACKOFF
        if event.resource == ANY and event.action == ALL:
            if new is not None and uid_of(new) != queued.uid:
                return QueueingStrategy.SKIP
            return QueueingStrategy.AFTER_BACKOFF
        matches = self.matches_of(event).by_profile.get(queued.pod.spec.scheduler_name)
        # Most events concern none of a pod's rejectors: this test is the usual cost of a replay.
        if matches is None or (
            matches.plugins.isdisjoint(unschedulable) and matches.plugins.isdisjoint(pending)
        ):
            return QueueingStrategy.SKIP
        strategy = QueueingStrategy.SKIP
        for plugin, hint in matches.hints:
            if plugin not in unschedulable and plugin not in pending:
                continue
            if named is not None and not named.concerns(plugin, queued.key):
                continue
            if not self._run_hint(plugin, hint, event, queued.info, old, new):
                continue
            # A pending plugin waits for exactly this event: no back-off (kube: queueImmediately).
            if plugin in pending:
                return QueueingStrategy.IMMEDIATELY
            strategy = QueueingStrategy.AFTER_BACKOFF
            # With pending plugins, a later hint may still yield IMMEDIATELY.
            if not pending:
                break
        return strategy

    def group_queueing_strategy(
        self,
        group: QueuedPodGroupInfo,
        event: ClusterEvent,
        old: Any,
        new: Any,
        named: NamedPods | None = None,
    ) -> QueueingStrategy:
        """Return the strategy of the pod in a group that an event helps most.

        A pod that found a node counts too, where it would leave that node to another.
        """
        pods = group.queued_pods
        if self._first_gates or not group.gated:
            # Pods that were not tried, because others did not fit or the group is gated, say
            # nothing about the event.
            pods = [pod for pod in pods if pod.rejectors] or pods
        best, enough = QueueingStrategy.SKIP, _enough(any(pod.pending_plugins for pod in pods))
        for pod in pods:
            best = max(best, self.queueing_strategy(pod, event, old, new, named))
            if best >= enough:
                break
        if best is QueueingStrategy.SKIP and self._has_lost_its_gate(group):
            return QueueingStrategy.AFTER_BACKOFF
        if best is QueueingStrategy.SKIP and self._helps_one_in_the_way(
            group, event, old, new, named
        ):
            return QueueingStrategy.AFTER_BACKOFF
        return best

    def _has_lost_its_gate(self, group: QueuedPodGroupInfo) -> bool:
        """Return whether the pod that gates a group is gone, and pods that were not asked wait."""
        if not self._first_gates or not group.gated:
            return False
        pods = group.queued_pods
        return not any(pod.gated for pod in pods) and not all(pod.rejectors for pod in pods)

    def _helps_one_in_the_way(
        self,
        group: QueuedPodGroupInfo,
        event: ClusterEvent,
        old: Any,
        new: Any,
        named: NamedPods | None,
    ) -> bool:
        """Return whether a pod may go elsewhere by a plugin that rejected others of its group."""
        if group.gated or event.wildcard or not group.in_the_way:
            return False
        matches = self.matches_of(event).by_profile.get(group.pod.spec.scheduler_name)
        plugins = group.unschedulable_plugins
        if matches is None or matches.plugins.isdisjoint(plugins):
            return False
        return len(group.in_the_way) > _MOST_KINDS or any(
            self._run_hint(plugin, hint, event, pod.info, old, new)
            for plugin, hint in matches.hints
            if plugin in plugins
            for pod in group.in_the_way.values()
            if named is None or named.concerns(plugin, pod.key)
        )

    def strategy_after_failure(
        self, queued: QueuedPodInfo, events: Iterable[InFlightEvent]
    ) -> QueueingStrategy:
        """Return where a pod goes whose attempt failed, by the events that came in meanwhile.

        A pod that no plugin rejected failed by an error, and is retried after its back-off.
        """
        if not (queued.unschedulable_plugins or queued.pending_plugins):
            return QueueingStrategy.AFTER_BACKOFF
        best, enough = QueueingStrategy.SKIP, _enough(bool(queued.pending_plugins))
        for event, old, new in events:
            best = max(best, self.queueing_strategy(queued, event, old, new))
            if best >= enough:
                break
        return best

    def _run_hint(
        self,
        plugin: str,
        hint: QueueingHintFn | None,
        event: ClusterEvent,
        pod: PodInfo,
        old: Any,
        new: Any,
    ) -> bool:
        """Return whether an event helps by a plugin's hint; without a hint, any event does."""
        if hint is None:
            self._recorder.record_hint(plugin, event.label, "Queue", 0.0)
            return True
        started = perf_counter()
        try:
            helps = hint(pod, old, new)
            result = "Queue" if helps else "QueueSkip"
        except Exception as error:
            log.error(
                "A queueing hint raised; the pod is tried again",
                err=error,
                trace=True,
                plugin=plugin,
                event=event.label,
                pod=pod.key,
            )
            # One attempt too many costs little; one too few leaves the pod waiting for minutes.
            helps, result = True, "Error"
        self._recorder.record_hint(plugin, event.label, result, perf_counter() - started)
        return helps


def _enough(pending: bool) -> QueueingStrategy:
    """Return the strategy beyond which there is none; only pending pods can skip their back-off."""
    return QueueingStrategy.IMMEDIATELY if pending else QueueingStrategy.AFTER_BACKOFF


def _ungated_pods(
    plugin: str,
    gated_lookups: tuple[UngatedPodsFn, ...],
    event: ClusterEvent,
    changes: Iterable[tuple[Any, Any]],
) -> Collection[str] | None:
    """Return the keys of the pods that an event ungates; None, for all, if the plugin failed."""
    try:
        return dict.fromkeys(
            key
            for old, new in changes
            for ungated_pods in gated_lookups
            for key in ungated_pods(old, new)
        )
    except Exception as error:
        log.error(
            "A plugin failed to name the pods that it ungates; all of its gated pods are tried",
            err=error,
            trace=True,
            plugin=plugin,
            event=event.label,
        )
        return None


def uid_of(obj: Any) -> str | None:
    """Return the UID of an API object or of a ``PodInfo``."""
    if isinstance(obj, PodInfo):
        return obj.uid
    metadata = getattr(obj, "metadata", None)
    return None if metadata is None else str(metadata.uid)
