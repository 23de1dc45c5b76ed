"""Fixtures of the real control plane; they stop what they start.

``pytest tests/controlplane --scheduler kube-scheduler`` runs the same tests with kube-scheduler in
proreus's place: that proves the tests, where the usual run proves proreus.
"""

from __future__ import annotations

import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

# tests/bench and the Makefile use this package too, so it is importable apart from the tests
sys.path.insert(0, str(Path(__file__).parent))
# and so are the generator of hostile objects and the image's environment
sys.path += [str(Path(__file__).parents[1] / "integration"), str(Path(__file__).parents[1])]

from envtest.binaries import PROGRAMS, MissingBinaries, find_or_build, find_or_build_helm
from envtest.control_plane import ControlPlane
from envtest.helm import Helm
from envtest.kwok import KwokCluster
from envtest.schedulers import Kind, RunScheduler

from proreus.workbench.bench.processes import end_all

LONGEST = (
    *("hostile_run", "kwok", "scheduling", "faults", "same_decisions", "fault_run"),
    *("rolling_upgrade", "kill_at_each_step", "controller_kills", "simulation", "bench"),
    *("add_ons", "volumes"),
)
"""Modules that take longest: begun last, one of them would keep one process alone at work."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    order = {f"test_{name}.py": place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: order.get(item.path.name, len(order)))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--scheduler",
        choices=("proreus", "kube-scheduler"),
        default="proreus",
        help="the scheduler under test",
    )
    parser.addoption("--chaos-seconds", default=45, type=float, help="how long faults are injected")
    parser.addoption(
        "--chaos-seed", default=0, type=int, help="of all random choices; 0: another each time"
    )
    parser.addoption("--chaos-logs", type=Path, help="a folder that gets the schedulers' logs")
    parser.addoption(
        "--hostile-objects", default=5, type=int, help="of each kind, in test_hostile_run.py"
    )
    parser.addoption("--hostile-nodes", default=50, type=int, help="in test_hostile_run.py")
    parser.addoption("--hostile-seed", default=1, type=int, help="of the objects")
    parser.addoption("--hostile-logs", type=Path, help="a folder that gets the schedulers' logs")
    parser.addoption(
        "--other-version",
        type=Path,
        help="a folder with another version for test_rolling_upgrade.py, by pip install --target",
    )


def pytest_configure() -> None:
    # without this, a run that CI cancels would leave its child processes running
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))


def pytest_unconfigure() -> None:
    end_all()


@pytest.fixture(scope="session")
def binaries() -> dict[str, Path]:
    """All programs, built if necessary."""
    try:
        return find_or_build(PROGRAMS)
    except MissingBinaries as missing:
        pytest.skip(f"NO REAL CONTROL PLANE HERE: {missing}")


@pytest.fixture(scope="session")
def helm(folder: Path) -> Helm:
    """Helm, built if necessary."""
    try:
        return Helm(find_or_build_helm(), folder / "helm")
    except MissingBinaries as missing:
        pytest.skip(f"NOT TESTED WITH HELM: {missing}")


@pytest.fixture(scope="session")
def under_test(pytestconfig: pytest.Config) -> Kind:
    """The scheduler under test."""
    kind: Kind = pytestconfig.getoption("--scheduler")
    return kind


@pytest.fixture(scope="session")
def folder() -> Iterator[Path]:
    """A folder with a short path, for all files of this run."""
    path = Path(tempfile.mkdtemp(prefix="proreus-controlplane-"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def new_control_plane(
    binaries: dict[str, Path], folder: Path, request: pytest.FixtureRequest
) -> Iterator[ControlPlane]:
    """A control plane for one test that may break it."""
    yield from _control_plane(binaries, folder / request.node.name)


@pytest.fixture(scope="module")
def control_plane(
    binaries: dict[str, Path], folder: Path, request: pytest.FixtureRequest
) -> Iterator[ControlPlane]:
    """A control plane for the tests of one module, which must clean up after themselves."""
    yield from _control_plane(binaries, folder / request.node.name.removesuffix(".py"))


def _control_plane(binaries: dict[str, Path], folder: Path) -> Iterator[ControlPlane]:
    plane = ControlPlane(binaries, folder)
    try:
        plane.start()
        yield plane
    finally:
        plane.stop()


@pytest.fixture
def kwok_cluster(
    binaries: dict[str, Path], folder: Path, request: pytest.FixtureRequest
) -> Iterator[KwokCluster]:
    """A whole cluster with fake kubelets; an indirect parameter lists components to disable."""
    disable = getattr(request, "param", ())
    cluster = KwokCluster(binaries, folder / "kwok", f"tests-{len(disable)}", disable=disable)
    try:
        cluster.create()
        yield cluster
    finally:
        cluster.delete()


@pytest.fixture
def run_scheduler(
    binaries: dict[str, Path], under_test: Kind, folder: Path, request: pytest.FixtureRequest
) -> Iterator[RunScheduler]:
    """A function that starts the schedulers of one test."""
    yield from _run_schedulers(binaries, under_test, folder, request)


@pytest.fixture(scope="module")
def run_module_scheduler(
    binaries: dict[str, Path], under_test: Kind, folder: Path, request: pytest.FixtureRequest
) -> Iterator[RunScheduler]:
    """A function that starts schedulers for all tests of a module."""
    yield from _run_schedulers(binaries, under_test, folder, request)


def _run_schedulers(
    binaries: dict[str, Path], under_test: Kind, folder: Path, request: pytest.FixtureRequest
) -> Iterator[RunScheduler]:
    logs = folder / f"schedulers-{request.node.name}"
    logs.mkdir()
    run = RunScheduler(binaries, under_test, logs)
    yield run
    run.end()
    if isinstance(request.node, pytest.Item):
        for process in run.started:
            log = process.log_tail(40)
            request.node.add_report_section("teardown", f"log of {process.name}", log)
