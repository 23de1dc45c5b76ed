"""Explanations as text and tables for people."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from datetime import UTC, datetime

from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from proreus.insight.decisions.outcomes import ExtenderAnswer
from proreus.insight.explain import NodeExplanation, PodExplanation, QueueExplanation
from proreus.insight.explain.explanation import (
    AttemptExplanation,
    LeftOut,
    NodeChoice,
    PluginScore,
    Waiting,
    WaitingPod,
    WhatWouldHelp,
)
from proreus.insight.explain.pod_changes import quantity

_NODES_SHOWN = 5
_EVENTS_SHOWN = 8


def tables_of(
    explanation: PodExplanation | NodeExplanation | QueueExplanation,
) -> Iterator[RenderableType]:
    """Yield the parts of an explanation, to be printed one after another."""
    if isinstance(explanation, PodExplanation):
        yield from _pod(explanation)
    elif isinstance(explanation, NodeExplanation):
        yield from _node(explanation)
    else:
        yield from _queue(explanation)


def _pod(explained: PodExplanation) -> Iterator[RenderableType]:
    yield _line(f"Pod {explained.pod}", explained.summary)
    if explained.binding_point:
        plugins = ", ".join(explained.binding_plugins)
        yield _line("Binding", f"{explained.binding_point} {plugins}".strip())
    for hold in explained.permit:
        if not hold.allowed:
            since, until = _time(hold.since), _time(hold.until)
            yield _line("Held by", f"{hold.plugin} since {since}, until {until} at most")
    if explained.waiting is not None:
        yield from _waiting(explained.waiting)
    if (attempt := explained.attempt) is not None:
        yield from _attempt(attempt)
    if explained.earlier_attempts:
        yield _line("Record", f"{explained.earlier_attempts} earlier attempts are recorded")
    if explained.help is not None:
        yield from _help(explained.help)


def _waiting(waiting: Waiting) -> Iterator[RenderableType]:
    text = f"{waiting.queue} since {_time(waiting.since)}, attempts: {waiting.attempts}"
    if waiting.position:
        text += f", number {waiting.position}"
    if waiting.backoff_seconds:
        text += f", back-off {waiting.backoff_seconds:.1f} s"
    yield _line("Queue", text)
    yield from _names("Ahead", waiting.ahead)
    yield from _names("Gates", waiting.scheduling_gates)
    if (group := waiting.group) is not None:
        text = f"{group.name}: {group.scheduled} of {group.pods} pods have a node"
        text += f", {group.min_count} are needed together" if group.min_count > 1 else ""
        if not group.exists:
            text += "; the PodGroup does not exist"
        elif group.lacking:
            text += f"; {group.lacking} pods are still to be created"
        yield _line("Group", text)
    if waiting.events:
        names = dict.fromkeys(event.event for event in waiting.events)
        more = len(names) - _EVENTS_SHOWN
        text = ", ".join(list(names)[:_EVENTS_SHOWN]) + (f" and {more} others" if more > 0 else "")
        yield _line("Woken by", text)
    if waiting.retried_without_event_at is not None:
        yield _line("At the latest", _time(waiting.retried_without_event_at))


def _attempt(attempt: AttemptExplanation) -> Iterator[RenderableType]:
    times = f", {attempt.count} alike since {_time(attempt.first_at)}" if attempt.count > 1 else ""
    text = f"{_time(attempt.at)}, {1000 * attempt.seconds:.1f} ms, profile {attempt.profile}{times}"
    yield _line("Attempt", text)
    if attempt.message:
        yield _line(
            " in ".join(filter(None, (attempt.status or "Failed", attempt.failed_point))),
            attempt.message,
        )
    if attempt.nominated_node:
        yield _line("Nominated", attempt.nominated_node)
    if attempt.victims:
        rows = ((one.pod, one.priority, one.reason, one.state) for one in attempt.victims)
        yield _table("Victims", "pod", "priority", "reason", "now", rows=rows)
        if attempt.pdb_violations:
            yield _line("PodDisruptionBudgets", f"{attempt.pdb_violations} of these violate one")
    if attempt.bound_at is not None:
        yield _line("Bound", _time(attempt.bound_at))
    for hold in attempt.permit:
        if hold.ended_at is not None:
            held = hold.ended_at - hold.since
            yield _line("Was held by", f"{hold.plugin}, the pod for {held:.1f} s")
    if attempt.extenders:
        yield _extenders(attempt.extenders)
    if attempt.placement is not None:
        yield from _placement(attempt.placement)
    if attempt.rejected:
        groups = (
            (one.plugin, ", ".join(one.reasons), one.count, _some(one.names, one.count))
            for one in attempt.rejected
        )
        title = f"Rejected of {attempt.nodes} nodes"
        yield _table(title, "plugin", "reason", "nodes", "such as", rows=groups)


def _extenders(replies: Iterable[ExtenderAnswer]) -> RenderableType:
    rows = ((reply.url, reply.verb, Text(_answer(reply))) for reply in replies)
    return _table("Extenders", "extender", "verb", "answer", rows=rows)


def _answer(reply: ExtenderAnswer) -> str:
    if reply.error:
        return f"error: {reply.error}"
    if reply.verb == "prioritize":
        return f"scored {reply.scored} nodes"
    return f"accepted {reply.accepted} nodes" + "".join(
        f"; rejected {one.count} ({_some(one.names, one.count)}): {one.message}"
        for one in reply.rejected
    )


def _placement(placement: NodeChoice) -> Iterator[RenderableType]:
    if placement.total is None:
        return
    shown = placement.nodes[: _NODES_SHOWN + 1]
    table = _table(f"Scores: nodes that fitted: {placement.feasible}", "plugin", "weight")
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
    yield from _names("Decided by", [one.plugin for one in placement.left_out if one.decided])
    totals = ", ".join(f"{total} ({count})" for total, count in placement.totals[:8])
    more = ", …" if len(placement.totals) > 8 else ""
    yield _line("Totals (nodes)", totals + more)


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
        yield _line("Changes", f"not known: {found.error}")
        return
    if found.fits_now:
        yield _line("Now", f"it fits {found.fits_now} nodes, and only has to be tried again")
        return
    for title, nodes in (
        ("Changes with which it would fit", found.nodes),
        ("Or changes of a node with which it would take the pod", found.changed_nodes),
    ):
        if nodes:
            rows = ((one.node, "; ".join(change.text for change in one.changes)) for one in nodes)
            yield _table(title, "node", "changes", rows=rows)
    if found.incomplete:
        yield _line("Changes", "there was no time to ask about all nodes")
    if found.new_node_like:
        text = f"a node like {found.new_node_like}, with its DaemonSet pods only, would take it"
        yield _line("New node", text if found.nodes else f"no change of the pod helps: {text}")
    elif not (found.nodes or found.changed_nodes or found.incomplete):
        yield _line("Changes", "no change was found that makes it fit")


def _node(explained: NodeExplanation) -> Iterator[RenderableType]:
    yield _line(f"Node {explained.node}", explained.summary)
    if not explained.known:
        return
    if explained.unschedulable:
        yield _line("Cordoned", "yes")
    yield from _names("Taints", explained.taints)
    table = _table("Resources", "resource")
    for title in ("allocatable", "requested", "free", "nominated"):
        table.add_column(title, justify="right")
    for one in explained.resources:
        amounts = (one.allocatable, one.requested, one.free, one.nominated)
        table.add_row(one.name, *(quantity(one.name, amount) for amount in amounts))
    table.add_row("pods", str(explained.allowed_pods), str(explained.pods), "", "")
    yield table
    yield from _names("Not bound yet", explained.assumed)
    yield from _names("Nominated", explained.nominated)
    yield from _names("Largest", explained.largest_pods)
    if explained.rejects:
        rows = (
            (one.plugin, ", ".join(one.reasons), one.count, ", ".join(one.pods))
            for one in explained.rejects
        )
        title = "Waiting pods that it rejected"
        yield _table(title, "plugin", "reason", "pods", "such as", rows=rows)


def _queue(explained: QueueExplanation) -> Iterator[RenderableType]:
    yield _line("Queue", explained.summary)
    counts = ", ".join(f"{count} {name}" for name, count in explained.counts.items())
    yield _line("Pods", f"{counts}, {explained.in_flight} in flight")
    yield from _names("Next", explained.next)
    if explained.reasons:
        rows = (
            (", ".join(one.plugins), one.count, one.oldest, _time(one.oldest_since))
            for one in explained.reasons
        )
        yield _table("Rejected by", "plugins", "pods", "oldest", "since", rows=rows)
    for title, pods in (("Oldest", explained.oldest), ("Starving", explained.starving)):
        if pods:
            yield _pods(title, pods)
    mebibytes = explained.record_bytes / 2**20
    yield _line("Record", f"{explained.records} attempts, {mebibytes:.1f} MiB")


def _pods(title: str, pods: Iterable[WaitingPod]) -> RenderableType:
    rows = (
        (one.pod, one.queue, _time(one.since), one.attempts, ", ".join(one.rejected_by))
        for one in pods
    )
    return _table(title, "pod", "queue", "since", "attempts", "rejected by", rows=rows)


def _table(title: str, *columns: str, rows: Iterable[Iterable[object]] = ()) -> Table:
    table = Table(
        *columns, title=Text(title), title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False
    )
    for row in rows:
        table.add_row(*(cell if isinstance(cell, Text) else str(cell) for cell in row))
    return table


def _names(title: str, names: Collection[str]) -> Iterator[Text]:
    if names:
        yield _line(title, ", ".join(names))


def _some(names: Collection[str], count: int) -> str:
    return ", ".join(names) + (", …" if count > len(names) else "")


def _line(name: str, text: str) -> Text:
    return Text.assemble((f"{name}: ", "bold"), text)


def _time(instant: float) -> str:
    return datetime.fromtimestamp(instant, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
