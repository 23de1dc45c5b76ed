"""The plugin: feasible nodes that the pod prefers, or a few opportunities let pass.

Worked example: the data of a pod are on ``a``, which is full, and ``b`` has room. The pod lets up
to 40 opportunities pass, 3 seconds at most. If a pod leaves ``a`` meanwhile, it goes there;
otherwise it waits as long for another node in the zone of ``a``, and then takes any.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from proreus.addons.delay_scheduling.args import DelaySchedulingArgs
from proreus.addons.delay_scheduling.sources import Preference, Preferences, source_of
from proreus.addons.delay_scheduling.waits import GroupWait, Waits
from proreus.addons.retries import Retries
from proreus.framework import (
    MAX_SCORE,
    POD_GROUP_SCHEDULING_CYCLE,
    BackgroundPlugin,
    BoolArray,
    ClusterEvent,
    Code,
    CycleState,
    FeasibleFilterPlugin,
    Handle,
    IntArray,
    NodeTable,
    PodInfo,
    PostBindPlugin,
    PreScorePlugin,
    ReservePlugin,
    Rows,
    ScorePlugin,
    Status,
    Verdicts,
    events,
    logger,
)
from proreus.objects import PODS, Node, Pod, controller_of, key_of

ANY = "any"
"""The level in metrics of pods that got a node without preferring it."""
_PREFERENCE, _LEVEL = "DelayScheduling/preference", "DelayScheduling/level"
"""Keys of the cycle state: the pod's preference, and the level of its node."""
_RESOURCE_FILTERS = frozenset({"NodeResourcesFit", "DynamicResources"})
"""Filters with rejections that may end once a pod has left the node."""

log = logger(__name__)


