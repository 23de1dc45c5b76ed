"""SchedulingGates: gates keep a pod out, and only its own last gate lets it in."""

from __future__ import annotations

from proreus.framework.events import UPDATE_POD_SCHEDULING_GATES_ELIMINATED
from proreus.framework.status import Status
from proreus.plugins.scheduling_gates import SchedulingGates
from proreus.testing import FakeHandle, make_plugin, make_pod


def test_scheduling_gates_gate_a_pod() -> None:
    plugin = make_plugin(SchedulingGates, FakeHandle())
    gates = [{"name": "example.com/a"}, {"name": "b"}]

    result = plugin.pre_enqueue(make_pod(spec={"schedulingGates": gates}))

    assert result == Status.unresolvable("waiting for scheduling gates: [example.com/a b]")
    assert plugin.pre_enqueue(make_pod()) is None


def test_removing_the_pods_own_last_gate_queues_it() -> None:
    (event,) = make_plugin(SchedulingGates, FakeHandle()).events_to_register()
    pod = make_pod("waiting")

    assert event.action == UPDATE_POD_SCHEDULING_GATES_ELIMINATED
    assert event.hint is not None
    assert event.hint(pod, pod.pod, pod.pod)
    assert not event.hint(pod, pod.pod, make_pod("other").pod)
