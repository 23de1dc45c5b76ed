"""Writes docs/metrics.md, the page of all metrics, from their declarations.

Usage: ``python docs/metrics_page.py > docs/metrics.md`` (``make metrics-page``). The metrics of the
processes are described to their registries and read from there; those of add-ons, which a profile
adds, are read from the source.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from proreus.base.kubernetes_version import SUPPORTED_VERSIONS
from proreus.base.metrics import MetricsRegistry, SchedulerMetrics
from proreus.base.metrics.families import AnyFamily
from proreus.controller.controller_metrics import ControllerMetrics
from proreus.remote.remote_metrics import RemoteMetrics
from proreus.server.health import HealthMetrics

SOURCES = Path(__file__).resolve().parents[1] / "src" / "proreus"

HEAD = """\
# Metrics

All metrics that proreus exposes, from their declarations (`make metrics-page`). Those named
`proreus_…` are its own; names, types, labels and buckets of all others are kube-scheduler's, so
that its dashboards and alerts work. Durations are in seconds. *Only in* names the versions of
Kubernetes ([upgrading](upgrading.md)) whose kube-scheduler has a metric, where not all have it;
labels are those of the newest.
Metrics of groups exist where the feature gate GenericWorkload or an add-on asks for them.

`/metrics` also has the `process_…` and `python_…` metrics of prometheus-client. What of
kube-scheduler's is missing is in [parity](parity.md). [Alerts](alerts.md) says what to do about
some of them; RBAC for a scraper is in `deploy/monitoring`."""


class Row(NamedTuple):
    """A metric on the page."""

    name: str
    kind: str
    labels: tuple[str, ...]
    meaning: str


def main() -> None:
    """Print the page."""
    print(page(), end="")


def page() -> str:
    """Return the page."""
    versions = sorted(SUPPORTED_VERSIONS)
    of_versions = {str(one): _of_scheduler(SchedulerMetrics(version=one)) for one in versions}
    scheduler = {name: found for each in of_versions.values() for name, found in each.items()}
    notes = {name: _note(name, of_versions) for name in scheduler}
    own = [one for name, one in scheduler.items() if name.startswith("proreus_")]
    others = [one for name, one in scheduler.items() if not name.startswith("proreus_")]
    return "\n".join(
        [
            HEAD,
            *_section("Of proreus", own, notes),
            *_section("Of kube-scheduler", others, notes),
            *_section("At /metrics/slis", _rows(HealthMetrics().families()), {}),
            *_section(
                "Of the controller", _rows(MetricsRegistry.families(ControllerMetrics())), {}
            ),
            *_section("Of add-ons", _of_add_ons(), {}),
        ]
    )


def _note(name: str, of_versions: Mapping[str, Mapping[str, Row]]) -> str:
    """Return a metric's differences in older versions: none there, or other labels."""
    note = ""
    having = [version for version, found in of_versions.items() if name in found]
    if len(having) < len(of_versions):
        note += f" Only in {', '.join(having)}."
    newest = of_versions[having[-1]][name].labels
    older = [version for version in having if of_versions[version][name].labels != newest]
    if older:
        note += f" Labels in {', '.join(older)}: {_listed(of_versions[older[0]][name].labels)}."
    return note


def _listed(labels: Iterable[str]) -> str:
    return ", ".join(f"`{label}`" for label in labels) or "none"


def _of_scheduler(metrics: SchedulerMetrics) -> dict[str, Row]:
    metrics.describe_pod_groups()
    metrics.describe_placements()
    metrics.describe_group_preemption()
    RemoteMetrics(metrics, "")
    return {row.name: row for row in _rows(metrics.families())}


def _rows(families: Iterable[AnyFamily]) -> list[Row]:
    found = (family.description for family in families)
    return [Row(one.name, one.kind, one.labels, one.help) for one in found]


def _of_add_ons() -> Iterator[Row]:
    """Yield the metrics that add-ons describe to ``handle.metrics``, by their calls."""
    for file in sorted((SOURCES / "addons").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                kind = node.func.attr
                if kind in ("counter", "gauge", "histogram"):
                    name, _, text, *labels = [
                        each.value
                        for each in node.args
                        if isinstance(each, ast.Constant) and isinstance(each.value, str)
                    ]
                    yield Row(name, kind, tuple(labels), text)


def _section(title: str, found: Iterable[Row], notes: Mapping[str, str]) -> Iterator[str]:
    yield f"\n## {title}\n"
    yield "| metric | type | labels | meaning |\n|---|---|---|---|"
    for one in sorted(found, key=lambda each: each.name):
        note = notes.get(one.name, "")
        yield f"| `{one.name}` | {one.kind} | {_listed(one.labels)} | {one.meaning}{note} |"


if __name__ == "__main__":
    main()
