"""Explanations as text and tables for people."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rich.console import RenderableType
from rich.text import Text

from proreus.insight.decisions.outcomes import ExtenderAnswer
from proreus.insight.explain import NodeExplanation, PodExplanation, QueueExplanation
from proreus.insight.explain.explanation import (
    AttemptExplanation,
    LeftOut,
    NodeChoice,
    PluginScore,
    Waiting,
    WhatWouldHelp,
    by_changes,
)
from proreus.process.cli.explain.layout import as_utc, line, names_line, new_table, some
from proreus.process.cli.explain.queue_tables import group_tables, node_tables, queue_tables

_NODES_SHOWN = 5
_EVENTS_SHOWN = 8


def tables_of(
    explanation: PodExplanation | NodeExplanation | QueueExplanation,
) -> Iterator[RenderableType]:
    """Yield the parts of an explanation, to be printed one after another."""
    if isinstance(explanation, PodExplanation):
        yield from _pod(explanation)
    elif isinstance(explanation, NodeExplanation):
        yield from node_tables(explanation)
    else:
        yield from queue_tables(explanation)


def _pod(explained: PodExplanation) -> Iterator[RenderableType]:
    yield line(f"Pod {explained.pod}", explained.summary)
    if explained.binding_point:
        plugins = ", ".join(explained.binding_plugins)
        yield line("Binding", f"{explained.binding_point} {plugins}".strip())
    for hold in explained.permit:
        if not hold.allowed:
            since, until = as_utc(hold.since), as_utc(hold.until)
            yield line("Held by", f"{hold.plugin} since {since}, until {until} at most")
    if explained.waiting is not None:
        yield from _waiting(explained.waiting)
    if explained.group is not None:
        yield from group_tables(explained.group)
    if (attempt := explained.attempt) is not None:
        yield from _attempt(attempt)
    if explained.earlier_attempts:
        yield line("Record", f"{explained.earlier_attempts} earlier attempts are recorded")
    if explained.help is not None:
        yield from _help(explained.help)


def _waiting(waiting: Waiting) -> Iterator[RenderableType]:
    text = f"{waiting.queue} since {as_utc(waiting.since)}, attempts: {waiting.attempts}"
    if waiting.position:
        text += f", number {waiting.position}"
    if waiting.backoff_seconds:
        text += f", back-off {waiting.backoff_seconds:.1f} s"
    yield line("Queue", text)
    yield from names_line("Ahead", waiting.ahead)
    yield from names_line("Gates", waiting.scheduling_gates)
    if waiting.events:
        names = dict.fromkeys(event.event for event in waiting.events)
        more = len(names) - _EVENTS_SHOWN
        text = ", ".join(list(names)[:_EVENTS_SHOWN]) + (f" and {more} others" if more > 0 else "")
        yield line("What triggers a retry", text)
    if waiting.retried_without_event_at is not None:
        yield line("Next retry at the latest", as_utc(waiting.retried_without_event_at))


def _attempt(attempt: AttemptExplanation) -> Iterator[RenderableType]:
    text = f"{as_utc(attempt.at)}, {1000 * attempt.seconds:.1f} ms, profile {attempt.profile}"
    if attempt.count > 1:
        text += f"; {attempt.count} in a row failed alike since {as_utc(attempt.first_at)}"
    yield line("Attempt", text)
    if attempt.message:
        yield line(
            " in ".join(filter(None, (attempt.status or "Failed", attempt.failed_point))),
            attempt.message,
        )
    if attempt.nominated_node:
        yield line("Nominated node", attempt.nominated_node)
    if attempt.victims:
        rows = ((one.pod, one.priority, one.reason, one.state) for one in attempt.victims)
        yield new_table("Victims", "pod", "priority", "reason", "now", rows=rows)
        if attempt.pdb_violations:
            yield line("PodDisruptionBudgets", f"{attempt.pdb_violations} of these violate one")
    if attempt.bound_at is not None:
        yield line("Bound", as_utc(attempt.bound_at))
    for hold in attempt.permit:
        if hold.ended_at is not None:
            held = hold.ended_at - hold.since
            yield line("Was held by", f"{hold.plugin}, for {held:.1f} s")
    if attempt.extenders:
        yield _extenders(attempt.extenders)
    if attempt.placement is not None:
        yield from _placement(attempt.placement)
    if attempt.rejected:
        groups = (
            (one.plugin, ", ".join(one.reasons), one.count, some(one.names, one.count))
            for one in attempt.rejected
        )
        title = f"Rejected nodes, of {attempt.nodes}"
        yield new_table(title, "plugin", "reason", "nodes", "such as", rows=groups)


def _extenders(replies: Iterable[ExtenderAnswer]) -> RenderableType:
    rows = ((reply.url, reply.verb, Text(_answer(reply))) for reply in replies)
    return new_table("Extenders", "extender", "verb", "answer", rows=rows)


def _answer(reply: ExtenderAnswer) -> str:
    if reply.error:
        return f"error: {reply.error}"
    if reply.verb == "prioritize":
        return f"scored {reply.scored} nodes"
    return f"accepted {reply.accepted} nodes" + "".join(
        f"; rejected {one.count} ({some(one.names, one.count)}): {one.message}"
        for one in reply.rejected
    )


def _placement(placement: NodeChoice) -> Iterator[RenderableType]:
    if placement.total is None:
        return
    shown = placement.nodes[: _NODES_SHOWN + 1]
    table = new_table(f"Scores: nodes that fitted: {placement.feasible}", "plugin", "weight")
    table.caption = "raw > normalized; what a plugin adds to the total is that times the weight"
    table.caption_justify = "left"
    for node in shown:
        table.add_column(node.name, justify="right", no_wrap=True)
    table.add_column("best without it")
    left_out = {one.plugin: one for one in placement.left_out}
    for row, plugin in enumerate(shown[0].plugins):
        cells = [_score(node.plugins[row]) for node in shown]
        without = _without(left_out.get(plugin.plugin))
        table.add_row(plugin.plugin, str(plugin.weight), *cells, without)
    table.add_row("total", "", *(f"[bold]{node.total}[/bold]" for node in shown), "")
    yield table
    yield from names_line("Decided by", [one.plugin for one in placement.left_out if one.decided])
    totals = ", ".join(f"{total} ({count})" for total, count in placement.totals[:8])
    more = ", …" if len(placement.totals) > 8 else ""
    yield line("Totals (nodes)", totals + more)


def _score(score: PluginScore) -> str:
    if score.raw is None or score.raw == score.normalized:
        return str(score.normalized)
    return f"{score.raw} > {score.normalized}"


def _without(other: LeftOut | None) -> str:
    if other is None:
        return ""
    if not other.decided:
        return "the same"
    return other.best[0] + (f" or {other.count - 1} more" if other.count > 1 else "")


def _help(found: WhatWouldHelp) -> Iterator[RenderableType]:
    if found.error:
        yield line("What would help", f"not known: {found.error}")
        return
    if found.fits_now or found.group_fits:
        nodes = f" {found.fits_now} nodes" if found.fits_now else ", with its whole group,"
        yield line("Now", f"it fits{nodes} and only has to be retried")
        return
    if found.nodes:
        title = "Change the pods:" if found.of_group else "Change the pod:"
        of = "pods" if found.of_group else "for node"
        yield new_table(title, of, "change", rows=by_changes(found.nodes))
    if found.changed_nodes:
        yield new_table("Change a node:", "node", "change", rows=by_changes(found.changed_nodes))
    for change in found.changed_group:
        yield line("Change the group", change.text)
    if found.incomplete:
        yield line("What would help", "there was no time to ask everything")
    if found.new_node_like:
        yield line("Add nodes" if found.new_nodes > 1 else "Add a node", _new_node(found))
    elif not (found.nodes or found.changed_nodes or found.changed_group or found.incomplete):
        yield line("What would help", "no change was found")


def _new_node(found: WhatWouldHelp) -> str:
    node = f"like {found.new_node_like}, with its DaemonSet pods only, would take"
    if not found.new_nodes:
        return f"one {node} the pod"
    return f"{found.new_nodes} {node} the pods that are left"
