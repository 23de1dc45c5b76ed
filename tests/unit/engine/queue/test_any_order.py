"""Whatever happens in whatever order: no pod is lost, none is in two places."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from proreus.framework import events as ev
from proreus.framework.events import ASSIGNED_POD_DELETE, NODE_ADD, NODE_DELETE, ClusterEvent
from proreus.framework.post_filter_result import NominatingInfo

NAMES = st.sampled_from("abcdefgh")
PLUGINS = ("Fit", "Taint", "Claims", "Name")
EVENTS = st.sampled_from([NODE_ADD, NODE_DELETE, ASSIGNED_POD_DELETE, ev.UNSCHEDULABLE_TIMEOUT])
CHANGES = st.lists(
    st.sampled_from(
        [
            ClusterEvent(ev.TARGET_POD, action)
            for action in (
                ev.UPDATE,
                ev.UPDATE_POD_LABEL,
                ev.UPDATE_POD_SCHEDULING_GATES_ELIMINATED,
            )
        ]
    ),
    max_size=2,
)
NODES = st.sampled_from(["", "n1", "n2"])


def test_nothing_is_lost(make_harness, pod):
    class Life(RuleBasedStateMachine):
        """The queue, compared with a model that has only the set of pods and of popped ones."""

        def __init__(self) -> None:
            super().__init__()
            self.harness = make_harness(unschedulable_timeout_seconds=20)
            self.queue = self.harness.queue
            profile = self.harness.profile
            profile.register("SchedulingGates", ev.POD, ev.UPDATE_POD_SCHEDULING_GATES_ELIMINATED)
            profile.register("Fit", ev.POD, ev.DELETE)
            profile.register("Fit", ev.NODE, ev.ADD, lambda pod, *_: pod.priority > 0)
            profile.register("Taint", ev.NODE, ev.ADD)
            profile.register("Claims", ev.POD, ev.ALL)
            self.harness._queue = None
            self.queue = self.harness.queue
            self.waiting = {}
            self.popped = {}
            self.generation = 0

        def known(self, name):
            return name in self.waiting or name in self.popped

        @rule(name=NAMES, priority=st.integers(0, 2), gated=st.booleans(), node=NODES)
        def add(self, name, priority, gated, node):
            if not self.known(name):
                self.generation += 1
                self.waiting[name] = info = pod(
                    name,
                    priority=priority,
                    pre_enqueue_plugins=("g",) if gated else (),
                    nominated=node,
                    uid=f"{name}-{self.generation}",
                )
                self.harness.add(info)

        @rule(
            name=NAMES, priority=st.integers(0, 2), gated=st.booleans(), node=NODES, events=CHANGES
        )
        def update(self, name, priority, gated, node, events):
            held = self.waiting if name in self.waiting else self.popped
            if name not in held:
                return
            old = held[name][0] if held is self.popped else held[name]
            new = pod(
                name,
                priority=priority,
                pre_enqueue_plugins=("g",) if gated and old.pod.spec.scheduling_gates else (),
                nominated=node,
                uid=old.uid,
            )
            self.harness.listed[new.key] = new.pod
            self.queue.update(old, new, events)
            held[name] = (new, held[name][1]) if held is self.popped else new

        @rule(name=NAMES)
        def delete(self, name):
            if name in self.waiting:
                info = self.waiting.pop(name)
                del self.harness.listed[info.key]
                self.queue.delete(info)

        @rule()
        def pop(self):
            queued = self.queue.pop()
            if queued is None:
                assert set(self.harness.places()) <= {"unschedulable", "gated", "backoff"}
                assert all(not q.rejectors for q in self.queue.backoff_pods())
                return
            name = queued.info.name
            assert queued.info is self.waiting.pop(name)
            self.popped[name] = (queued.info, queued)

        @rule(
            name=NAMES,
            plugins=st.sets(st.sampled_from(PLUGINS)),
            pending=st.booleans(),
            node=st.one_of(st.none(), NODES),
        )
        def fail(self, name, plugins, pending, node):
            if name not in self.popped:
                return
            info, queued = self.popped.pop(name)
            self.waiting[name] = queued.info = info
            queued.unschedulable_plugins = set(plugins)
            queued.pending_plugins = plugins & {"Claims"} if pending else set()
            self.queue.add_unschedulable(queued)
            self.queue.nominator.add_nominated_pod(
                info, None if node is None else NominatingInfo(node)
            )

        @rule(name=NAMES)
        def bind(self, name):
            if name in self.popped:
                info, _ = self.popped.pop(name)
                self.queue.done(info.uid)
                self.queue.delete(info)

        @rule(event=EVENTS, precheck=st.one_of(st.none(), NAMES))
        def move(self, event, precheck):
            self.queue.move_all_to_active_or_backoff(
                event, None, None, precheck and (lambda queued: queued.info.name <= precheck)
            )

        @rule(names=st.lists(NAMES))
        def activate(self, names):
            self.queue.activate(f"default/{name}" for name in names)

        @rule(seconds=st.sampled_from([0.0, 0.25, 0.5, 1.0, 3.0, 12.0, 40.0]))
        def wait(self, seconds):
            end = self.harness.clock.now() + seconds
            while (instant := int(self.harness.clock.now()) + 1) <= end:
                self.harness.clock.advance_to(instant)
                self.queue.flush()
            self.harness.clock.advance_to(end)

        @invariant()
        def all_is_well(self):
            self.queue.validate()
            found = [name for names in self.harness.places().values() for name in names]
            assert sorted(found) == sorted(self.waiting)
            assert self.queue.in_flight_count == len(self.popped)
            for name, info in self.waiting.items():
                queued = self.queue.get(f"default/{name}")
                assert queued is not None
                assert queued.info is info
                assert bool(queued.gating_plugin) == (queued in self.queue.gated_pods())

        @invariant()
        def counted_right(self):
            assert sum(self.queue.pending_counts().values()) == len(self.waiting)

    run_state_machine_as_test(
        Life, settings=settings(max_examples=60, stateful_step_count=40, deadline=None)
    )
