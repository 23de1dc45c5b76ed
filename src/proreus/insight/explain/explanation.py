"""Contents of explanations, as values that JSON and YAML can hold.

Times are seconds since the epoch (``documents`` writes them as RFC 3339), ages and durations
seconds. Names of pods are ``namespace/name``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

from proreus.insight.decisions.outcomes import ExtenderAnswer

PodState = Literal["unknown", "notOurs", "deleted", "waiting", "inFlight", "binding", "bound"]


class _Part(msgspec.Struct, rename="camel", omit_defaults=True, kw_only=True):
    """A part of an explanation; fields with their default value are left out of JSON."""


class RejectedNodes(_Part):
    """Nodes that a plugin rejected for the same reasons. ``names``: some of them, by row."""

    plugin: str
    code: str
    reasons: tuple[str, ...]
    count: int
    names: tuple[str, ...] = ()


class PluginScore(_Part):
    """One plugin's score of a node. ``weighted`` is ``normalized`` times ``weight``.

    Of an HTTP extender, ``plugin`` is the URL, and all are what it adds to the total.
    """

    plugin: str
    weight: int
    normalized: int
    weighted: int
    raw: int | None = None


class ScoredNode(_Part):
    """A feasible node with its total and the score of each plugin."""

    name: str
    total: int
    plugins: tuple[PluginScore, ...] = ()


class LeftOut(_Part):
    """The best nodes if a plugin had not scored: ``decided``, the chosen one was not among them."""

    plugin: str
    decided: bool
    best: tuple[str, ...]
    count: int


class NodeChoice(_Part):
    """Why a pod got its node. ``margin``: to the best of the nodes with a lower total.

    ``tied``: how many nodes had the highest total, of which one was drawn at random. ``nodes``: the
    chosen one, then others by total. ``totals``: how many nodes have each total, highest first.
    """

    node: str
    feasible: int
    total: int | None = None
    margin: int | None = None
    tied: int = 1
    nodes: tuple[ScoredNode, ...] = ()
    totals: tuple[tuple[int, int], ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    extenders: tuple[str, ...] = ()


class VictimState(_Part):
    """A pod that is evicted for another one."""

    pod: str
    priority: int
    reason: str
    state: Literal["running", "terminating", "gone"]


class PermitHold(_Part):
    """A hold by a Permit plugin, from ``since`` on and at most until ``until``.

    ``ended_at``: when it was allowed or rejected; None: it waits. ``allowed``: by this plugin,
    while others still hold the pod.
    """

    plugin: str
    since: float
    until: float
    ended_at: float | None = None
    allowed: bool = False


class AttemptExplanation(_Part):
    """The results of one attempt. ``count`` is the number of successive attempts that failed alike.

    ``configuration``: which configuration of the process decided, counted from 1. ``failed_point``:
    the extension point that failed after a node was chosen. ``bound_at``: when it was bound.
    """

    at: float
    seconds: float
    profile: str
    configuration: int
    nodes: int
    rejected: tuple[RejectedNodes, ...] = ()
    placement: NodeChoice | None = None
    status: str = ""
    message: str = ""
    plugins: tuple[str, ...] = ()
    pending_plugins: tuple[str, ...] = ()
    nominated_node: str = ""
    victims: tuple[VictimState, ...] = ()
    pdb_violations: int = 0
    count: int = 1
    first_at: float = 0.0
    failed_point: str = ""
    bound_at: float | None = None
    permit: tuple[PermitHold, ...] = ()
    extenders: tuple[ExtenderAnswer, ...] = ()


class WakingEvent(_Part):
    """A cluster event for which a plugin has the pod tried again.

    ``hinted``: only if the plugin's queueing hint says that this very event helps.
    """

    plugin: str
    event: str
    hinted: bool


class BlockingPods(_Part):
    """Pods of a group that find no node beside the others, for the same reasons. ``pods``: some of
    them.
    """

    pods: tuple[str, ...]
    count: int
    rejected: tuple[RejectedNodes, ...] = ()


class GroupState(_Part):
    """The group of a pod. ``lacking``: pods that have to be created first.

    ``missing``: the object that does not exist. ``scheduled``: pods with a node, assumed ones
    included. The rest is what the engine has answered now, None and empty where it was not asked:
    whether the group ``fits``; how many of its pods ``fit_together``, those with a node included;
    the pods that are ``blocking`` it; ``message``: why it does not fit, in the engine's words.
    """

    name: str
    exists: bool
    missing: str = ""
    min_count: int = 0
    pods: int = 0
    scheduled: int = 0
    lacking: int = 0
    fits: bool | None = None
    fit_together: int = 0
    blocking: tuple[BlockingPods, ...] = ()
    message: str = ""


class Waiting(_Part):
    """The place of a waiting pod. ``queue`` is active, backoff, unschedulable or gated.

    ``since``: when it entered the queue. ``position``: 1 = next; 0 where there is no order.
    ``ahead``: the first of those before it. ``attempts``: so far. ``gated_because``: what the
    gating plugin says. A pod whose PodGroup does not exist is in the queue incomplete.
    """

    queue: str
    since: float
    attempts: int
    position: int = 0
    ahead: tuple[str, ...] = ()
    backoff_seconds: float = 0.0
    gating_plugin: str = ""
    scheduling_gates: tuple[str, ...] = ()
    rejected_by: tuple[str, ...] = ()
    events: tuple[WakingEvent, ...] = ()
    retried_without_event_at: float | None = None
    gated_because: str = ""


class PodChange(_Part):
    """One change of a pod, of a node, or of the pods on it. ``field`` names it as in the object's
    YAML.

    ``minimal``: the engine was asked about the next smaller change too, which does not suffice.
    """

    field: str
    text: str
    before: str = ""
    after: str = ""
    minimal: bool = False


class HelpfulChanges(_Part):
    """Changes of the pod, or of the node, with which it fits there; asked with all of them.

    ``pods``: how many pods of a group have to change alike, so that it fits as a whole; then
    ``node`` is "".
    """

    node: str
    changes: tuple[PodChange, ...]
    pods: int = 0


def by_changes(helped: Iterable[HelpfulChanges]) -> list[tuple[str, str]]:
    """Return the changes as text, each once, after the names of the nodes."""
    names: dict[str, list[str]] = {}
    for one in helped:
        text = "; ".join(change.text for change in one.changes)
        names.setdefault(text, []).append(one.node or f"each of {one.pods} pods")
    return [(", ".join(nodes), text) for text, nodes in names.items()]


class WhatWouldHelp(_Part):
    """Changes with which a waiting pod, or its group as a whole (``of_group``), would fit now.

    ``group_fits``: the group fits as it is, and only has to be tried again.

    ``new_node_like``: a node like this one, with only its DaemonSet pods on it, would take the pod
    as it is; "" if none. ``fits_now``: nodes that would take it as it is, so that it only has to be
    tried again. ``error``: what a plugin raised when it was asked. ``incomplete``: there was no
    time to ask everything. ``changed_nodes``: changes of nodes instead, with which they would take
    the pod as it is. ``changed_group``: changes of the group. ``new_nodes``: how many nodes like
    ``new_node_like`` the pods of the group need that found none, by their requests.
    """

    of_group: bool = False
    group_fits: bool = False
    nodes: tuple[HelpfulChanges, ...] = ()
    changed_nodes: tuple[HelpfulChanges, ...] = ()
    changed_group: tuple[PodChange, ...] = ()
    new_node_like: str = ""
    new_nodes: int = 0
    fits_now: int = 0
    tried_nodes: int = 0
    incomplete: bool = False
    error: str = ""


class PodExplanation(_Part):
    """Everything about one pod. ``summary``: in a few words. ``permit``: who holds it now.

    ``group``: with which it is scheduled; None: with none.
    """

    pod: str
    state: PodState
    summary: str
    uid: str = ""
    scheduler_name: str = ""
    node: str = ""
    binding_point: str = ""
    binding_plugins: tuple[str, ...] = ()
    permit: tuple[PermitHold, ...] = ()
    group: GroupState | None = None
    waiting: Waiting | None = None
    attempt: AttemptExplanation | None = None
    help: WhatWouldHelp | None = None
    earlier_attempts: int = 0
    kind: Literal["PodExplanation"] = "PodExplanation"

    @property
    def is_unknown(self) -> bool:
        """Whether there is no pod of this name, and no record of one."""
        return self.state == "unknown" and not self.uid


class NodeResource(_Part):
    """Amounts of one resource: milli-CPU, bytes or counts."""

    name: str
    allocatable: int
    requested: int
    nominated: int
    free: int


class NodeRejection(_Part):
    """Waiting pods that a node rejected in their last attempt, for the same reasons."""

    plugin: str
    reasons: tuple[str, ...]
    count: int
    pods: tuple[str, ...] = ()


class NodeExplanation(_Part):
    """The pods on a node, and the pods that it rejects. ``assumed`` are pods not bound there
    yet.
    """

    node: str
    known: bool
    summary: str
    unschedulable: bool = False
    taints: tuple[str, ...] = ()
    pods: int = 0
    allowed_pods: int = 0
    resources: tuple[NodeResource, ...] = ()
    assumed: tuple[str, ...] = ()
    nominated: tuple[str, ...] = ()
    largest_pods: tuple[str, ...] = ()
    rejects: tuple[NodeRejection, ...] = ()
    kind: Literal["NodeExplanation"] = "NodeExplanation"


class QueueReason(_Part):
    """Waiting pods that the same plugins rejected, or the words for another reason."""

    plugins: tuple[str, ...]
    count: int
    oldest: str
    oldest_since: float


class WaitingPod(_Part):
    """A pod of the queue in a list."""

    pod: str
    queue: str
    since: float
    attempts: int
    rejected_by: tuple[str, ...] = ()


class WaitingGroup(_Part):
    """A group with pods in the queue. ``message``: why its last attempt failed."""

    group: GroupState
    since: float
    waiting: int
    message: str = ""


class QueueExplanation(_Part):
    """The whole queue. ``oldest`` are the longest waiting pods and groups.

    ``starving``: pods whose attempts have failed while others with no higher priority were bound.
    """

    summary: str
    counts: dict[str, int]
    in_flight: int
    next: tuple[str, ...] = ()
    reasons: tuple[QueueReason, ...] = ()
    oldest: tuple[WaitingPod, ...] = ()
    starving: tuple[WaitingPod, ...] = ()
    groups: tuple[WaitingGroup, ...] = ()
    records: int = 0
    record_bytes: int = 0
    kind: Literal["QueueExplanation"] = "QueueExplanation"


Explanation = PodExplanation | NodeExplanation | QueueExplanation
