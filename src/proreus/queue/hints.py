"""Whom an event helps: registrations are matched, and plugins' hints are asked.

Matching is done once for each kind of event; what remains for each event and pod is a look at who
rejected the pod, and a call of the hints of those plugins.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import IntEnum
from time import perf_counter
from typing import Any, NamedTuple

from proreus import logs
from proreus.framework.events import ALL, ANY, ClusterEvent, Hint, LetsIn
from proreus.framework.pod_info import PodInfo, QueuedPodInfo
from proreus.framework.registrations import QueueProfile
from proreus.queue.recorder import Recorder
from proreus.queue.unschedulable import Shelf, UnschedulablePods

log = logs.logger(__name__)


class Strategy(IntEnum):
    """What an event means for a pod that was rejected."""

    SKIP = 0
    """It helps nothing."""
    AFTER_BACKOFF = 1
    """Try the pod again once its back-off is over."""
    IMMEDIATELY = 2
    """Try the pod again at once: what it was pending on has happened."""


class InterestOfProfile(NamedTuple):
    """Which plugins of a profile registered a kind of event, and the hint of each registration."""

    plugins: frozenset[str]
    hints: tuple[tuple[str, Hint | None], ...]


class Interest(NamedTuple):
    """Who waits for a kind of event, by schedulerName; and the shelves of the pods concerned.

    ``doors``: further shelves of gated pods, of which somebody knows whom an event lets in.
    """

    of_profile: Mapping[str, InterestOfProfile]
    shelves: frozenset[Shelf]
    doors: tuple[tuple[Shelf, tuple[LetsIn, ...]], ...]


NOBODY = Interest({}, frozenset(), ())


class Hints:
    """The registrations of all profiles."""

    def __init__(self, profiles: Mapping[str, QueueProfile], recorder: Recorder) -> None:
        self._registrations = {name: tuple(p.registrations) for name, p in profiles.items()}
        self._recorder = recorder
        self._interests: dict[tuple[str, int], Interest] = {}

    def interest_in(self, event: ClusterEvent) -> Interest:
        """Return who registered events that cover this one; ``NOBODY`` if no plugin did."""
        kind = (event.resource, event.action)
        interest = self._interests.get(kind)
        if interest is None:
            interest = self._interests[kind] = self._match(event)
        return interest

    def _match(self, event: ClusterEvent) -> Interest:
        of_profile = {}
        shelves: set[Shelf] = set()
        doors: dict[Shelf, tuple[LetsIn, ...]] = {}
        for profile, registrations in self._registrations.items():
            matching = [(pl, reg) for pl, reg in registrations if reg.matches(event)]
            if not matching:
                continue
            plugins = frozenset(plugin for plugin, _ in matching)
            hints = tuple((plugin, reg.hint) for plugin, reg in matching)
            of_profile[profile] = InterestOfProfile(plugins, hints)
            shelves.update(Shelf(profile, plugin) for plugin in plugins)
            for plugin in plugins:
                gate = Shelf(profile, plugin, gated=True)
                known = [reg.lets_in for name, reg in matching if name == plugin]
                if all(known):
                    doors[gate] = tuple(lets_in for lets_in in known if lets_in)
                else:
                    shelves.add(gate)
        if not of_profile:
            return NOBODY
        # Pods that nobody rejected have nobody to ask: any event that counts at all wakes them.
        shelves.update(Shelf(profile, "") for profile in self._registrations)
        return Interest(of_profile, frozenset(shelves), tuple(doors.items()))

    def concerned(
        self, pods: UnschedulablePods, event: ClusterEvent, old: Any, new: Any
    ) -> list[QueuedPodInfo]:
        """Return the pods that an event could help, as far as that is known without hints."""
        if event.wildcard:
            return pods.pods()
        interest = self.interest_in(event)
        found = pods.waiting_for(interest.shelves)
        for gate, doors in interest.doors:
            keys = _let_in(gate.plugin, doors, event, old, new)
            found += pods.waiting_for((gate,)) if keys is None else pods.standing_on(gate, keys)
        return found

    def opens_gate(self, queued: QueuedPodInfo, event: ClusterEvent) -> bool:
        """Tell whether the plugin that gates a pod registered an event that covers this one."""
        interest = self.interest_in(event).of_profile.get(queued.pod.spec.scheduler_name)
        return interest is not None and queued.gating_plugin in interest.plugins

    def worth_requeuing(
        self, queued: QueuedPodInfo, event: ClusterEvent, old: Any, new: Any
    ) -> Strategy:
        """Tell what an event means for a pod; hints are asked with the pod, ``old`` and ``new``.

        A wildcard event helps every pod, or only the one that it carries as ``new``.
        """
        unschedulable, pending = queued.unschedulable_plugins, queued.pending_plugins
        if not (unschedulable or pending):
            return Strategy.AFTER_BACKOFF
        if event.resource == ANY and event.action == ALL:
            if new is not None and uid_of(new) != queued.uid:
                return Strategy.SKIP
            return Strategy.AFTER_BACKOFF
        interest = self.interest_in(event).of_profile.get(queued.pod.spec.scheduler_name)
        # Most events concern none of a pod's rejecters; this is what replaying them costs.
        if interest is None or (
            interest.plugins.isdisjoint(unschedulable) and interest.plugins.isdisjoint(pending)
        ):
            return Strategy.SKIP
        strategy = Strategy.SKIP
        for plugin, hint in interest.hints:
            if plugin not in unschedulable and plugin not in pending:
                continue
            if not self._ask(plugin, hint, event, queued.info, old, new):
                continue
            if plugin in pending:
                return Strategy.IMMEDIATELY
            strategy = Strategy.AFTER_BACKOFF
            if not pending:
                break
        return strategy

    def _ask(
        self, plugin: str, hint: Hint | None, event: ClusterEvent, pod: PodInfo, old: Any, new: Any
    ) -> bool:
        """Ask a hint, if there is one. One that raises counts as yes: better once too often."""
        if hint is None:
            self._recorder.hint_answered(plugin, event.label, "Queue", 0.0)
            return True
        started = perf_counter()
        try:
            helps = hint(pod, old, new)
            answer = "Queue" if helps else "QueueSkip"
        except Exception as error:
            log.error(
                "A queueing hint raised; the pod is tried again",
                err=error,
                trace=True,
                plugin=plugin,
                event=event.label,
                pod=pod.key,
            )
            helps, answer = True, "Error"
        self._recorder.hint_answered(plugin, event.label, answer, perf_counter() - started)
        return helps


def _let_in(
    plugin: str, doors: tuple[LetsIn, ...], event: ClusterEvent, old: Any, new: Any
) -> Collection[str] | None:
    """Ask a plugin whom an event lets in; None, where it fails, stands for everybody."""
    try:
        return dict.fromkeys(key for lets_in in doors for key in lets_in(old, new))
    except Exception as error:
        log.error(
            "A plugin cannot tell whom it lets in; all that it gates are tried",
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
