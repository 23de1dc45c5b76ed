"""Reports: a table of medians and ratios, failures, and all measurements as JSON."""

from __future__ import annotations

import os
import platform
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.table import Table

from proreus.workbench.bench.measures import Pass, Period
from proreus.workbench.bench.schedulers import BARE, PROREUS
from proreus.workbench.bench.workloads import ResolvedWorkload

JsonObject = dict[str, Any]
Figure = Callable[[Pass, Period], float | None]


def _cpu_ms(process: str) -> Figure:
    def figure(_: Pass, period: Period) -> float | None:
        used = period.cpu_seconds.get(process)
        return None if used is None or not period.pods else 1000 * used / period.pods

    return figure


def _cpu(process: str) -> Figure:
    return lambda _, period: period.cpu_seconds.get(process)


def _rss_mib(process: str) -> Figure:
    def figure(one: Pass, _: Period) -> float | None:
        peak = one.peak_rss_bytes.get(process)
        return None if peak is None else peak / 2**20

    return figure


FIGURES: tuple[tuple[str, str, Figure], ...] = (
    ("pods_per_second", "pods/s", lambda _, period: period.pods_per_second),
    ("seconds", "seconds", lambda _, period: period.seconds),
    ("latency_p50_ms", "latency p50, ms", lambda _, period: 1000 * period.latency_p50),
    ("latency_p90_ms", "latency p90, ms", lambda _, period: 1000 * period.latency_p90),
    ("latency_p99_ms", "latency p99, ms", lambda _, period: 1000 * period.latency_p99),
    ("algorithm_mean_ms", "algorithm mean, ms", lambda _, period: period.algorithm_mean_ms),
    ("algorithm_p99_ms", "algorithm p99, ms", lambda _, period: period.algorithm_p99_ms),
    ("scheduler_cpu_seconds", "scheduler CPU, s", _cpu("scheduler")),
    ("scheduler_cpu_ms_a_pod", "scheduler CPU, ms a pod", _cpu_ms("scheduler")),
    ("apiserver_cpu_seconds", "apiserver CPU, s", _cpu("apiserver")),
    ("etcd_cpu_seconds", "etcd CPU, s", _cpu("etcd")),
    ("scheduler_peak_rss_mib", "scheduler peak RSS, MiB", _rss_mib("scheduler")),
    ("apiserver_peak_rss_mib", "apiserver peak RSS, MiB", _rss_mib("apiserver")),
    ("etcd_peak_rss_mib", "etcd peak RSS, MiB", _rss_mib("etcd")),
    ("utilisation_spread", "spread of utilisation, %", lambda one, _: one.utilisation_spread),
    ("start_seconds", "seconds until ready", lambda one, _: one.start_seconds),
    ("other_cpus_busy", "CPUs busy with others", lambda _, period: period.other_cpus_busy),
)
"""Name in JSON, title in the table, and a function that returns the figure, or None."""


def medians(passes: Sequence[Pass]) -> dict[str, dict[str, float | None]]:
    """Return the median of every figure over the rounds that did not fail, by scheduler."""
    found: dict[str, dict[str, float | None]] = {}
    for name in dict.fromkeys(one.scheduler for one in passes):
        mine = [one for one in passes if one.scheduler == name and not one.failure]
        found[name] = {key: _median(mine, figure) for key, _, figure in FIGURES}
    return found


def _median(passes: Sequence[Pass], figure: Figure) -> float | None:
    values = [figure(one, one.main) for one in passes if one.main is not None]
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def ratios(middle: Mapping[str, Mapping[str, float | None]]) -> dict[str, float | None]:
    """Return proreus's figures divided by the other scheduler's; empty if it ran alone."""
    others = [name for name in middle if name not in (PROREUS, BARE)]
    if PROREUS not in middle or not others:
        return {}
    ours, theirs = middle[PROREUS], middle[others[0]]
    return {
        key: mine / other if (mine := ours[key]) is not None and (other := theirs[key]) else None
        for key in ours
    }


def table(passes: Sequence[Pass]) -> Table:
    """Return a table of the medians by scheduler, with proreus's ratios."""
    middle = medians(passes)
    share = ratios(middle)
    lines = Table()
    lines.add_column("")
    for name in middle:
        lines.add_column(name, justify="right")
    if share:
        lines.add_column("ratio", justify="right")
    for key, title, _ in FIGURES:
        values = [middle[name][key] for name in middle]
        if any(value is not None for value in values):
            ratio = [format_number(share[key])] if share else []
            lines.add_row(title, *map(format_number, values), *ratio)
    return lines


def format_number(value: float | None) -> str:
    """Format a figure with three significant digits; "-" for None."""
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:,.3g}"


def failure_lines(passes: Sequence[Pass]) -> list[str]:
    """Return a line for each pass that failed or has errors in its log."""
    lines = []
    for one in passes:
        title = f"round {one.round + 1}, {one.scheduler}"
        if one.failure:
            lines.append(f"{title}: {one.failure}")
        if one.log_errors:
            lines.append(f"{title}: {len(one.log_errors)} errors logged, as {one.log_errors[0]}")
    return lines


def machine() -> JsonObject:
    """Return the hardware and the Python version that the figures depend on."""
    cpuinfo = Path("/proc/cpuinfo").read_text().splitlines()
    models = [line.partition(":")[2].strip() for line in cpuinfo if line.startswith("model name")]
    return {
        "cpus": len(os.sched_getaffinity(0)),
        "cpu": models[0] if models else platform.processor(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "python": platform.python_version(),
    }


def as_json(
    plan: ResolvedWorkload, passes: Sequence[Pass], settings: Mapping[str, Any]
) -> JsonObject:
    """Return all measurements of one workload, with its settings."""
    middle = medians(passes)
    return {
        "workload": plan.name,
        "parameters": plan.workload.params,
        "feature_gates": plan.feature_gates,
        "settings": dict(settings),
        "machine": machine(),
        "median": middle,
        "ratio": ratios(middle),
        "passes": [asdict(one) for one in passes],
    }
