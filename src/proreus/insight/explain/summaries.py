"""The first lines of an explanation: what has become of a pod, and what is next, in a few words."""

from __future__ import annotations

from collections.abc import Iterable

from proreus.insight.explain.explanation import (
    BlockingPods,
    GroupState,
    PodExplanation,
    Waiting,
)


def bound_summary(explanation: PodExplanation) -> str:
    """Return why a pod is on its node."""
    node, attempt = explanation.node, explanation.attempt
    if attempt is None or attempt.placement is None:
        return f"Bound to {node}. The decision is not recorded any more."
    placement = attempt.placement
    if placement.node != node:
        return f"Bound to {node} by somebody else: {placement.node} was chosen here."
    if placement.total is None:
        return f"Bound to {node}, the only one of {attempt.nodes} nodes that fitted."
    text = f"Bound to {node}, the best of {placement.feasible} nodes that fitted"
    if placement.tied > 1:
        return f"{text}, one of {placement.tied} equals, drawn at random."
    return f"{text}." if placement.margin is None else f"{text}, by {placement.margin} points."


def waiting_summary(explanation: PodExplanation) -> str:
    """Return why a pod waits, and when it is tried again."""
    waiting, group = explanation.waiting, explanation.group
    assert waiting is not None
    if group is not None and group.missing:
        return f"Waiting. Its group {group.name} is not there: {group.missing} does not exist."
    if waiting.queue == "gated":
        return _gated(waiting, group)
    if waiting.queue == "active":
        return f"Waiting. It is number {waiting.position} of the active queue."
    if waiting.queue == "pending":
        return "Waiting. Its group is being tried at this moment."
    return f"Waiting. {_attempt(explanation)} {_next(waiting)}"


def _gated(waiting: Waiting, group: GroupState | None) -> str:
    if waiting.scheduling_gates:
        return f"Waiting for its scheduling gates: {', '.join(waiting.scheduling_gates)}."
    text = f"Waiting. {waiting.gating_plugin} gates it"
    if waiting.gated_because:
        text += f": {waiting.gated_because}"
    if group is not None and group.lacking:
        text += f". Its group {group.name} needs {group.min_count} pods, and {group.pods} exist"
    return f"{text}."


def _attempt(explanation: PodExplanation) -> str:
    """Return how the last attempt ended."""
    waiting, attempt, group = explanation.waiting, explanation.attempt, explanation.group
    assert waiting is not None
    if attempt is not None and attempt.nominated_node and attempt.victims:
        victims = len(attempt.victims)
        pods = "1 pod is" if victims == 1 else f"{victims} pods are"
        return f"Attempt {waiting.attempts}: {pods} evicted for it on {attempt.nominated_node}."
    if group is not None and group.min_count > 1 and group.scheduled < group.min_count:
        # The attempt is recorded; the group has been asked about anew, if it has.
        now = "" if group.fits is None else " failed. Now"
        return f"Attempt {waiting.attempts}{now}: {group_summary(group)}"
    number = f"Attempt {waiting.attempts}"
    if attempt is None:
        plugins = _and(waiting.rejected_by)
        return f"{number}: {plugins} rejected it." if plugins else f"{number} failed."
    if attempt.failed_point:
        ended = "failed" if attempt.status == "Error" else "rejected it"
        text = attempt.message.rstrip(".")
        return f"{number} chose a node, and {attempt.failed_point} {ended}: {text}."
    if waiting.rejected_by:
        nodes = f"all {attempt.nodes}" if attempt.nodes > 1 else "the only one"
        return f"{number} found no node: {_and(waiting.rejected_by)} rejected {nodes}."
    return f"{number} failed: {attempt.message.rstrip('.')}."


def group_summary(group: GroupState) -> str:
    """Return what a group needs, and which of its pods find no node, in a sentence or two."""
    needs = f"{group.min_count} pods of group {group.name} are needed together"
    if group.lacking:
        return f"{needs}, and {group.pods} exist."
    if group.fits is None and group.message:
        return f"{needs}. {group.message.rstrip('.')}."
    if group.fits is None:
        return f"{needs}, {group.scheduled} have a node."
    if group.fits:
        return f"{needs}. They fit now."
    if group.fit_together >= group.min_count:
        # The engine has rules beyond the number: placements, other groups of a tree.
        return f"{needs}. {group.message.rstrip('.')}."
    text = f"{needs}, {group.fit_together} fit."
    return f"{text} {blocking_summary(group.blocking)}" if group.blocking else text


def blocking_summary(blocking: Iterable[BlockingPods]) -> str:
    """Return which pods find no node beside the others, and why."""
    texts = []
    for one in blocking:
        more = f" and {one.count - 1} more" if one.count > 1 else ""
        reasons = [", ".join(rejected.reasons) for rejected in one.rejected]
        texts.append(f"{one.pods[0]}{more}: {'; '.join(dict.fromkeys(reasons))}")
    return f"No node for {'; '.join(texts)}."


def _next(waiting: Waiting) -> str:
    if waiting.queue == "backoff":
        return f"It is retried in {waiting.backoff_seconds:.0f} s."
    return "It is retried when something relevant changes (below)."


def _and(names: Iterable[str]) -> str:
    *first, last = [*names] or [""]
    return f"{', '.join(first)} and {last}" if first else last
