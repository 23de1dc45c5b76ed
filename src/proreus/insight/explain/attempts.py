"""The record of an attempt as an explanation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np

from proreus.engine.extenders.extender_chain import EXTENDER
from proreus.framework.status import Status
from proreus.framework.verdicts import IntArray
from proreus.insight.decisions.record import DecisionRecord, Victim
from proreus.insight.decisions.scores import ScoreTable
from proreus.insight.decisions.verdicts import VerdictColumn
from proreus.insight.explain.explanation import (
    AttemptExplanation,
    LeftOut,
    NodeChoice,
    PermitHold,
    PluginScore,
    RejectedNodes,
    ScoredNode,
    VictimState,
)
from proreus.objects.pod import Pod

NAMES_SHOWN = 10


def explain_attempt(
    record: DecisionRecord, pods: Mapping[str, Pod], *, names: int = NAMES_SHOWN, nodes: int = 20
) -> AttemptExplanation:
    """Return the results of an attempt.

    ``pods``: all pods as they are now, by key. ``names``: of how many nodes of each group of
    rejected ones; ``nodes``: of how many scored ones.
    """
    verdicts, scores = record.found()
    explanation = AttemptExplanation(
        at=record.at,
        seconds=record.seconds,
        profile=record.profile,
        configuration=record.configuration,
        nodes=len(record.names),
        rejected=_rejected(record, verdicts, names),
        count=record.count,
        first_at=record.first_at,
    )
    explanation.bound_at = record.bound_at
    explanation.permit = _permit(record)
    explanation.extenders = tuple(record.extender_answers)
    if record.node:
        explanation.placement = _placement(record, verdicts, scores, nodes)
    if (failure := record.failure) is not None:
        explanation.status = failure.status.code.label
        explanation.message = failure.message
        explanation.failed_point = failure.point
        explanation.plugins = tuple(failure.plugins)
        explanation.pending_plugins = tuple(failure.pending_plugins)
        explanation.nominated_node = failure.nominated_node
        explanation.victims = tuple(victim_state(victim, pods) for victim in failure.victims)
        explanation.pdb_violations = failure.pdb_violations
    return explanation


def _rejected(
    record: DecisionRecord, verdicts: VerdictColumn | None, names: int
) -> tuple[RejectedNodes, ...]:
    size = len(record.names)
    if verdicts is None:
        counts = record.failure.counts if record.failure is not None else None
        found = [_group(status, count, ()) for status, count in (counts or {}).items()]
    else:
        found = []
        for status, rows in verdicts.rejections(size):
            # An extender is no plugin, so its statuses have no name; nor has that of nodes which
            # PreFilter excluded.
            extended = record.extender_answers and status is not verdicts.absent_status
            some = record.names.of(rows[:names].tolist())
            found.append(_group(status, len(rows), some, EXTENDER if extended else ""))
    return tuple(sorted(found, key=lambda one: (-one.count, one.plugin, one.reasons)))


def _group(
    status: Status, count: int, names: list[str] | tuple[()], unnamed: str = ""
) -> RejectedNodes:
    """Return nodes with the same status. ``unnamed`` is the plugin of a status that names none."""
    return RejectedNodes(
        plugin=status.plugin or unnamed,
        code=status.code.label,
        reasons=status.reasons,
        count=count,
        names=tuple(names),
    )


def _permit(record: DecisionRecord) -> tuple[PermitHold, ...]:
    permit = record.permit
    if permit is None:
        return ()
    ended_at = None if permit.seconds is None else permit.since + permit.seconds
    return tuple(
        PermitHold(
            plugin=plugin, since=permit.since, until=permit.since + seconds, ended_at=ended_at
        )
        for plugin, seconds in permit.timeouts.items()
    )


def _placement(
    record: DecisionRecord, verdicts: VerdictColumn | None, scores: ScoreTable | None, nodes: int
) -> NodeChoice:
    extenders = tuple(record.extenders)
    if scores is None:
        return NodeChoice(node=record.node, feasible=1, extenders=extenders)
    names = record.names.of(scores.rows.tolist())
    chosen = names.index(record.node)
    order = [chosen, *(place for place in scores.order().tolist() if place != chosen)]
    counts = scores.counts()
    total = int(scores.totals[chosen])
    lower = [other for other in counts if other < total]
    return NodeChoice(
        node=record.node,
        feasible=len(scores.rows),
        total=total,
        margin=total - max(lower) if lower else None,
        tied=counts[total],
        nodes=tuple(_scored(scores, place, names[place]) for place in order[: nodes + 1]),
        totals=tuple(counts.items()),
        left_out=tuple(_left_out(scores, names, chosen, plugin) for plugin in scores.plugins),
        extenders=extenders,
    )


def _scored(scores: ScoreTable, place: int, name: str) -> ScoredNode:
    plugins = []
    for plugin, column in scores.plugins.items():
        raw, weighted = column.at(place)
        plugins.append(
            PluginScore(
                plugin=plugin,
                weight=column.weight,
                raw=raw,
                normalized=weighted // column.weight,
                weighted=weighted,
            )
        )
    return ScoredNode(name=name, total=int(scores.totals[place]), plugins=tuple(plugins))


def _left_out(scores: ScoreTable, names: list[str], chosen: int, plugin: str) -> LeftOut:
    """Return the nodes that would have been best without a plugin's score."""
    totals: IntArray = scores.totals - scores.plugins[plugin].weighted
    best = np.flatnonzero(totals == totals.max())
    return LeftOut(
        plugin=plugin,
        decided=chosen not in best,
        best=tuple(names[place] for place in best[:NAMES_SHOWN].tolist()),
        count=len(best),
    )


def victim_state(victim: Victim, pods: Mapping[str, Pod]) -> VictimState:
    """Return what has become of a victim."""
    live = pods.get(victim.pod)
    state: Literal["running", "terminating", "gone"] = "running"
    if live is None or live.metadata.uid != victim.uid:
        state = "gone"
    elif live.metadata.deletion_timestamp is not None:
        state = "terminating"
    reason = f"priority {victim.priority}, lower than the preemptor's"
    return VictimState(pod=victim.pod, priority=victim.priority, reason=reason, state=state)
