"""Changes with which a whole group would fit, each verified by trying the group with them.

    help_for_group ─► GroupTrial.run   does it fit as it is? which pods find no node?
                   ─► _of_pods         less requested, or another constraint dropped, by all alike
                   ─► _of_group        fewer pods needed together
                   ─► _of_nodes        more room on one node, a taint less, a label more
                   ─► _new_nodes       how many nodes like one would take the pods that are left

Example: 24 pods of 4 CPUs are needed together, and 20 fit on 5 nodes of 16. "Each of 24 pods:
request 1 less cpu: 3 instead of 4": 5 fit on each node then. On one node: "add 16 allocatable cpu".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from msgspec import structs

from proreus.base.errors import PluginError
from proreus.engine.groups.orders import kind_of
from proreus.engine.groups.results import PodResult
from proreus.framework.pod_info import PodInfo, QueuedPodInfo
from proreus.framework.verdicts import IntArray
from proreus.insight.explain.engine import Engine
from proreus.insight.explain.explanation import (
    GroupState,
    HelpfulChanges,
    PodChange,
    WhatWouldHelp,
)
from proreus.insight.explain.group_trial import GroupTrial, NoTime, TrialOutcome, with_outcome
from proreus.insight.explain.groups import PodsOfGroup
from proreus.insight.explain.node_changes import with_more
from proreus.insight.explain.node_what_if import look_for_node_help
from proreus.insight.explain.pod_changes import changed, lower_request
from proreus.insight.explain.what_if import Verified, is_of_daemon_set, look_for_help
from proreus.objects.node import Node

LIMIT_SECONDS = 0.3
"""For all questions about one group: nothing is scheduled meanwhile."""
_NODES = 3
_PODS = "spec.containers[*].resources.requests."


@dataclass(frozen=True)
class _Blocked:
    """A group that does not fit. ``blocker``: the first pod without a node; ``alike``: its kind."""

    trial: GroupTrial
    engine: Engine
    group: PodsOfGroup
    outcome: TrialOutcome
    blocker: QueuedPodInfo
    alike: Sequence[QueuedPodInfo]

    @property
    def lacking(self) -> int:
        """How many pods need a node beside those that found one; at least 1."""
        found = self.group.scheduled + len(self.outcome.placed)
        return max(1, self.group.min_count - found)

    def holds(self, *, others_only: bool = False) -> Sequence[PodResult]:
        """Return the pods that found a node, without those alike if ``others_only``."""
        alike = {one.uid for one in self.alike}
        placed = self.outcome.placed
        return [one for one in placed if not (others_only and one.queued.uid in alike)]


def help_for_group(
    trial: GroupTrial, engine: Engine, group: PodsOfGroup
) -> tuple[GroupState, WhatWouldHelp]:
    """Return whether a group fits and which of its pods block it; and what would help it."""
    help_ = WhatWouldHelp(of_group=True)
    try:
        outcome = trial.run()
    except NoTime:
        return group.state, WhatWouldHelp(of_group=True, incomplete=True)
    except PluginError as error:
        return group.state, WhatWouldHelp(of_group=True, error=str(error))
    state = with_outcome(group, outcome)
    help_.group_fits = outcome.fits
    if outcome.fits or not outcome.rejected:
        return state, help_
    blocker = outcome.rejected[0].queued
    kind = kind_of(blocker)
    alike = [one for pods in group.pods.values() for one in pods if kind_of(one) == kind]
    blocked = _Blocked(trial, engine, group, outcome, blocker, alike)
    try:
        help_.changed_group = tuple(_of_group(blocked))
        help_.nodes = tuple(_of_pods(blocked))
        help_.changed_nodes = tuple(_of_nodes(blocked))
        help_.new_node_like, help_.new_nodes = _new_nodes(blocked)
    except NoTime:
        help_.incomplete = True
    except PluginError as error:
        help_.error = str(error)
    return state, help_


# ---- the group and its pods --------------------------------------------------------------------


def _of_group(blocked: _Blocked) -> Iterator[PodChange]:
    """Yield the minimum that fits already."""
    needed = blocked.group.min_count
    fit = needed - blocked.lacking
    root = blocked.group.root
    if root is not None and not root.is_composite and blocked.group.scheduled < fit < needed:
        yield PodChange(
            field="minimum of the group",
            before=str(needed),
            after=str(fit),
            text=f"need {fit} pods together instead of {needed}",
            minimal=True,
        )


def _of_pods(blocked: _Blocked) -> Iterator[HelpfulChanges]:
    """Yield changes of all pods that are alike, with which the group fits."""
    engine, pod = blocked.engine, blocked.blocker.info
    with blocked.trial.holding(blocked.holds()):
        found, _, _ = look_for_help(engine, pod)
    seen: set[tuple[str, ...]] = set()
    for one in found:
        changes = None if one.without else _of_all_alike(blocked, one)
        if changes is None or (texts := tuple(change.text for change in changes)) in seen:
            continue
        seen.add(texts)
        yield HelpfulChanges(node="", changes=changes, pods=len(blocked.alike))


def _of_all_alike(blocked: _Blocked, one: Verified) -> tuple[PodChange, ...] | None:
    """Return what helped one pod as a change of all pods that are alike; None if it is not enough.

    A request need not be lowered as far as for one pod beside the others.
    """
    lowered = [change.field.removeprefix(_PODS) for change in one.changes if _is_request(change)]
    changes = [change for change in one.changes if not _is_request(change)]
    found = {queued.uid: _like(queued.info, blocked.blocker.info, one) for queued in blocked.alike}
    members = {uid: pod for uid, pod in found.items() if pod is not None}
    if len(members) < len(found):
        return None
    for resource in lowered:
        before = members
        amount = _largest_request(blocked, next(iter(members.values())), resource)
        if not amount or (lower := _lowered(members, resource, amount)) is None:
            return None
        members, change = lower
        changes.append(change)
    if not blocked.trial.run(members).fits:
        return None
    if len(lowered) == 1:
        changes[-1] = _least_lowered(blocked, before, lowered[0], amount)
    return tuple(changes)


_Lowered = tuple[dict[str, PodInfo], PodChange]


def _lowered(members: Mapping[str, PodInfo], resource: str, amount: int) -> _Lowered | None:
    """Return pods that request at most an amount, with the change; None if one cannot."""
    lower = {uid: lower_request(pod, resource, amount) for uid, pod in members.items()}
    proposals = {uid: one for uid, one in lower.items() if one is not None}
    if len(proposals) < len(members):
        return None
    change = next(iter(proposals.values())).change
    return {uid: one.pod for uid, one in proposals.items()}, change


def _least_lowered(
    blocked: _Blocked, members: Mapping[str, PodInfo], resource: str, amount: int
) -> PodChange:
    """Return the change to the highest request with which the group fits, from one that does."""

    def fits(higher: int) -> bool:
        found = _lowered(members, resource, higher)
        return found is not None and blocked.trial.run(found[0]).fits

    low, high = amount, next(iter(members.values())).requests.amounts[resource]
    # The amount by the free room is nearly always the answer: one trial shows it.
    middle = low + 1
    while high - low > 1 and not blocked.engine.out_of_time:
        if fits(middle):
            low = middle
        else:
            high = middle
        middle = (low + high) // 2
    best = _lowered(members, resource, low)
    assert best is not None
    return structs.replace(best[1], minimal=high - low <= 1)


def _is_request(change: PodChange) -> bool:
    return change.field.startswith(_PODS)


def _like(pod: PodInfo, blocker: PodInfo, one: Verified) -> PodInfo | None:
    """Return a pod with the changes that helped the blocker, requests apart.

    None if the changed fields were not the same in both: claims may be each pod's own.
    """
    before, after, own = blocker.pod.spec, one.pod.pod.spec, pod.pod.spec
    fields = [
        name
        for name in after.__struct_fields__
        if name not in ("containers", "init_containers", "resources")
        and getattr(before, name) != getattr(after, name)
    ]
    if any(getattr(own, name) != getattr(before, name) for name in fields):
        return None
    if any(change.field.startswith("spec.containers[*].ports") for change in one.changes):
        return None
    return changed(pod, **{name: getattr(after, name) for name in fields})


def _largest_request(blocked: _Blocked, pod: PodInfo, resource: str) -> int:
    """Return the largest request with which enough pods that are alike have room; 0 if none."""
    engine, table = blocked.engine, blocked.engine.table
    without = lower_request(pod, resource, 0)
    if without is None:
        return 0
    placed = {one.queued.uid for one in blocked.outcome.placed}
    needed = sum(one.uid in placed for one in blocked.alike) + blocked.lacking
    with blocked.trial.holding(blocked.holds(others_only=True)):
        _, found = engine.rejections(without.pod)
        rows = engine.fitting_rows(found)
        free = (table.allocatable[resource] - table.requested[resource])[rows]
        places = (table.allowed_pods - table.pod_count)[rows]
        for other, amount in pod.requests.amounts.items():
            if other != resource and amount:
                room = (table.allocatable[other] - table.requested[other])[rows]
                places = np.minimum(places, room // amount)
    low, high = 0, pod.requests.amounts[resource]
    while high - low > 1:
        middle = (low + high) // 2
        if _places(free, places, middle) >= needed:
            low = middle
        else:
            high = middle
    return low


def _places(free: IntArray, places: IntArray, amount: int) -> int:
    return int(np.minimum(np.maximum(free, 0) // amount, np.maximum(places, 0)).sum())


# ---- nodes -------------------------------------------------------------------------------------


def _of_nodes(blocked: _Blocked) -> Iterator[HelpfulChanges]:
    """Yield changes of one node, with which the group fits as it is."""
    engine, pod = blocked.engine, blocked.blocker.info
    with blocked.trial.holding(blocked.holds()):
        found = [
            (one.row, *_roomier(blocked, pod, one.row, one.node, one.changes))
            for one in look_for_node_help(engine, pod, _NODES)
        ]
    for row, node, changes in found:
        with engine.changed_to(row, node):
            fits = blocked.trial.run().fits
        if fits:
            yield HelpfulChanges(node=engine.table[row].name, changes=changes)


def _roomier(
    blocked: _Blocked, pod: PodInfo, row: int, node: Node, changes: Sequence[PodChange]
) -> tuple[Node, tuple[PodChange, ...]]:
    """Return a node with room for all pods that lack one, where it has room for one of them."""
    info, lacking = blocked.engine.table[row], blocked.lacking
    needs = {"pods": (info.allowed_pod_number, len(info.pods) + lacking)}
    for resource, amount in pod.requests.amounts.items():
        if amount:
            needed = info.requested[resource] + lacking * amount
            needs[resource] = (info.allocatable[resource], needed)
    kept = [change for change in changes if not change.field.startswith("status.allocatable.")]
    for resource, (before, needed) in needs.items():
        if needed > before:
            more = with_more(node, resource, before, needed)
            node = more.node
            kept.append(more.change)
    return node, tuple(kept)


def _new_nodes(blocked: _Blocked) -> tuple[str, int]:
    """Return a node, and how many more like it, with DaemonSet pods only, take what is left."""
    engine, pod = blocked.engine, blocked.blocker.info
    with blocked.trial.holding(blocked.holds()):
        _, row, _ = look_for_help(engine, pod)
    if row is None:
        return "", 0
    info = engine.table[row]
    kept = [other for other in info.pods.values() if is_of_daemon_set(other)]
    each = info.allowed_pod_number - len(kept)
    for resource, amount in pod.requests.amounts.items():
        if amount:
            used = sum(other.requests.amounts.get(resource, 0) for other in kept)
            each = min(each, (info.allocatable[resource] - used) // amount)
    return (info.name, -(-blocked.lacking // each)) if each > 0 else ("", 0)
