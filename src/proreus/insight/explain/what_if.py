"""The smallest changes that would make a waiting pod fit, each verified by asking the engine.

    help_for ─► nearest rows    the nodes that the fewest plugins reject, with the least missing
             ─► _help_on_node   plugin by plugin: propose, ask, until the pod fits
             ─► _needed         leave out changes that turn out not to be needed; ask again
             ─► _new_node       would a node like one of these, without its pods, take the pod?
             ─► node_what_if    changes of the nodes instead

Example: a pod of 4 CPUs; node a has 3 free and a taint, node b 1 free. Two plugins reject it on a
and one on b, so b comes first: "request 3 less
cpu". On a it is "request 1 less cpu" and the toleration.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from proreus.base.errors import PluginError
from proreus.framework.node_info import NodeInfo
from proreus.framework.pod_info import PodInfo
from proreus.framework.verdicts import Rows
from proreus.insight.explain.engine import Engine
from proreus.insight.explain.explanation import HelpfulChanges, PodChange, WhatWouldHelp
from proreus.insight.explain.nearest import nearest_rows
from proreus.insight.explain.node_what_if import VerifiedNode, look_for_node_help
from proreus.insight.explain.pod_changes import PROPOSALS, Proposal, lower_request

NODES = 3
"""For how many nodes changes are looked for."""
_STEPS = 8
_MAX_PODS_REMOVED = 8
_TEMPLATES = 4


@dataclass(frozen=True)
class Verified:
    """Changes that make a pod fit a row. ``pod``: with them; ``without``: pods that go from there.

    Whoever asks the engine about ``pod``, on the node without those pods, gets no rejection.
    """

    row: int
    pod: PodInfo
    changes: tuple[PodChange, ...]
    without: tuple[PodInfo, ...] = ()


def help_for(engine: Engine, pod: PodInfo, nodes: int = NODES) -> WhatWouldHelp:
    """Return changes with which a pod would fit now."""
    on_nodes: list[VerifiedNode] = []
    try:
        found, new_node, fitting = look_for_help(engine, pod, nodes)
        if not fitting:
            on_nodes = look_for_node_help(engine, pod, nodes)
    except PluginError as error:
        return WhatWouldHelp(error=str(error))
    names = engine.table
    return WhatWouldHelp(
        nodes=tuple(HelpfulChanges(node=names[one.row].name, changes=one.changes) for one in found),
        changed_nodes=tuple(
            HelpfulChanges(node=names[one.row].name, changes=one.changes) for one in on_nodes
        ),
        new_node_like="" if new_node is None else names[new_node].name,
        fits_now=fitting,
        tried_nodes=nodes,
        incomplete=engine.out_of_time,
    )


def look_for_help(
    engine: Engine, pod: PodInfo, nodes: int = NODES
) -> tuple[list[Verified], int | None, int]:
    """Return verified changes, the row of a node that a new one should be like, and how many fit.

    Raises ``PluginError``.
    """
    if not engine.table.size:
        return [], None, 0
    rejection, found = engine.rejections(pod)
    if rejection is None:
        fitting = engine.fitting_rows(found)
        # Nominated pods may keep it from some of them: those are asked one by one.
        fits = [row for row in fitting.tolist()[:64] if engine.rejection(pod, row) is None]
        if fits:
            return [], None, len(fitting)
        rows = nearest_rows(engine, pod, found, nodes, PROPOSALS)
    else:
        # PreFilter rejects the pod on every node, so any node shows the necessary change.
        rows = np.arange(min(nodes, engine.table.size))
    helped = [one for row in rows.tolist() if (one := _help_on_node(engine, pod, row)) is not None]
    helped.sort(key=lambda one: len(one.changes))
    return helped, _new_node(engine, pod, rows), 0


# ---- one node ----------------------------------------------------------------------------------


def _help_on_node(engine: Engine, pod: PodInfo, row: int) -> Verified | None:
    """Return changes with which a pod fits a node; None if none were found."""
    node = engine.table[row]
    proposals: list[Proposal] = []
    current = pod
    for _ in range(_STEPS):
        if engine.out_of_time:
            return None
        status = engine.rejection(current, row)
        if status is None:
            break
        proposal = _first_that_helps(engine, current, row, status.plugin)
        if proposal is None:
            return _without_pods(engine, current, row, proposals, node)
        proposals.append(proposal)
        current = proposal.pod
    else:
        return None
    return Verified(row, current, tuple(one.change for one in proposals))


def _first_that_helps(engine: Engine, pod: PodInfo, row: int, plugin: str) -> Proposal | None:
    """Return the smallest proposal after which this plugin does not reject the pod any more."""
    propose = PROPOSALS.get(plugin)
    if propose is None:
        return None
    last = None
    for proposal in propose(pod, engine.table[row]):
        last = proposal
        status = engine.rejection(proposal.pod, row)
        if status is None or status.plugin != plugin:
            if proposal.resource:
                return _least_lowered(engine, pod, row, proposal, plugin)
            return proposal
    if last is None:
        return None
    # One change is not enough (two resources are missing, say): the next step asks again.
    return last if plugin in _SEVERAL else None


_SEVERAL = frozenset({"NodeResourcesFit", "TaintToleration", "NodeAffinity"})
"""Plugins that may reject a pod for several reasons at once; each reason is a change."""


def _least_lowered(
    engine: Engine, pod: PodInfo, row: int, proposal: Proposal, plugin: str
) -> Proposal:
    """Return the proposal with the highest request that the engine accepts."""

    def accepted(amount: int) -> Proposal | None:
        lower = lower_request(pod, proposal.resource, amount)
        if lower is None:
            return None
        status = engine.rejection(lower.pod, row)
        return lower if status is None or status.plugin != plugin else None

    low, high, best = proposal.lower_to, pod.requests.amounts[proposal.resource], proposal
    # The free amount by the columns is nearly always the answer: one question shows it.
    if accepted(low + 1) is None:
        return best.as_minimal()
    while high - low > 1 and not engine.out_of_time:
        middle = (low + high) // 2
        if (found := accepted(middle)) is not None:
            low, best = middle, found
        else:
            high = middle
    return best if high - low > 1 else best.as_minimal()


def _without_pods(
    engine: Engine, pod: PodInfo, row: int, proposals: Sequence[Proposal], node: NodeInfo
) -> Verified | None:
    """Return how few pods less on the node would do."""
    gone: list[PodInfo] = []
    for other in _removable(node):
        gone.append(other)
        if engine.rejection_without(pod, row, gone) is None:
            needed = _needed(gone, lambda fewer: engine.rejection_without(pod, row, fewer) is None)
            text = "remove " + ", ".join(one.key for one in needed)
            change = PodChange(field="pods on the node", before=str(len(node.pods)), text=text)
            changes = (*(one.change for one in proposals), change)
            return Verified(row, pod, changes, tuple(needed))
        if len(gone) == _MAX_PODS_REMOVED or engine.out_of_time:
            break
    return None


def _removable(node: NodeInfo) -> Iterable[PodInfo]:
    """Return the pods of a node that could go, the least important first."""
    pods = [pod for pod in node.pods.values() if not is_of_daemon_set(pod)]
    return sorted(pods, key=lambda pod: (pod.priority, pod.key))


def _needed(pods: Sequence[PodInfo], enough: Callable[[Sequence[PodInfo]], bool]) -> list[PodInfo]:
    """Return the pods whose removal was needed."""
    needed = list(pods)
    for pod in pods:
        fewer = [one for one in needed if one is not pod]
        if fewer and enough(fewer):
            needed = fewer
    return needed


# ---- another node ------------------------------------------------------------------------------


def _new_node(engine: Engine, pod: PodInfo, nearest: Rows) -> int | None:
    """Return a row of a node that would take the pod if only its DaemonSet pods were on it."""
    table = engine.table
    shapes = np.stack(
        [
            table.taint_set,
            table.unschedulable,
            *(table.allocatable[resource] for resource in pod.requests.amounts),
        ],
        axis=1,
    )
    _, first = np.unique(shapes, axis=0, return_index=True)
    # The nearest first: nodes may differ in labels too, which are not among the shapes.
    rows: list[int] = [*nearest.tolist(), *first[::-1][:_TEMPLATES].tolist()]
    for row in rows:
        if engine.out_of_time:
            break
        gone = [other for other in table[row].pods.values() if not is_of_daemon_set(other)]
        if engine.rejection_without(pod, row, gone) is None:
            return row
    return None


def is_of_daemon_set(pod: PodInfo) -> bool:
    """Return whether a pod would be on every node of its kind: of a DaemonSet, or static."""
    return any(owner.kind in ("DaemonSet", "Node") for owner in pod.pod.metadata.owner_references)
