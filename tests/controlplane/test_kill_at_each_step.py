"""Scheduler and apiserver are killed at every step of the binding cycle, before and after it.

The proxy of ``fault_run`` kills them at the moment at which the request of a step arrives, or when
the apiserver has answered it and the scheduler does not know yet. The apiserver is killed in long
runs only (``make chaos``), since it takes seconds to start.
"""

from __future__ import annotations

import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from envtest import pod_groups
from envtest.assertions import node_of
from envtest.control_plane import ControlPlane
from envtest.kube_client import ApiFailure
from envtest.schedulers import Kind, RunScheduler
from envtest.waiting import eventually
from fault_run import steps
from fault_run.controllers import Controllers
from fault_run.instances import (
    APISERVER_FLAGS,
    LEASE_SECONDS,
    scheduler_configuration,
    start_instances,
)
from fault_run.judge import Judge
from fault_run.load import Load, create_cluster
from fault_run.observer import Observer
from fault_run.pod_kinds import FILLERS, KIND
from fault_run.proxy import FaultProxy, Trap
from fault_run.record import RequestRecord
from fault_run.request_faults import FaultSource
from fault_run.unsteady_extender import UnsteadyExtender

Json = dict[str, Any]

LONG_SECONDS = 300

KIND_OF_STEP = {
    steps.CLAIM: "device",
    steps.CLAIM_STATUS: "device",
    steps.VOLUME: "volume",
    steps.VOLUME_CLAIM: "provisioned",
    steps.BIND: "plain",
    steps.EVENT: "plain",
    steps.POD_STATUS: "preemptor",
    steps.EVICT: "preemptor",
    steps.GROUP_STATUS: "gang",
}
"""Which kind of pod leads to a step."""


class Stage:
    """One scheduler behind the proxy, and everything that judges it."""

    def __init__(self, plane: ControlPlane, run: RunScheduler, folder: Path, kind: Kind) -> None:
        self.plane = plane
        rng = random.Random(1)
        self.judge = Judge()
        record = RequestRecord(LEASE_SECONDS)
        self.load = Load(plane.client, self.judge, rng, 0)
        self.observer = Observer(plane.client, self.judge)
        self.controllers = Controllers(plane.client, self.judge, rng)
        self.extender = UnsteadyExtender(plane.client)
        pki = plane.folder / "pki"
        self.proxy = FaultProxy(plane.server, pki, FaultSource(rng, {}), record)
        config = scheduler_configuration(
            plane, folder, "one", self.proxy.listen("one"), self.extender.configuration(), ""
        )
        config["leaderElection"] = {"leaderElect": False}
        create_cluster(plane.client)
        self.observer.start()
        self.controllers.start()
        [self.instance] = start_instances(
            run, {"one": config}, pod_groups.flags_of(), {}, folder
        ).values()

    def fill(self) -> None:
        """Fill the contended nodes, so that a preemptor has to evict."""

        def quiet() -> bool:
            pods = self.judge.pods()
            return not any(
                _kind(pod) == "preemptor" or pod["metadata"].get("deletionTimestamp")
                for pod in pods
            )

        self.until("evicted pods gone", quiet)
        fillers = [pod for pod in self.judge.pods() if _kind(pod) == "filler"]
        self.create("filler", FILLERS - len(fillers))
        self.until("all fillers bound", lambda: self.all_bound)

    @property
    def all_bound(self) -> bool:
        """Whether every pod that was created is bound, or has left its place to another."""
        left = self.judge.evicted | self.controllers.ended.keys()
        return self.load.created.keys() <= self.judge.bound_at.keys() | left

    def create(self, kind: str, count: int) -> None:
        """Create pods of a kind, or groups of them."""
        for _ in range(count):
            self.load.create_one(kind)

    def until(self, what: str, done: Callable[[], bool]) -> None:
        """Wait, and start again meanwhile what has been killed."""

        def look() -> bool:
            self.instance.supervise(time.monotonic())
            if not self.plane.apiserver.running:
                self.plane.apiserver.start()
            return done()

        eventually(60, what, look, every=0.05)

    def close(self) -> None:
        """Stop everything but the control plane."""
        self.controllers.stop()
        self.observer.stop()
        self.proxy.close()
        self.extender.close()


@pytest.fixture(scope="module")
def stage(
    binaries: dict[str, Path],
    folder: Path,
    run_module_scheduler: RunScheduler,
    under_test: Kind,
) -> Iterator[Stage]:
    plane = ControlPlane(binaries, folder / "each-step", flags=APISERVER_FLAGS)
    plane.start()
    made = Stage(plane, run_module_scheduler, folder, under_test)
    yield made
    made.instance.process.kill()
    made.close()
    plane.stop()


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("step", KIND_OF_STEP)
@pytest.mark.parametrize("victim", ["scheduler", "apiserver"])
def test_killed_at_a_step(
    stage: Stage, pytestconfig: pytest.Config, victim: str, step: str, after: bool
) -> None:
    if victim == "apiserver" and pytestconfig.getoption("--chaos-seconds") < LONG_SECONDS:
        pytest.skip("only in a long run: make chaos")
    plane, instance = stage.plane, stage.instance

    def kill(_: str) -> None:
        if victim == "scheduler":
            instance.signal(signal.SIGKILL)
        else:
            plane.apiserver.signal(signal.SIGKILL)

    stage.until("ready", lambda: instance.ready)
    stage.fill()
    trap = Trap(step, after, kill)
    stage.proxy.set_trap(trap)
    kind = KIND_OF_STEP[step]
    # a thread of its own: it goes on until the apiserver is there, which we start again meanwhile
    creating = threading.Thread(target=stage.create, args=(kind, 3), daemon=True)
    creating.start()
    stage.until(f"{victim} killed at {step}", lambda: trap.sprung)
    stage.until("all pods created", lambda: not creating.is_alive())
    stage.until("everything bound", lambda: stage.all_bound)
    for pod in stage.judge.pods():
        if _kind(pod) != "filler" and node_of(pod):
            stage.until("the pod's end", partial(_ended, stage, pod))
    stage.until("no violation", lambda: not stage.judge.final_violations())
    twice = [pod for pod, codes in plane.binds_by_pod().items() if codes[201] > 1]
    assert not twice


def _kind(pod: Json) -> str:
    return str(pod["metadata"]["labels"][KIND])


def _ended(stage: Stage, pod: Json) -> bool:
    try:
        stage.controllers.end(pod)
    except (ApiFailure, OSError):
        return False  # the apiserver is still starting
    return True
