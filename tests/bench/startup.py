"""How long a start and a take-over last: kube-scheduler and proreus in turn, on one real apiserver.

    PYTHONPATH=tests python -m bench.startup [--nodes N] [--placed N] [--rounds N]

A start is measured from the exec of the process to the first binding, with leader election as in
the default configuration (nobody holds the Lease). A take-over is measured from the moment that the
standby writes into the Lease as its ``acquireTime`` to its first binding: the leader is killed, the
pod is created while nobody leads, and the standby waits until the Lease has expired.

The apiserver's audit log has the time of each binding; its response is complete then. Python's
bytecode is compiled by a start that is not counted, as an image has it compiled.
"""

from __future__ import annotations

import argparse
import datetime
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

# the real control plane's own tools
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "controlplane"))

from envtest.binaries import find_or_build
from envtest.control_plane import ADMIN_TOKEN, ControlPlane
from envtest.schedulers import Kind, SchedulerProcess, configuration
from envtest.waiting import eventually

from bench.families import KINDS, PODS, BindLog
from bench.shapes import SCHEDULER, node, pod

Json = dict[str, Any]

LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-scheduler"
ELECTION = {"leaderElect": True, "leaseDuration": "4s", "renewDeadline": "3s", "retryPeriod": "1s"}
"""A short Lease, so that a take-over is not a matter of fifteen seconds."""
TIMEOUT_SECONDS = 60


class StartBench:
    """A control plane with nodes, and schedulers that are started on it again and again."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        self._client = plane.client
        self._binds = BindLog(plane.folder / "audit.log")
        self._kubeconfig = plane.write_kubeconfig(
            plane.folder / "scheduler.kubeconfig", token=ADMIN_TOKEN
        )
        self._programs = {
            "kube-scheduler": find_or_build(["kube-scheduler"])["kube-scheduler"],
            "proreus": Path(sys.executable),
        }
        self._started = 0

    def create_cluster(self, nodes: int, placed: int) -> None:
        """Create nodes, and pods on them."""
        self._client.in_parallel(
            lambda number: self._client.create("/api/v1/nodes", node(number)), range(nodes)
        )
        self._client.in_parallel(
            lambda number: self._client.create(
                PODS, pod(f"placed-{number}", node_name=f"node-{number % nodes}")
            ),
            range(placed),
        )

    def start_seconds(self, kind: Kind) -> float:
        """Return the seconds from the exec of a scheduler to its first binding."""
        self._client.delete(LEASE)
        self._create_pod()
        scheduler = self._scheduler(kind)
        before = self._binds.read()
        began = time.time()
        scheduler.start()
        try:
            self._wait_for_binding(scheduler, before)
        finally:
            scheduler.kill()
        self._delete_pod()
        return self._binds.times[before] - began

    def take_over_seconds(self, kind: Kind) -> float:
        """Return the seconds from the standby's acquisition of the Lease to its first binding."""
        self._client.delete(LEASE)
        leader, standby = self._scheduler(kind), self._scheduler(kind)
        try:
            leader.run()
            holder = eventually(TIMEOUT_SECONDS, "leader", self._holder)
            standby.run()
            # /readyz of kube-scheduler does not wait for all informers of a standby
            time.sleep(1.0)
            leader.kill()
            before = self._binds.read()
            self._create_pod()
            self._wait_for_binding(standby, before)
            lease = self._client.get(LEASE)["spec"]
        finally:
            leader.kill()
            standby.kill()
        self._delete_pod()
        assert lease["holderIdentity"] != holder
        acquired = datetime.datetime.fromisoformat(lease["acquireTime"]).timestamp()
        return self._binds.times[before] - acquired

    def _scheduler(self, kind: Kind) -> SchedulerProcess:
        self._started += 1
        config = configuration([{"schedulerName": SCHEDULER}], self._kubeconfig, ELECTION)
        name = f"{kind}-{self._started}"
        folder = self._plane.folder
        return SchedulerProcess(kind, self._programs[kind], config, folder, name, ["-v=0"])

    def _holder(self) -> str:
        found = self._client.request("GET", LEASE)
        return "" if found.status != 200 else str(found.json()["spec"].get("holderIdentity") or "")

    def _wait_for_binding(self, scheduler: SchedulerProcess, before: int) -> None:
        scheduler.wait_for(TIMEOUT_SECONDS, "a binding", lambda: self._binds.read() > before)

    def _create_pod(self) -> None:
        self._client.create(PODS, pod("first"))

    def _delete_pod(self) -> None:
        self._client.delete(f"{PODS}/first", gracePeriodSeconds="0")


def compare(title: str, measure: Callable[[Kind], float], rounds: int) -> None:
    """Measure both schedulers in turn, and print what each round took and the medians."""
    found: dict[Kind, list[float]] = {kind: [] for kind in KINDS}
    for number in range(rounds):
        for kind in KINDS if number % 2 == 0 else reversed(KINDS):
            found[kind].append(measure(kind))
    medians = {kind: statistics.median(seconds) for kind, seconds in found.items()}
    print(title)
    for kind, seconds in found.items():
        each = " ".join(f"{value:.2f}" for value in seconds)
        print(f"  {kind:<16}{medians[kind]:8.2f} s   ({each})")
    print(f"  {'ratio':<16}{medians['proreus'] / medians['kube-scheduler']:8.2f}", flush=True)


def main() -> None:
    """Print seconds to the first binding, after a start and after a take-over."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=5_000)
    parser.add_argument("--placed", type=int, default=0, help="pods that run already")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", choices=("start", "take-over"))
    parser.add_argument("--keep", type=Path, help="leave logs in this folder")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="proreus-startup-") as temporary:
        os.environ |= {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": f"{temporary}/pyc"}
        folder = (options.keep or Path(temporary)) / "plane"
        plane = ControlPlane(find_or_build(["etcd", "kube-apiserver"]), folder)
        try:
            plane.start()
            bench = StartBench(plane)
            bench.create_cluster(options.nodes, options.placed)
            for kind in KINDS:
                bench.start_seconds(kind)
            if options.only != "take-over":
                compare("exec to the first binding", bench.start_seconds, options.rounds)
            if options.only != "start":
                compare("Lease to the first binding", bench.take_over_seconds, options.rounds)
        finally:
            plane.stop()


if __name__ == "__main__":
    main()
