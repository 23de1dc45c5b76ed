"""Explanations of nodes, groups and the queue as text and tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rich.console import RenderableType

from proreus.insight.explain import NodeExplanation, QueueExplanation
from proreus.insight.explain.explanation import GroupState, WaitingGroup, WaitingPod
from proreus.insight.explain.pod_changes import quantity
from proreus.process.cli.explain.layout import as_utc, line, names_line, new_table, some


def node_tables(explained: NodeExplanation) -> Iterator[RenderableType]:
    """Yield the parts of a node's explanation."""
    yield line(f"Node {explained.node}", explained.summary)
    if not explained.known:
        return
    if explained.unschedulable:
        yield line("Cordoned", "yes")
    yield from names_line("Taints", explained.taints)
    table = new_table("Resources", "resource")
    for title in ("allocatable", "requested", "free", "nominated"):
        table.add_column(title, justify="right")
    for one in explained.resources:
        amounts = (one.allocatable, one.requested, one.free, one.nominated)
        table.add_row(one.name, *(quantity(one.name, amount) for amount in amounts))
    table.add_row("pods", str(explained.allowed_pods), str(explained.pods), "", "")
    yield table
    yield from names_line("Not bound yet", explained.assumed)
    yield from names_line("Nominated pods", explained.nominated)
    yield from names_line("Largest pods", explained.largest_pods)
    if explained.rejects:
        rows = (
            (one.plugin, ", ".join(one.reasons), one.count, ", ".join(one.pods))
            for one in explained.rejects
        )
        title = "Waiting pods that it rejected"
        yield new_table(title, "plugin", "reason", "pods", "such as", rows=rows)


def queue_tables(explained: QueueExplanation) -> Iterator[RenderableType]:
    """Yield the parts of the queue's explanation."""
    yield line("Queue", explained.summary)
    counts = ", ".join(f"{count} {name}" for name, count in explained.counts.items())
    yield line("Pods", f"{counts}, {explained.in_flight} in flight")
    yield from names_line("Next", explained.next)
    if explained.reasons:
        rows = (
            (", ".join(one.plugins), one.count, one.oldest, as_utc(one.oldest_since))
            for one in explained.reasons
        )
        yield new_table("Why they wait", "plugins", "pods", "oldest", "since", rows=rows)
    if explained.groups:
        yield _groups(explained.groups)
    for title, pods in (("Oldest", explained.oldest), ("Starving", explained.starving)):
        if pods:
            yield _pods(title, pods)
    mebibytes = explained.record_bytes / 2**20
    yield line("Record", f"{explained.records} attempts, {mebibytes:.1f} MiB")


def _pods(title: str, pods: Iterable[WaitingPod]) -> RenderableType:
    rows = (
        (one.pod, one.queue, as_utc(one.since), one.attempts, ", ".join(one.rejected_by))
        for one in pods
    )
    return new_table(title, "pod", "queue", "since", "attempts", "rejected by", rows=rows)


def _groups(groups: Iterable[WaitingGroup]) -> RenderableType:
    rows = (
        (one.group.name, one.waiting, as_utc(one.since), group_facts(one.group), one.message)
        for one in groups
    )
    return new_table("Groups", "group", "waiting", "since", "needs", "last attempt", rows=rows)


def group_tables(group: GroupState) -> Iterator[RenderableType]:
    """Yield what a group needs and has, and which of its pods have no node."""
    yield line("Group", group_facts(group))
    if group.blocking:
        rows = (
            (
                some(one.pods, one.count),
                rejected.plugin,
                ", ".join(rejected.reasons),
                rejected.count or "",
            )
            for one in group.blocking
            for rejected in one.rejected
        )
        yield new_table("Pods without a node now", "pods", "plugin", "reason", "nodes", rows=rows)


def group_facts(group: GroupState) -> str:
    """Return what a group needs and has."""
    if group.missing:
        return f"{group.name}: {group.missing} does not exist; pods that wait for it: {group.pods}"
    text = f"{group.name}: {group.pods} pods, {group.scheduled} of them with a node"
    text += f"; {group.min_count} are needed together" if group.min_count > 1 else ""
    return text + (f"; {group.lacking} have to be created first" if group.lacking else "")
