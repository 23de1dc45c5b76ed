"""Plots: throughput over time, and the medians as bars. Needs matplotlib (the extra ``bench``)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from proreus.workbench.bench.measures import Pass
from proreus.workbench.bench.report import format_number, medians

_BARS = (
    ("pods_per_second", "pods/s"),
    ("latency_p99_ms", "latency p99, ms"),
    ("scheduler_cpu_ms_a_pod", "scheduler CPU,\nms a pod"),
    ("scheduler_peak_rss_mib", "scheduler peak RSS,\nMiB"),
)


def draw(path: Path, title: str, passes: Sequence[Pass]) -> None:
    """Draw the results of the passes of one workload to a file."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 4.5), layout="constrained")
    figure.suptitle(title)
    over_time, *bars = figure.subplots(1, 1 + len(_BARS), width_ratios=[4] + [1] * len(_BARS))
    names = list(dict.fromkeys(one.scheduler for one in passes))
    colours = {name: f"C{index}" for index, name in enumerate(names)}
    labelled: set[str] = set()
    for one in passes:
        if one.main is None or one.failure:
            continue
        rates = one.main.each_second
        # the last second is incomplete, so its count is not a rate
        seconds = [index + 0.5 for index in range(len(rates))][: max(len(rates) - 1, 1)]
        label = one.scheduler if one.scheduler not in labelled else None
        labelled.add(one.scheduler)
        over_time.plot(
            seconds, rates[: len(seconds)], color=colours[one.scheduler], label=label, alpha=0.8
        )
    over_time.set_xlabel("seconds")
    over_time.set_ylabel("pods bound a second")
    over_time.set_ylim(bottom=0)
    if labelled:
        over_time.legend()
    middle = medians(passes)
    for axes, (key, name) in zip(bars, _BARS, strict=True):
        values = [middle[each][key] or 0.0 for each in names]
        drawn = axes.bar(names, values, color=[colours[each] for each in names])
        axes.bar_label(drawn, labels=[format_number(value) for value in values], fontsize=7)
        axes.set_title(name, fontsize=8)
        axes.set_xticks([])
        axes.tick_params(labelsize=7)
    # text as text instead of outlines: smaller files, and searchable
    with rc_context({"svg.fonttype": "none"}):
        figure.savefig(path)
