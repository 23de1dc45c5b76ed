"""Pods, groups and groups of groups come and go in any order: each pod is where it belongs."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from proreus.base.kubernetes_version import V1_37
from proreus.framework import events as ev
from proreus.framework.events import NODE_ADD, UNSCHEDULABLE_TIMEOUT, ClusterEvent
from proreus.framework.status import Status
from proreus.framework.workload_forest import WorkloadForest
from proreus.objects.scheduling import PodGroup

NAMES = st.sampled_from("abcdefgh")
GROUPS = st.sampled_from(("g1", "g2", "g3"))
COMPOSITES = st.sampled_from(("c1", "c2", "c3"))
PARENTS = st.sampled_from((None, None, None, "c1", "c2", "c3"))
GATES_ELIMINATED = ClusterEvent(ev.TARGET_POD, ev.UPDATE_POD_SCHEDULING_GATES_ELIMINATED)
STATUSES = (None, Status.unschedulable("no"), Status.error("broken"))
IN_FLIGHT = "in flight"


def test_nothing_is_lost(make_harness, pod, pod_group, composite):
    class Life(RuleBasedStateMachine):
        """The queue, compared with a model: which pods wait, and which groups there are."""

        def __init__(self) -> None:
            super().__init__()
            self.harness = make_harness(
                V1_37, WorkloadForest(composite=True), unschedulable_timeout_seconds=20
            )
            profile = self.harness.profile
            profile.register(
                "SchedulingGates", ev.TARGET_POD, ev.UPDATE_POD_SCHEDULING_GATES_ELIMINATED
            )
            profile.register("Fit", ev.NODE, ev.ADD)
            self.queue = self.harness.queue
            self.waiting = {}
            self.in_flight = {}  # name: (info, queued), of pods that were popped
            self.groups = {}
            self.tried = None  # the group that was popped, whose attempt has not ended
            self.generation = 0
            self._put(pod_group("g1"))
            self._put(pod_group("g2", parent="c1"))
            self._put(composite("c1"))

        # ---- pods ----

        @rule(
            name=NAMES,
            group=st.sampled_from(("", "g1", "g1", "g2", "g2", "g3")),
            priority=st.integers(0, 1),
            gated=st.booleans(),
        )
        def add(self, name, group, priority, gated):
            if name in self.waiting or name in self.in_flight:
                return
            self.generation += 1
            gates = ("g",) if gated else ()
            self.waiting[name] = info = pod(
                name,
                priority=priority,
                pre_enqueue_plugins=gates,
                group=group,
                uid=f"{name}-{self.generation}",
            )
            self.harness.add(info)

        @rule(name=NAMES, group=st.one_of(st.none(), GROUPS), priority=st.integers(0, 1))
        def update(self, name, group, priority):
            """Eliminate the gates; a pod may even change its group."""
            held = self.waiting if name in self.waiting else self.in_flight
            if name not in held:
                return
            old = held[name] if held is self.waiting else held[name][0]
            before = old.pod.spec.scheduling_group
            if group is None:
                group = "" if before is None else before.pod_group_name
            new = pod(name, priority=priority, group=group, uid=old.uid)
            self.harness.listed[new.key] = new.pod
            self.queue.update(old, new, [GATES_ELIMINATED])
            held[name] = new if held is self.waiting else (new, held[name][1])

        @rule(name=NAMES)
        def delete(self, name):
            if name in self.waiting:
                info = self.waiting.pop(name)
                del self.harness.listed[info.key]
                self.queue.delete(info)

        @rule(name=NAMES)
        def recreate(self, name):
            """The watch misses that a pod was deleted and created anew, with another group."""
            if name in self.waiting:
                self.generation += 1
                old = self.waiting[name]
                new = pod(name, group="g1", uid=f"{name}-{self.generation}")
                self.harness.listed[new.key] = new.pod
                self.queue.update(old, new, [])
                self.waiting[name] = new

        # ---- groups ----

        @rule(name=GROUPS, parent=PARENTS, priority=st.integers(0, 1))
        def put_group(self, name, parent, priority):
            self._put(pod_group(name, parent=parent, priority=priority))

        @rule(name=COMPOSITES, parent=PARENTS, priority=st.integers(0, 1))
        def put_composite(self, name, parent, priority):
            """Parents may form a loop."""
            self._put(composite(name, parent=parent, priority=priority))

        def _put(self, group):
            old = self.groups.get(group.key)
            self.groups[group.key] = group
            if old is None:
                self.harness.pod_groups.add_group(group)
            else:
                self.harness.pod_groups.update_group(old, group)

        @rule(name=st.one_of(GROUPS, COMPOSITES))
        def delete_group(self, name):
            for key in [key for key in self.groups if key.name == name]:
                self.harness.pod_groups.delete_group(self.groups.pop(key))

        # ---- the scheduling loop ----

        @rule()
        def pop(self):
            if self.tried is not None:
                return
            popped = self.queue.pop()
            if popped is None:
                assert set(self.harness.places()) <= {
                    "gated",
                    "backoff",
                    "incomplete",
                    "unschedulable",
                }
                return
            for queued in popped.queued_pods:
                name = queued.info.name
                assert queued.info is self.waiting.pop(name)
                self.in_flight[name] = (queued.info, queued)
            if popped.type != "pod":
                self.tried = popped

        @rule(failing=st.sets(NAMES), status=st.sampled_from(STATUSES))
        def end_attempt(self, failing, status):
            """Of the pods that do not fail, each is being bound from now on."""
            if self.tried is None:
                return
            popped, self.tried = self.tried, None
            for queued in popped.queued_pods:
                if queued.info.name in failing:
                    self._fail(queued.info.name)
            self.harness.pod_groups.add_attempted(popped, status)

        @rule(name=NAMES)
        def fail(self, name):
            """The binding of a pod fails, or its attempt."""
            if name in self.in_flight and not self._is_tried(name):
                self._fail(name)

        def _is_tried(self, name):
            queued = self.in_flight[name][1]
            return self.tried is not None and queued in self.tried.queued_pods

        def _fail(self, name):
            info, queued = self.in_flight.pop(name)
            self.waiting[name] = queued.info = info
            queued.unschedulable_plugins, queued.pending_plugins = {"Fit"}, set()
            self.queue.add_unschedulable(queued)

        @rule(name=NAMES)
        def bind(self, name):
            if name in self.in_flight and not self._is_tried(name):
                info, _ = self.in_flight.pop(name)
                self.queue.done(info.uid)
                self.queue.delete(info)

        @rule(names=st.lists(NAMES))
        def activate(self, names):
            self.queue.activate(f"default/{name}" for name in names)

        @rule(event=st.sampled_from((NODE_ADD, UNSCHEDULABLE_TIMEOUT, GATES_ELIMINATED)))
        def move(self, event):
            self.queue.move_all_to_active_or_backoff(event, None, None)

        @rule(seconds=st.sampled_from((0.5, 1.0, 3.0, 40.0)))
        def wait(self, seconds):
            end = self.harness.clock.now() + seconds
            while (instant := int(self.harness.clock.now()) + 1) <= end:
                self.harness.clock.advance_to(instant)
                self.queue.flush()
            self.harness.clock.advance_to(end)

        # ---- what holds always ----

        @invariant()
        def indexes_agree(self):
            self.queue.validate()
            self.harness.forest.validate()

        @invariant()
        def each_pod_is_in_one_place(self):
            found = [name for names in self.harness.places().values() for name in names]
            assert sorted(found) == sorted(self.waiting)
            assert sorted(self.queue.keys()) == sorted(f"default/{name}" for name in self.waiting)
            assert sum(self.queue.pending_counts().values()) == len(self.waiting)
            assert self.queue.in_flight_count == len(self.in_flight)
            for name, info in self.waiting.items():
                queued = self.queue.get(f"default/{name}")
                assert queued is not None
                assert queued.info is info

        @invariant()
        def incomplete_without_a_root(self):
            """By the model's own way upwards."""
            incomplete = {queued.info.name for queued in self.harness.pod_groups.incomplete}
            assert incomplete == {
                name for name, info in self.waiting.items() if not self._has_root(info)
            }

        def _has_root(self, info):
            group = info.pod.spec.scheduling_group
            if group is None:
                return True
            by_name = {
                (isinstance(one, PodGroup), one.metadata.name): one for one in self.groups.values()
            }
            one, steps = by_name.get((True, group.pod_group_name)), 0
            while one is not None and steps < 5:
                parent = one.spec.parent_composite_pod_group_name
                if parent is None:
                    return True
                one, steps = by_name.get((False, parent)), steps + 1
            return False

        @invariant()
        def gated_as_a_whole(self):
            """A group waits for an event only while one of its pods is, or was, gated."""
            for queued in self.queue.unschedulable_pods():
                assert queued.pod.spec.scheduling_group is None

        @invariant()
        def counted_by_plugin(self):
            """The gauge counts a pod for each of its rejectors, whatever happened to its group."""
            expected: dict[str, int] = {}
            for name in self.waiting:
                for plugin in self.queue.get(f"default/{name}").rejectors:
                    expected[plugin] = expected.get(plugin, 0) + 1
            assert self.harness.per_plugin() == expected

    run_state_machine_as_test(
        Life, settings=settings(max_examples=100, stateful_step_count=40, deadline=None)
    )
