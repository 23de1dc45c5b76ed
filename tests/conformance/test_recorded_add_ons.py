"""Recorded answers of kubernetes-sigs/scheduler-plugins, family by family and case by case.

They are of scheduler-plugins at commit 903da7df (16 August 2026) on Kubernetes 1.35.4, and are
played with what kube-scheduler itself did differently there: ``BalancedAllocationOf135`` and
``FailureHandlerOf135``. A case with ``fault`` rests on what the add-on's page (docs/addons/) names
as a fault of the original; only such cases may differ, and they are listed in ``DIFFERENT``.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conformance.test_recorded_answers import as_json, compare, observe
from proreus.engine.cycles.attempt import Attempt, Failure
from proreus.engine.cycles.failure import FailureHandler
from proreus.engine.runtime.registry import Registry
from proreus.framework import CycleState, IntArray, NodeInfo, NodeTable, PodInfo
from proreus.framework.post_filter_result import NominatingInfo
from proreus.objects import Pod
from proreus.offline.evaluate import evaluate, read_cases
from proreus.plugins import IN_TREE_PLUGINS
from proreus.plugins.node_resources_balanced_allocation import (
    NodeResourcesBalancedAllocation,
    _balance,
)
from proreus.plugins.resource_scoring import loads_of
from proreus.process.loading.load import add_ons

CASES = Path(__file__).parent / "add_on_cases"
FAMILIES = sorted(CASES.glob("*.jsonl.gz"))

DIFFERENT: dict[str, dict[str, str]] = json.loads((CASES / "different.json").read_text())
"""By family and case: the fault that a case rests on which we answer otherwise on purpose."""

FAULTS = {
    "2.1": "CapacityScheduling: a maximum that omits cpu, memory or ephemeral-storage means 0",
    "2.2": "CapacityScheduling: rejected for a resource that the pod does not request",
    "2.7": "CapacityScheduling: within its guarantee, while the sum is used up already",
    "5.3": "NodeResourceTopologyMatch: zones are scored in whole CPUs",
    "8.2": "NetworkOverhead: a missing AppGroup or NetworkTopology is a crash",
    "8.3": "TopologicalSort: equal indexes go before each other, unknown ones go first",
    "4.5": "Peaks: a node whose power cannot be predicted is the best beside positive rises",
}
"""What the original does there; docs/addons/ says what we do."""

KUBERNETES_1_35: dict[str, dict[str, str]] = json.loads(
    (CASES / "kubernetes_1_35.json").read_text()
)
"""By family and case: the rule of 1.35's kube-scheduler without which the answer differs."""


class BalancedAllocationOf135(NodeResourcesBalancedAllocation):
    """Its score up to Kubernetes 1.35, on which the scripts were recorded: the balance after."""

    name = "NodeResourcesBalancedAllocation"

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        fractions = []
        loads = loads_of(self._scored_requests(pod.resized), node, self._scored_devices)
        for requested, wanted, capacity, _ in loads:
            taken = requested + wanted
            fractions.append(1.0 if taken > capacity else taken / float(capacity))
        return _balance(fractions) if fractions else 0

    def score_all(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> IntArray:
        return np.array([self.score(state, pod, node) for node in nodes], dtype=np.int64)


class FailureHandlerOf135(FailureHandler):
    """``handleSchedulingFailure`` up to Kubernetes 1.35.

    It clears the nomination where the pod had one when the attempt began; since 1.36, where the
    informer has one now. A pod that waited at Permit was nominated meanwhile, and stays so.
    """

    def handle(self, attempt: Attempt, failure: Failure, *, repeated: bool = False) -> None:
        self._tried = attempt.queued.pod
        super().handle(attempt, failure, repeated=repeated)

    def _status_patch(
        self,
        pod: Pod,
        reason: str,
        message: str,
        nominating: NominatingInfo | None,
        nominated: str,
    ) -> dict[str, Any]:
        nominated = self._tried.status.nominated_node_name
        return super()._status_patch(self._tried, reason, message, nominating, nominated)


@pytest.fixture
def failures_of_135(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proreus.engine.assembly.FailureHandler", FailureHandlerOf135)


PLUGINS_OF_135 = tuple(
    BalancedAllocationOf135 if one is NodeResourcesBalancedAllocation else one
    for one in IN_TREE_PLUGINS
)


def family(path: Path) -> str:
    return path.name.removesuffix(".jsonl.gz")


@pytest.mark.usefixtures("failures_of_135")
@pytest.mark.parametrize("path", FAMILIES, ids=family)
def test_every_case_is_answered_as_recorded_but_for_faults(path: Path) -> None:
    different = different_answers(path)
    expected = DIFFERENT.get(family(path), {})
    wrong = {name: found for name, found in different.items() if name not in expected}
    assert not wrong, f"{len(wrong)}: {json.dumps(wrong)[:2000]}"
    assert expected.keys() == different.keys(), "a case that is listed as different is not"


@pytest.mark.parametrize("name", KUBERNETES_1_35)
def test_only_listed_cases_rest_on_kubernetes_1_35(name: str) -> None:
    different = different_answers(CASES / f"{name}.jsonl.gz")
    assert different.keys() == KUBERNETES_1_35[name].keys() | DIFFERENT.get(name, {}).keys()
    assert all("nominated" in different[case] for case in KUBERNETES_1_35[name])


def test_only_cases_that_rest_on_a_fault_are_listed() -> None:
    for path in FAMILIES:
        faults = {case["id"]: case.get("fault") for case in read_cases(path)}
        for name, section in DIFFERENT.get(family(path), {}).items():
            assert faults[name] == section, name
            assert section in FAULTS


def test_a_wrong_answer_is_noticed() -> None:
    with gzip.open(CASES / "allocatable.jsonl.gz", "rt") as lines:
        case = json.loads(next(lines))
    assert differences(case, {**case["expect"], "feasible": ["elsewhere"]})


def different_answers(path: Path) -> dict[str, dict]:
    """Return by case in which aspects we answer otherwise than recorded."""
    cases = list(read_cases(path))
    assert cases
    answers = {a["id"]: a["expect"] for a in evaluate(cases, Registry(PLUGINS_OF_135, add_ons()))}
    return {
        case["id"]: found
        for case in cases
        if (found := differences(case, as_json(answers[case["id"]])))
    }


def differences(case: dict, answer: dict) -> dict:
    found: dict = compare.differences(case["expect"], answer, observe(case))
    # compare.py knows no queues.
    less = case["expect"].get("less")
    return found | ({"less": (less, answer.get("less"))} if less != answer.get("less") else {})