class DelayScheduling(
    FeasibleFilterPlugin,
    PreScorePlugin,
    ScorePlugin,
    ReservePlugin,
    PostBindPlugin,
    BackgroundPlugin,
):
    """Lets pods wait for the nodes that they prefer, level by level."""

    needs_points = {"score": "preScore"}

    Args = DelaySchedulingArgs
    args: DelaySchedulingArgs

    def __init__(self, args: DelaySchedulingArgs, handle: Handle) -> None:
        super().__init__(args, handle)
        self._levels = tuple(level.name for level in args.levels)
        self._preferences = Preferences(args, source_of(args.default_source, handle))
        self._waits = Waits(args, handle.clock.monotonic)
        self._offers = Retries(handle.clock.monotonic, handle.activate)
        handle.on_change(PODS, self._pod_changed)
        metrics = handle.metrics
        self._skips = metrics.counter(
            "proreus_delay_scheduling_skips_total",
            "ALPHA",
            "Scheduling opportunities that pods let pass, by the level that they waited for.",
            "level",
        )
        self._bound = metrics.counter(
            "proreus_delay_scheduling_bound_total",
            "ALPHA",
            "Bound pods that have a preference, by the tightest level that their node is in.",
            "level",
        )
        self._added_wait = metrics.histogram(
            "proreus_delay_scheduling_added_wait_seconds",
            "ALPHA",
            "From the first opportunity that a pod let pass to its binding.",
            (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0),
        )

    # ---- the choice ----------------------------------------------------------------------------

    def filter_feasible(
        self, state: CycleState, pod: PodInfo, feasible: Rows, verdicts: Verdicts
    ) -> None:
        """Keep the preferred nodes of the tightest level that has some, or let the pod wait."""
        nodes = self.handle.nodes
        preference = self._preferences.of(pod, nodes)
        if preference is None:
            return
        group, exempt = self._waits.group_of(pod.pod), self._is_exempt(state, pod.pod)
        state.write(_PREFERENCE, preference)
        state.write(self.name, preference[-1])
        for level, preferred in enumerate(preference):
            if (kept := preferred[feasible]).any():
                self._waits.reset(pod.pod)
                state.write(self.name, preferred)
                if not self.args.soft:
                    verdicts.reject(feasible[~kept], f"not in the preferred {self._levels[level]}")
                return
            if exempt or level < group.level:
                continue
            if self._waits.may_wait(group) and self._may_free(preferred, verdicts):
                self._wait(pod.pod, group, feasible, verdicts)
                return
            group.enter(level + 1)

    def _is_exempt(self, state: CycleState, pod: Pod) -> bool:
        """Return whether a pod must not be delayed: it would be in vain, or others would suffer."""
        created = pod.metadata.creation_timestamp
        age = 0.0 if created is None else self.handle.clock.now() - created.timestamp()
        if (waiting := self._waits.pod_wait(pod)) is not None:
            age = max(age, self.handle.clock.monotonic() - waiting.first_seen)
        owner = controller_of(pod.metadata)
        return (
            age >= self.args.max_total_seconds
            or (pod.spec.priority or 0) >= self.args.exempt_priority
            or (owner is not None and owner.kind == "DaemonSet")
            # All members of a gang would have to wait for one.
            or state.get(POD_GROUP_SCHEDULING_CYCLE) is not None
        )

    def _may_free(self, preferred: BoolArray, verdicts: Verdicts) -> bool:
        """Return whether a preferred node lacks resources alone, which its pods have taken."""
        if not preferred.any():
            return False
        if not self.args.only_when_preferred_may_free:
            return True
        if verdicts.ids is None:
            return False
        by_status = [
            status is not None
            and status.plugin in _RESOURCE_FILTERS
            and status.code == Code.UNSCHEDULABLE
            for status in verdicts.statuses
        ]
        lacks_resources = np.array(by_status, dtype=np.bool_)[verdicts.ids]
        return bool((lacks_resources & preferred).any())

    def _wait(self, pod: Pod, group: GroupWait, feasible: Rows, verdicts: Verdicts) -> None:
        level = group.level
        retry_seconds = self._waits.skip(group, pod)
        self._skips.labels(self._levels[level]).inc()
        of = f"{group.skips}/{self.args.skips[level]}" if self.args.skips else f"{group.skips}"
        reason = f"waiting for locality ({self._levels[level]}, {of})"
        verdicts.reject(feasible, reason)
        self._offers.put(key_of(pod), self.handle.clock.monotonic() + retry_seconds)

    # ---- with ``soft``, a preference instead of a filter ---------------------------------------

    def pre_score(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> Status | None:
        """Skip pods without preference, and all where other nodes were filtered out."""
        return None if self.args.soft and state.get(self.name) is not None else Status.skip()

    def score_all(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> IntArray:
        """Score nodes by whether they are preferred."""
        preferred: BoolArray = state.read(self.name)
        if nodes is not self.handle.nodes:
            rows = self.handle.nodes.rows
            preferred = preferred[[rows[node.name] for node in nodes]]
        return np.multiply(preferred, MAX_SCORE, dtype=np.int64)

    # ---- the end of a wait ---------------------------------------------------------------------

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        """Note the tightest level that the chosen node is in."""
        # Not in PostBind: rows may be others by then, and the pod a sibling of itself.
        preference: Preference | None = state.get(_PREFERENCE)
        if preference is not None:
            row = self.handle.nodes.rows[node_name]
            levels = zip(self._levels, preference, strict=True)
            state.write(_LEVEL, next((name for name, at in levels if at[row]), ANY))
        return None

    def post_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        """Count the pod, and report how long it has waited."""
        waited = self._waits.remove(pod.pod)
        self._offers.forget(pod.key)
        level: str | None = state.get(_LEVEL)
        if level is None:
            return
        self._bound.labels(level).inc()
        if waited is None:
            return
        seconds = self.handle.clock.monotonic() - waited.first_seen
        self._added_wait.labels().observe(seconds)
        text = f"waited {waited.skips} opportunities ({seconds:.1f} s) for {node_name} ({level})"
        log.v(2).info("Pod waited for locality", pod=pod.key, message=text)
        self.handle.event_recorder.event(
            pod.pod, "Normal", "WaitedForLocality", "Scheduling", text, self.handle.profile_name
        )

    def _pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        """Forget pods that are gone; ``post_bind`` forgets those that are bound."""
        if old is not None and new is None:
            self._waits.remove(old)
            self._offers.forget(key_of(old))

    async def run_in_background(self) -> None:
        """Offer the next opportunity to pods that let one pass."""
        await self._offers.run()

    # ---- events that wake pods -----------------------------------------------------------------

    def events_to_register(self) -> Iterable[ClusterEvent]:
        """Register the events that may free a preferred node."""
        changes = events.ADD | events.UPDATE_NODE_ALLOCATABLE | events.UPDATE_NODE_TAINT
        return (
            ClusterEvent(events.ASSIGNED_POD, events.DELETE, self._frees_a_preferred_node),
            ClusterEvent(events.NODE, changes, self._is_preferred),
        )

    def _frees_a_preferred_node(self, pod: PodInfo, old: Pod, new: None) -> bool:
        return self._prefers(pod, old.spec.node_name)

    def _is_preferred(self, pod: PodInfo, old: Node | None, new: Node) -> bool:
        return self._prefers(pod, new.metadata.name)

    def _prefers(self, pod: PodInfo, node_name: str) -> bool:
        """Return whether a pod waits for a node, at its level or a tighter one."""
        nodes = self.handle.nodes
        preference: Preference | None = self._preferences.of(pod, nodes)
        row = nodes.rows.get(node_name)
        if preference is None or row is None:
            return False
        level = min(self._waits.group_of(pod.pod).level, len(preference) - 1)
        return bool(preference[level][row])
