"""deploy/monitoring/dashboard.json: only metrics that there are, in a form that Grafana loads."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from proreus.base.metrics.scheduler_metrics import SchedulerMetrics

Json = dict[str, Any]

DASHBOARD = Path(__file__).parents[2] / "deploy" / "monitoring" / "dashboard.json"
CONTENT: Json = json.loads(DASHBOARD.read_text())
PANELS = [panel for panel in CONTENT["panels"] if panel["type"] != "row"]

WORDS = {"by", "histogram_quantile", "increase", "le", "max", "min", "rate", "sum", "label_values"}
"""What is no metric in our expressions: functions and keywords of PromQL."""


def kinds_and_labels() -> dict[str, tuple[str, set[str]]]:
    """Return kind and labels of each metric, those of the process included."""
    metrics = SchedulerMetrics()
    found = {
        one.description.name: (one.description.kind, set(one.description.labels))
        for one in metrics.families()
    }
    exposed = metrics.expose()[0].decode()
    for name, kind in re.findall(r"^# TYPE (process_\w+) (\w+)$", exposed, re.M):
        found[name] = kind, set()
    return found


KNOWN = kinds_and_labels()


def expressions() -> Iterator[str]:
    for panel in PANELS:
        yield from (target["expr"] for target in panel["targets"])
    yield from (one["expr"] for one in CONTENT["annotations"]["list"])


def faults(expr: str) -> list[str]:
    """Return what is wrong with an expression, measured by the metrics that there are."""
    found = []
    if expr.count("(") != expr.count(")") or expr.count("{") != expr.count("}"):
        found.append("brackets")
    labels: set[str] = {"instance"}
    for name, matchers in re.findall(r"([a-z_]\w*)\{([^}]*)\}", expr):
        family = re.sub(r"_(bucket|sum|count)$", "", name)
        family = family if family in KNOWN and KNOWN[family][0] == "histogram" else name
        if family not in KNOWN:
            found.append(f"no metric {name}")
            continue
        kind, own = KNOWN[family]
        if kind == "histogram" and not re.search(r"_(bucket|sum|count)$", name):
            found.append(f"{name} is a histogram")
        labels |= own | ({"le"} if name.endswith("_bucket") else set())
        asked = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", matchers)) - {"job"}
        found += [f"no label {one} of {name}" for one in sorted(asked - own)]
        if 'job="$job"' not in matchers:
            found.append(f"{name} of any job")
        rated = re.search(rf"(rate|increase)\({re.escape(name)}\{{", expr) is not None
        if rated == (kind == "gauge"):
            found.append(f"{name} is a {kind}")
    for kept in re.findall(r"by \(([^)]*)\)", expr):
        found += [f"by {one}" for one in re.split(r",\s*", kept) if one not in labels]
    named = set(re.findall(r"([a-z_]{3,})(?=[({])", re.sub(r"\{[^}]*\}", "{", expr)))
    found += [f"{one}?" for one in sorted(named - WORDS) if f"{one}{{" not in expr]
    return found


@pytest.mark.parametrize("expr", list(expressions()))
def test_expressions_ask_for_metrics_and_labels_that_there_are(expr: str) -> None:
    assert "{" in expr
    assert faults(expr) == []


def test_a_wrong_expression_would_be_noticed() -> None:
    assert faults('sum(rate(scheduler_pods{job="$job"}[1m]))') == ["no metric scheduler_pods"]
    assert faults('sum(scheduler_pending_pods{queue="active"})') == [
        "scheduler_pending_pods of any job"
    ]
    assert faults('sum by (node) (scheduler_pending_pods{job="$job", pool="a"})') == [
        "no label pool of scheduler_pending_pods",
        "by node",
    ]
    assert faults('rate(scheduler_pending_pods{job="$job"}[1m])') == [
        "scheduler_pending_pods is a gauge"
    ]
    assert faults('max(scheduler_schedule_attempts_total{job="$job"}') == [
        "brackets",
        "scheduler_schedule_attempts_total is a counter",
    ]


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel["title"])
def test_legends_name_labels_that_the_expression_keeps(panel: Mapping[str, Any]) -> None:
    for target in panel["targets"]:
        kept = set(re.findall(r"[\w]+", " ".join(re.findall(r"by \(([^)]*)\)", target["expr"]))))
        if "by (" not in target["expr"] and "sum(" not in target["expr"]:
            kept |= {"instance"}
        assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= kept


def test_panels_are_told_apart_and_do_not_overlap() -> None:
    everything = CONTENT["panels"]
    assert len({panel["id"] for panel in everything}) == len(everything)
    titles = [panel["title"] for panel in PANELS]
    assert len(set(titles)) == len(titles)
    taken: set[tuple[int, int]] = set()
    for panel in everything:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert all(0 <= x < 24 for x, _ in cells)
        assert not cells & taken
        taken |= cells


def test_every_panel_explains_itself_and_asks_the_chosen_data_source() -> None:
    variables = {one["name"]: one for one in CONTENT["templating"]["list"]}
    assert set(variables) == {"datasource", "job"}
    for panel in PANELS:
        assert panel["description"].endswith(".")
        assert panel["fieldConfig"]["defaults"]["unit"]
        for target in panel["targets"]:
            assert target["datasource"]["uid"] == "${datasource}"
    [name] = re.findall(r"label_values\((\w+), job\)", variables["job"]["query"]["query"])
    assert name in KNOWN
