from __future__ import annotations

from proreus.framework import events as ev
from proreus.framework.event_registrations import registrations_of
from proreus.framework.events import ClusterEvent

TAINT = ("P", ClusterEvent(ev.NODE, ev.UPDATE_NODE_TAINT))


def registered(*events: ClusterEvent) -> list[tuple[str, ClusterEvent]]:
    return list(registrations_of("P", events, implied_taint_event=True))


def test_each_event_is_registered_with_its_hint():
    def hint(pod, old, new):
        return False

    ((plugin, event),) = registered(ClusterEvent(ev.POD, ev.DELETE, hint))
    assert (plugin, event.hint) == ("P", hint)
    assert registered() == []


def test_who_waits_for_nodes_is_woken_by_taints_too():
    add = ClusterEvent(ev.NODE, ev.ADD | ev.UPDATE_NODE_LABEL, lambda pod, old, new: False)
    assert registered(add) == [("P", add), TAINT]
    assert registered(add)[1][1].hint is None
    assert registrations_of("P", [add]) == (("P", add),)


def test_not_where_taints_are_registered_or_new_nodes_are_not():
    add = ClusterEvent(ev.NODE, ev.ADD)
    taint = ClusterEvent(ev.NODE, ev.UPDATE_NODE_TAINT)
    both = ClusterEvent(ev.NODE, ev.ADD | ev.UPDATE_NODE_TAINT)
    label = ClusterEvent(ev.NODE, ev.UPDATE_NODE_LABEL)
    everything = ClusterEvent(ev.ANY, ev.ALL)
    for events in ([add, taint], [both], [label], [everything]):
        assert registered(*events) == [("P", event) for event in events]
