"""Fixtures for operators of batch workloads on a cluster with fake kubelets.

``make test-operators`` runs these tests. They build the operators from their Go modules, which
takes minutes once, and so they are no part of CI.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "controlplane"))

from envtest.binaries import MissingBinaries
from envtest.kwok import KwokCluster
from envtest.schedulers import Kind, RunScheduler

from controlplane.conftest import (
    binaries,
    folder,
    pytest_configure,
    pytest_unconfigure,
    run_scheduler,
)
from operators.gangs import GangCluster
from operators.programs import OperatorPrograms

__all__ = [
    "binaries",
    "folder",
    "pytest_configure",
    "pytest_unconfigure",
    "run_scheduler",
]


@pytest.fixture(scope="session")
def under_test() -> Kind:
    """The scheduler under test: operators' pods are gangs for proreus alone."""
    return "proreus"


@pytest.fixture(scope="session")
def kwok_cluster(binaries: dict[str, Path], folder: Path) -> Iterator[KwokCluster]:
    """A cluster without kube-scheduler for all tests; each has a namespace and nodes of its own."""
    cluster = KwokCluster(binaries, folder / "kwok", "operators", disable=("kube-scheduler",))
    try:
        cluster.create()
        yield cluster
    finally:
        cluster.delete()


@pytest.fixture
def gangs(
    kwok_cluster: KwokCluster,
    run_scheduler: RunScheduler,
    folder: Path,
    request: pytest.FixtureRequest,
) -> Iterator[GangCluster]:
    """The cluster for one test, with what the test starts."""

    def find_or_build(name: str) -> OperatorPrograms:
        try:
            return OperatorPrograms.find_or_build(name)
        except MissingBinaries as missing:
            pytest.skip(f"OPERATORS ARE MISSING HERE: {missing}")

    name = re.sub("[^a-z0-9]+", "-", request.node.name.removeprefix("test_")).strip("-")
    cluster = GangCluster(kwok_cluster, run_scheduler, find_or_build, folder / name, name)
    yield cluster
    cluster.end()
    for process in cluster.processes:
        request.node.add_report_section("teardown", f"log of {process.name}", process.log_tail(40))
