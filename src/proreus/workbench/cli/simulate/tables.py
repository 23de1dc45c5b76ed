"""Results as tables for people. Long lists are cut; ``-o json`` has all of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator

from rich import box
from rich.markup import escape
from rich.table import Table

from proreus.workbench.simulation.capacity import PodCapacity
from proreus.workbench.simulation.comparison import ComparisonResult
from proreus.workbench.simulation.replay import ReplayResult
from proreus.workbench.simulation.results import (
    NodesRejected,
    ResourceUse,
    ScenarioResult,
    Timings,
    UnplacedPod,
    Utilisation,
    WorkloadSkew,
)

_MOST_ROWS = 20
_MOST_SKEWS = 10
_BYTES = frozenset({"memory", "ephemeral-storage"})

Printable = Table | str


def of_result(result: ScenarioResult) -> Iterator[Printable]:
    """Yield the tables of one scenario, the most important first."""
    yield _summary(result)
    if result.unplaced:
        yield _unplaced(result.unplaced)
    if result.victims:
        yield _victims(result)
    if result.placed:
        yield _placed(result)
    yield _utilisation(result.before, result.after)
    moved = [one for one in result.spread if one.before != one.after or _exceeds(one)]
    if moved:
        yield _spread(moved)


def of_comparison(
    comparison: ComparisonResult, timings: tuple[Timings, Timings] | None
) -> Printable:
    """Return the one table of a comparison."""
    table = _table("", *comparison.names, right=_BUT_FIRST)
    for figure in comparison.figures:
        table.add_row(
            figure.name, *(_figure(v, figure.unit) for v in (figure.first, figure.second))
        )
    table.add_row("pods on different nodes", "", f"{comparison.differently_placed:,}")
    if timings is not None:
        table.add_row("decision, mean", *(f"{one.decision_mean_ms:.2f} ms" for one in timings))
        table.add_row("decision, p99", *(f"{one.decision_p99_ms:.2f} ms" for one in timings))
    return table


def of_capacity(capacity: PodCapacity) -> Iterator[Printable]:
    """Yield the lines about one pod."""
    least = "" if capacity.exhausted else "at least "
    yield f"[bold]{least}{capacity.fits:,}[/] more pods like {escape(capacity.pod)} fit"
    if not capacity.exhausted:
        return
    table = _table("what runs out", "plugin", "nodes", right=[2])
    for one in capacity.limits:
        table.add_row(escape(one.reason), one.plugin, f"{one.nodes:,}")
    if capacity.limits:
        yield table
    else:
        yield escape(capacity.message)
    use = _table(
        "with all of them",
        "requested",
        "of the nodes",
        "useless part of the rest",
        right=_BUT_FIRST,
    )
    for name, one_use in _requested(capacity.after):
        use.add_row(
            name,
            _amount(name, one_use.requested),
            _share(one_use.share),
            _share(one_use.fragmentation),
        )
    yield use


def of_replays(names: list[str], results: list[ReplayResult]) -> Iterator[Printable]:
    """Yield the tables of replays of one recording, next to the recorded course."""
    first = results[0]
    table = _table("", "recorded", *names, right=_BUT_FIRST)

    def add(title: str, values: Iterable[str], recorded: str = "") -> None:
        table.add_row(title, recorded, *values)

    add("pods that arrived", (f"{one.arrivals:,}" for one in results))
    found = (f"{one.scheduled:,}" for one in results)
    add("pods that got a node", found, f"{first.recorded.pods:,}")
    add("… the recorded node", (f"{one.same_node:,}" for one in results))
    add("pods that departed", (f"{one.departures:,}" for one in results))
    add("pods preempted", (f"{len(one.result.victims):,}" for one in results))
    add("without a node at the end", (f"{len(one.result.unplaced):,}" for one in results))
    for field in ("mean", "p50", "p99", "most"):
        waited = [_figure(getattr(one.replayed, field), "") for one in results]
        recorded = _figure(getattr(first.recorded, field), "")
        add(f"seconds waited, {field}", waited, recorded)
    add("nodes without a pod, mean", (_figure(_mean_empty(one), "") for one in results))
    names_of = {name for one in results for sample in one.samples for name in sample.shares}
    for name in sorted(names_of):
        add(f"{name} requested, mean", (_share(_mean_share(one, name)) for one in results))
        add(f"{name} requested, peak", (_share(_peak_share(one, name)) for one in results))
    yield table
    for one, name in zip(results, names, strict=True):
        if one.result.unplaced:
            yield f"[bold]{escape(name)}[/]"
            yield _unplaced(one.result.unplaced)


def _mean_empty(one: ReplayResult) -> float:
    return sum(sample.empty_nodes for sample in one.samples) / max(len(one.samples), 1)


def _mean_share(one: ReplayResult, name: str) -> float:
    shares = [sample.shares.get(name, 0.0) for sample in one.samples]
    return sum(shares) / len(shares) if shares else 0.0


def _peak_share(one: ReplayResult, name: str) -> float:
    return max((sample.shares.get(name, 0.0) for sample in one.samples), default=0.0)


# ---- parts -------------------------------------------------------------------------------------


def _summary(result: ScenarioResult) -> str:
    parts = [f"[bold]{len(result.placed):,} of {result.arrivals:,}[/] pods placed"]
    if result.unplaced:
        parts.append(f"[bold red]{len(result.unplaced):,} without a node[/]")
    if any(one.previous_node for one in result.placed):
        parts.append(f"{result.moved:,} moved")
    for count, text in (
        (len(result.victims), "preempted"),
        (len(result.removed), "removed"),
        (len(result.lost), "lost, since no controller creates them anew"),
        (result.other_schedulers, "of other schedulers"),
        (len(result.added_nodes), "added nodes"),
    ):
        if count:
            parts.append(f"{count:,} {text}")
    return ", ".join(parts)


def _unplaced(pods: Iterable[UnplacedPod]) -> Table:
    """Return the pods without a node, with equal reasons in one row."""
    groups: dict[tuple[str, str], list[UnplacedPod]] = {}
    for pod in pods:
        groups.setdefault((pod.workload or pod.pod, _why(pod)), []).append(pod)
    table = _table("without a node", "pods", "why", right=[1])
    rows = sorted(groups.items(), key=lambda one: -len(one[1]))
    for (name, why), members in rows[:_MOST_ROWS]:
        table.add_row(escape(name), f"{len(members):,}", escape(why))
    _say_what_is_cut(table, len(rows))
    return table


def _why(pod: UnplacedPod) -> str:
    if pod.rejections:
        return _reasons(pod.rejections)
    if pod.reason == "SchedulingGated":
        return f"gated by {', '.join(pod.plugins)}"
    return pod.message or pod.reason


def _reasons(rejections: Iterable[NodesRejected]) -> str:
    return "\n".join(f"{one.nodes:,} nodes: {one.reason} ({one.plugin})" for one in rejections)


def _victims(result: ScenarioResult) -> Table:
    table = _table("preempted", "on node", "by", "now on")
    for victim in result.victims[:_MOST_ROWS]:
        table.add_row(*map(escape, (victim.pod, victim.node, victim.preemptor, victim.node_after)))
    _say_what_is_cut(table, len(result.victims))
    return table


def _placed(result: ScenarioResult) -> Table:
    if len(result.placed) <= _MOST_ROWS:
        table = _table("placed", "node", "before")
        for pod in result.placed:
            table.add_row(*map(escape, (pod.pod, pod.node, pod.previous_node)))
        return table
    by_workload: dict[str, Counter[str]] = {}
    for pod in result.placed:
        by_workload.setdefault(pod.workload or "(no workload)", Counter())[pod.node] += 1
    table = _table("placed", "pods", "nodes", "most on one", right=_BUT_FIRST)
    rows = sorted(by_workload.items(), key=lambda one: (-one[1].total(), one[0]))
    for name, nodes in rows[:_MOST_ROWS]:
        most = max(nodes.values())
        table.add_row(escape(name), f"{nodes.total():,}", f"{len(nodes):,}", f"{most:,}")
    _say_what_is_cut(table, len(rows))
    return table


def _utilisation(before: Utilisation, after: Utilisation) -> Table:
    table = _table(
        "resource", "requested", "of the nodes", "imbalance", "fragmentation", right=_BUT_FIRST
    )
    rows = dict(_requested(before)) | dict(_requested(after))
    for name in sorted(rows):
        first, second = before.resources.get(name), after.resources.get(name)
        uses = [one for one in (first, second) if one is not None]
        table.add_row(
            name,
            _change(_amount(name, one.requested) for one in uses),
            _change(_share(one.share) for one in uses),
            _change(_share(one.imbalance) for one in uses),
            _change(_share(one.fragmentation) for one in uses),
        )
    nodes = _change(f"{one.nodes:,}" for one in (before, after))
    empty = _change(f"{one.empty_nodes:,}" for one in (before, after))
    table.caption = f"nodes: {nodes}, without a pod: {empty}"
    return table


def _spread(skews: list[WorkloadSkew]) -> Table:
    table = _table("spread of", "over", "domains", "pods", "skew", "at most", right=_BUT_TWO)
    for one in skews[:_MOST_SKEWS]:
        limit = "" if one.max_skew is None else f"{one.max_skew}"
        table.add_row(
            escape(one.workload),
            one.topology_key,
            f"{one.domains:,}",
            f"{one.pods:,}",
            _change((f"{one.before:,}", f"{one.after:,}")),
            f"[red]{limit}[/]" if _exceeds(one) else limit,
        )
    _say_what_is_cut(table, len(skews), _MOST_SKEWS)
    return table


def _exceeds(one: WorkloadSkew) -> bool:
    return one.max_skew is not None and one.after > one.max_skew


def _table(*titles: str, right: Container[int] = ()) -> Table:
    """Return a table with these columns; those with a place in ``right`` are of numbers."""
    table = Table(box=box.SIMPLE, pad_edge=False, caption_justify="left")
    for place, title in enumerate(titles):
        table.add_column(title, overflow="fold", justify="right" if place in right else "left")
    return table


_BUT_FIRST, _BUT_TWO = range(1, 99), range(2, 99)


def _say_what_is_cut(table: Table, rows: int, most: int = _MOST_ROWS) -> None:
    if rows > most:
        table.caption = f"… and {rows - most:,} more: -o json lists all"


def _requested(use: Utilisation) -> Iterator[tuple[str, ResourceUse]]:
    for name, one in use.resources.items():
        if one.requested:
            yield name, one


def _change(texts: Iterable[str]) -> str:
    """Return ``before → after``, or one text where they are equal."""
    return " → ".join(dict.fromkeys(texts))


def _share(share: float) -> str:
    return f"{100 * share:.1f} %"


def _figure(value: float, unit: str) -> str:
    if unit == "%":
        return _share(value)
    return f"{value:,.2f}".rstrip("0").rstrip(".")


def _amount(resource: str, amount: int) -> str:
    if resource == "cpu":
        return f"{amount / 1000:,.1f}"
    if resource in _BYTES or resource.startswith("hugepages-"):
        return f"{amount / 2**30:,.1f} GiB"
    return f"{amount:,}"
