"""Pods that are being scheduled, and the events since their pops.

    pop a   event 1   pop b   event 2   a fails: sees 1, 2   b fails: sees 2

An event between a pod's pop and its failure may have removed the reason of that failure, and will
not come again. So an event is kept as long as a pod is in flight that was popped before it. This is
kube-scheduler's ``inFlightEvents``.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from proreus.framework.events import ClusterEvent
from proreus.framework.pod_info import PodInfo

POD_POPPED = "PodPopped"
"""The label of pods in flight in the metric scheduler_inflight_events."""


class InFlightEvent(NamedTuple):
    """An event, and the object that changed."""

    event: ClusterEvent
    old: Any
    new: Any


class _Marker(NamedTuple):
    info: PodInfo
    position: int


class InFlightPods:
    """Pods by UID, in the order of their pops, and the events since the first of these pops."""

    # Positions count events since the beginning of time; _events[0] has position _dropped.
    # Invariants: markers are in order of position; without markers there are no events, and with
    # them the first marker's position is _dropped.

    def __init__(self) -> None:
        self._markers: OrderedDict[str, _Marker] = OrderedDict()
        self._events: list[InFlightEvent] = []
        self._dropped = 0
        self._labels: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._markers)

    def __contains__(self, uid: object) -> bool:
        return uid in self._markers

    def begin(self, info: PodInfo) -> bool:
        """Record that a pod was popped; return False if it is in flight already."""
        if info.uid in self._markers:
            return False
        self._markers[info.uid] = _Marker(info, self._dropped + len(self._events))
        return True

    def record(self, event: ClusterEvent, old: Any, new: Any) -> None:
        """Keep an event for the pods that are in flight now, if there are any."""
        if self._markers:
            self._events.append(InFlightEvent(event, old, new))
            self._labels[event.label] += 1

    def events_since_pop(self, uid: str) -> Iterable[InFlightEvent]:
        """Return the events since a pod was popped, in order."""
        marker = self._markers.get(uid)
        if marker is None:
            return ()
        start = marker.position - self._dropped
        return self._events[start:] if start < len(self._events) else ()

    def done(self, uid: str) -> None:
        """Forget a pod, and the events that no other pod in flight may need."""
        if self._markers.pop(uid, None) is None:
            return
        # Only events before the oldest remaining pop can go: one pod that is bound slowly keeps
        # all later ones, which is why the binding cycle calls done before PreBind.
        if not self._markers:
            unwanted = len(self._events)
        else:
            unwanted = next(iter(self._markers.values())).position - self._dropped
        if unwanted:
            for in_flight_event in self._events[:unwanted]:
                self._labels[in_flight_event.event.label] -= 1
            del self._events[:unwanted]
            self._dropped += unwanted

    def by_key(self) -> Mapping[str, PodInfo]:
        """Return the pods in flight by ``namespace/name``: O(n)."""
        return {marker.info.key: marker.info for marker in self._markers.values()}

    def counts(self) -> dict[str, int]:
        """Return the number of kept events by label, and of the pods in flight.

        A label that was there once stays, with 0.
        """
        return {**self._labels, POD_POPPED: len(self._markers)}

    def validate(self) -> None:
        """Assert that markers are in order and that no event is kept for nobody."""
        positions = [marker.position for marker in self._markers.values()]
        assert positions == sorted(positions), "pods in flight are out of order"
        end = self._dropped + len(self._events)
        assert all(self._dropped <= position <= end for position in positions), "a pod lost events"
        first = positions[0] if positions else end
        assert first == self._dropped, "events are kept that nobody waits for"
        assert +self._labels == Counter(h.event.label for h in self._events), "events miscounted"
