"""Prometheus plays the alert rules of deploy/monitoring: which fire, and which must not?

``promtool test rules`` evaluates them on series in its notation: ``0+1x10`` is 0, 1, … 10, with 30
seconds between two values.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

RULES = Path(__file__).parents[2] / "deploy" / "monitoring" / "rules.yaml"
SPEC: dict[str, Any] = yaml.safe_load(RULES.read_text())["spec"]
ALERTS = [rule["alert"] for group in SPEC["groups"] for rule in group["rules"]]

PROMTOOL = shutil.which("promtool")
needs_promtool = pytest.mark.skipif(
    PROMTOOL is None, reason="ALERTS NOT TESTED: there is no promtool (apt install prometheus)"
)

ALWAYS = "x240"
A, B = 'job="proreus", instance="a"', 'job="proreus", instance="b"'

LEADS, FOLLOWS = (f"leader_election_master_status{{{each}}}" for each in (A, B))
HEALTHY = {
    f'up{{{A}, metrics_path="/metrics"}}': "1+0",
    f'up{{{B}, metrics_path="/metrics"}}': "1+0",
    'up{job="apiserver", instance="x"}': "1+0",
    'up{job="apiserver", instance="y"}': "1+0",
    LEADS: "1+0",
    FOLLOWS: "0+0",
    f'scheduler_pending_pods{{{A}, queue="active"}}': "3+0",
    f'scheduler_pending_pods{{{B}, queue="active"}}': "30000+0",
    f'scheduler_schedule_attempts_total{{{A}, result="scheduled", profile="p"}}': "0+300",
    f'rest_client_requests_total{{{A}, code="201"}}': "0+900",
    f'rest_client_requests_total{{{B}, code="200"}}': "0+20",
    f'proreus_cache_differences_total{{{A}, structure="store"}}': "0+0",
    f'proreus_scheduled_after_flush_total{{{A}, plugin="NodePorts"}}': "0+0",
    f"proreus_node_overcommits_total{{{A}}}": "0+0",
    f"proreus_avoided_nodes{{{A}}}": "0+0",
    f"proreus_config_last_reload_successful{{{A}}}": "1+0",
    f"proreus_config_last_reload_successful{{{B}}}": "1+0",
    f'proreus_plugin_file_info{{{A}, file="quota.py", sha256="1"}}': "1+0",
    f'proreus_plugin_file_info{{{B}, file="quota.py", sha256="1"}}': "1+0",
}
"""Two replicas, of which ``a`` leads; the standby keeps every pending pod in its active queue."""

NO_SCRAPE = {series: "0+0" for series in HEALTHY if series.startswith("up{" + A[:13])} | {
    series: None for series in HEALTHY if not series.startswith("up{")
}
NO_APISERVER = {
    'up{job="apiserver", instance="x"}': "0+0",
    'up{job="apiserver", instance="y"}': "0+0",
}
ONE_APISERVER = {'up{job="apiserver", instance="x"}': "0+0"}
REQUESTS = "rest_client_requests_total"
NO_LEADER_ELECTION = {LEADS: None, FOLLOWS: None, f'up{{{B}, metrics_path="/metrics"}}': None} | {
    series: None for series in HEALTHY if B in series
}


@dataclass(frozen=True)
class Case:
    """Series that differ from a healthy pair (None: there is none), and the alerts that fire."""

    name: str
    series: Mapping[str, str | None] = field(default_factory=dict)
    fires: tuple[str, ...] = ()
    minutes: int = 60


def pending(instance: str, queue: str) -> str:
    return f'scheduler_pending_pods{{{instance}, queue="{queue}"}}'


def unschedulable(instance: str, plugin: str) -> str:
    return f'scheduler_unschedulable_pods{{{instance}, plugin="{plugin}", profile="p"}}'


def attempts(result: str) -> str:
    return f'scheduler_schedule_attempts_total{{{A}, result="{result}", profile="p"}}'


def seconds(of: str, bound: str) -> str:
    return f'scheduler_scheduling_{of}_duration_seconds_bucket{{{A}, le="{bound}"}}'


def failures(reason: str) -> str:
    labels = f'plugin="Quota", extension_point="Filter", reason="{reason}"'
    return f"proreus_plugin_failures_total{{{A}, {labels}}}"


SLOW = {"0.512": 90, "1.024": 100, "+Inf": 100}
BLOCKED = f'proreus_loop_blocked_total{{{A}, plugin="Quota"}}'
STORE = f'proreus_cache_differences_total{{{A}, structure="store"}}'
FLUSHED = f'proreus_scheduled_after_flush_total{{{A}, plugin="NodePorts"}}'
OVERCOMMITS = f"proreus_node_overcommits_total{{{A}}}"
REFUSED = f"proreus_config_last_reload_successful{{{B}}}"
FILES = f'proreus_plugin_file_info{{{B}, file="quota.py", sha256='
ONCE = "0+0x200 1+0"
"""It happens for the first time in the last of the two hours that a case has."""

CASES = (
    Case("a leader and its standby work"),
    # ---- nobody answers
    Case("no instance answers", NO_SCRAPE, ("ProreusDown",)),
    Case("no instance answers for four minutes", NO_SCRAPE, (), 4),
    Case(
        "no instance and one of two apiservers answers", NO_SCRAPE | ONE_APISERVER, ("ProreusDown",)
    ),
    Case(
        "no instance answers, and nobody scrapes the apiserver",
        NO_SCRAPE | dict.fromkeys(NO_APISERVER),
        ("ProreusDown",),
    ),
    Case("one of two instances does not answer", {f'up{{{B}, metrics_path="/metrics"}}': "0+0"}),
    # ---- the apiserver
    Case(
        "the apiserver is down, and so proreus cannot tell who scrapes it",
        NO_SCRAPE | NO_APISERVER,
        ("ProreusWithoutApiserver",),
    ),
    Case(
        "the apiserver is down, and Prometheus has a client certificate",
        {
            LEADS: "0+0",
            f'{REQUESTS}{{{A}, code="201"}}': "900+0",
            f'{REQUESTS}{{{B}, code="200"}}': "900+0",
            f'{REQUESTS}{{{A}, code="<error>"}}': "0+15",
        },
        ("ProreusApiTrouble", "ProreusWithoutApiserver", "ProreusWithoutLeader"),
    ),
    Case(
        "the load balancer of the apiserver answers 503",
        {
            LEADS: "0+0",
            f'{REQUESTS}{{{A}, code="201"}}': None,
            f'{REQUESTS}{{{B}, code="200"}}': None,
            f'{REQUESTS}{{{A}, code="503"}}': "0+15",
        },
        ("ProreusApiTrouble", "ProreusWithoutApiserver", "ProreusWithoutLeader"),
    ),
    Case("one of two apiservers is down", ONE_APISERVER),
    Case(
        "a standby that asks little cannot reach the apiserver",
        {f'{REQUESTS}{{{B}, code="200"}}': "900+0", f'{REQUESTS}{{{B}, code="<error>"}}': "0+15"},
        ("ProreusApiTrouble",),
    ),
    Case("one request in a hundred fails", {f'{REQUESTS}{{{A}, code="500"}}': "0+9"}),
    # ---- the Lease
    Case("no instance leads", {LEADS: "0+0"}, ("ProreusWithoutLeader",)),
    Case("no instance leads for a minute", {LEADS: "1+0x230 0+0"}, (), 116),
    Case("one instance runs without a Lease", NO_LEADER_ELECTION),
    Case(
        "two instances lead", {FOLLOWS: "1+0", pending(B, "active"): "3+0"}, ("ProreusTwoLeaders",)
    ),
    Case(
        "two installations have a leader each",
        {
            LEADS: None,
            FOLLOWS: None,
            f'leader_election_master_status{{{A}, namespace="one"}}': "1+0",
            f'leader_election_master_status{{{B}, namespace="two"}}': "1+0",
            pending(B, "active"): "3+0",
        },
    ),
    # ---- queues
    Case("the leader falls behind", {pending(A, "active"): "1500+0"}, ("ProreusFallsBehind",)),
    Case("the leader is behind for nine minutes", {pending(A, "active"): "1500+0"}, (), 9),
    Case(
        "an instance without a Lease falls behind",
        NO_LEADER_ELECTION | {pending(A, "active"): "1500+0"},
        ("ProreusFallsBehind",),
    ),
    Case("pods wait for room", {pending(A, "unschedulable"): "1500+0"}),
    Case(
        "pods fit nowhere",
        {unschedulable(A, "NodeResourcesFit"): "3+0"},
        ("ProreusPodsUnschedulable",),
    ),
    Case("pods fit nowhere for 20 minutes", {unschedulable(A, "NodeResourcesFit"): "3+0"}, (), 20),
    Case(
        "pods have scheduling gates",
        {
            unschedulable(A, "SchedulingGates"): "500+0",
            unschedulable(B, "SchedulingGates"): "500+0",
            pending(A, "gated"): "500+0",
        },
    ),
    Case("a standby has seen pods that do not fit", {unschedulable(B, "NodePorts"): "3+0"}),
    # ---- attempts
    Case("attempts fail", {attempts("error"): "0+30"}, ("ProreusAttemptsFail",)),
    Case("an attempt in a hundred fails", {attempts("error"): "0+3"}),
    Case("pods are rejected", {attempts("unschedulable"): "0+3000"}),
    Case(
        "searches for a node take long",
        {seconds("algorithm", bound): f"0+{n}" for bound, n in SLOW.items()},
        ("ProreusSlow",),
    ),
    Case("pods wait on Permit", {seconds("attempt", bound): f"0+{n}" for bound, n in SLOW.items()}),
    # ---- plugins
    Case("a plugin fails at each pod", {failures("raised"): "0+30"}, ("ProreusPluginFails",)),
    Case("a plugin has failed three times", {failures("raised"): "0+0x200 0+1x2 3+0"}),
    Case("a plugin blocks", {BLOCKED: "0+1"}, ("ProreusPluginBlocks",)),
    Case("the loop was blocked by no plugin", {BLOCKED.replace("Quota", ""): "0+1"}),
    # ---- configuration
    Case("a standby refused a change", {REFUSED: "0+0"}, ("ProreusConfigurationRefused",)),
    Case(
        "replicas run different versions of a plugin",
        {f'{FILES}"1"}}': None, f'{FILES}"2"}}': "1+0"},
        ("ProreusPluginFilesDiffer",),
    ),
    Case("a plugin is rolled out", {f'{FILES}"1"}}': None, f'{FILES}"2"}}': "1+0"}, (), 10),
    # ---- things that happen once
    Case("the cache differs for the first time", {STORE: ONCE}, ("ProreusCacheDiffered",), 119),
    Case("the cache differed two hours ago", {STORE: "1+0"}),
    Case("a process that had corrected its cache restarts", {STORE: "7+0x200 0+0"}, (), 119),
    Case("the flush wakes a first pod", {FLUSHED: ONCE}, ("ProreusPodsWokenByFlush",), 119),
    Case(
        "a first node is over-committed", {OVERCOMMITS: ONCE}, ("ProreusNodesOvercommitted",), 119
    ),
    Case(
        "kubelets reject pods",
        {f"proreus_avoided_nodes{{{A}}}": "2+0"},
        ("ProreusKubeletsRejectPods",),
    ),
)


def played(case: Case, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run promtool on the rules and a case; it fails unless exactly the named alerts fire."""
    series = {**HEALTHY, **case.series}
    firing = {
        "expr": 'count by (alertname) (ALERTS{alertstate="firing"})',
        "eval_time": f"{case.minutes}m",
        "exp_samples": [{"labels": f'{{alertname="{one}"}}', "value": 1} for one in case.fires],
    }
    test = {
        "interval": "30s",
        "input_series": [
            {"series": name, "values": values + ALWAYS} for name, values in series.items() if values
        ],
        "promql_expr_test": [firing],
    }
    (folder / "rules.yaml").write_text(yaml.safe_dump(SPEC))
    written = {"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": [test]}
    (folder / "case.yaml").write_text(yaml.safe_dump(written))
    return promtool("test", "rules", str(folder / "case.yaml"))


def promtool(*arguments: str) -> subprocess.CompletedProcess[str]:
    assert PROMTOOL
    return subprocess.run([PROMTOOL, *arguments], capture_output=True, text=True, timeout=60)


@needs_promtool
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_alerts_of_a_case_fire_and_no_others(case: Case, tmp_path: Path) -> None:
    result = played(case, tmp_path)
    assert result.returncode == 0, result.stdout + result.stderr


@needs_promtool
def test_a_wrong_expectation_would_be_noticed(tmp_path: Path) -> None:
    assert played(Case("no leader", {LEADS: "0+0"}), tmp_path).returncode == 1
    assert played(Case("healthy", {}, ("ProreusDown",)), tmp_path).returncode == 1


@needs_promtool
def test_prometheus_accepts_the_rules_and_their_texts(tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(SPEC))
    result = promtool("check", "rules", "--lint-fatal", str(tmp_path / "rules.yaml"))
    assert result.returncode == 0, result.stdout + result.stderr


def test_every_alert_has_a_case_in_which_it_fires() -> None:
    assert {name for case in CASES for name in case.fires} == set(ALERTS)
