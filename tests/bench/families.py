"""The cost of pods of each family in kube-scheduler and proreus, on one real apiserver.

    PYTHONPATH=tests python -m bench.families [--nodes N] [--placed N] [--pods N] [FAMILY ...]

For each family of constraints, an apiserver gets nodes with pods, and pending pods. Then each
scheduler, newly started with its default configuration, schedules the pending pods, and its own
``scheduler_scheduling_algorithm_duration_seconds`` is read: in both the time from the pop to the
choice of a node, including PostFilter. The pods that the first scheduler bound are removed before
the second one starts.

The figures are means of an attempt. Families of preemption have the mean of PostFilter too, and try
every node (``minCandidateNodesPercentage: 100``).
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

# the real control plane's own tools
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "controlplane"))

from envtest.binaries import find_or_build
from envtest.control_plane import ADMIN_TOKEN, ControlPlane
from envtest.kube_client import ApiFailure
from envtest.schedulers import Kind, SchedulerProcess, configuration
from envtest.waiting import eventually
from prometheus_client import Metric

from bench.shapes import FAMILIES, PROFILE, Family, Preempting, node

Json = dict[str, Any]

KINDS: tuple[Kind, ...] = ("kube-scheduler", "proreus")
PODS = "/api/v1/namespaces/default/pods"
PATHS = {
    "Node": "/api/v1/nodes",
    "Pod": PODS,
    "PersistentVolume": "/api/v1/persistentvolumes",
    "PersistentVolumeClaim": "/api/v1/namespaces/default/persistentvolumeclaims",
    "CSINode": "/apis/storage.k8s.io/v1/csinodes",
    "ResourceClaim": "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims",
    "ResourceSlice": "/apis/resource.k8s.io/v1/resourceslices",
    "DeviceClass": "/apis/resource.k8s.io/v1/deviceclasses",
    "PriorityClass": "/apis/scheduling.k8s.io/v1/priorityclasses",
    "PodDisruptionBudget": "/apis/policy/v1/namespaces/default/poddisruptionbudgets",
}
TIMEOUT_SECONDS = 180


@dataclass(frozen=True)
class Cost:
    """The durations of one scheduler's attempts, by its own metrics, and the rate of bindings."""

    kind: str
    attempts: int
    algorithm_ms: float
    post_filters: int
    post_filter_ms: float
    pods_per_second: float


class BindLog:
    """Reads the times of bindings from the apiserver's audit log, as it grows."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb")
        self._file.seek(0, os.SEEK_END)
        self._rest = b""
        self.times: list[float] = []

    def read(self) -> int:
        """Read new lines; return the number of successful bindings so far."""
        *lines, self._rest = (self._rest + self._file.read()).split(b"\n")
        for event in map(json.loads, lines):
            if event["responseStatus"]["code"] == 201:
                stamp = datetime.datetime.fromisoformat(event["stageTimestamp"])
                self.times.append(stamp.timestamp())
        return len(self.times)


def timing(family: Metric, **labels: str) -> tuple[int, float]:
    """Return the count of a histogram, and its mean in milliseconds."""
    count = seconds = 0.0
    for sample in family.samples:
        if labels.items() <= sample.labels.items():
            count += sample.value if sample.name.endswith("_count") else 0
            seconds += sample.value if sample.name.endswith("_sum") else 0
    return int(count), 1000 * seconds / count if count else 0.0


class BenchEnvironment:
    """A control plane with the objects of one family."""

    def __init__(self, plane: ControlPlane, family: Family, options: argparse.Namespace) -> None:
        self.plane = plane
        self._client = plane.client
        self._family = family
        self._options = options

    def create_cluster(self) -> None:
        """Create the objects that both schedulers use."""
        nodes = [node(number) for number in range(self._options.nodes)]
        names = [one["metadata"]["name"] for one in nodes]
        self._create([*self._family.once, *nodes])
        self._create(thing for name in names for thing in self._family.of_node(name))

    def create_pods(self) -> None:
        """Create the pods, the pending ones last."""
        options, family = self._options, self._family
        waiting = [f"waiting-{number}" for number in range(options.pods)]
        self._create(thing for name in waiting for thing in family.belongings(name))
        if not self._client.count(PODS):
            self._create(family.placed(options.placed, options.nodes))
        self._create(map(family.pending, waiting))

    def delete_pods(self) -> None:
        """Delete the pods that were scheduled, and after preemption all others too.

        Volumes and their claims remain.
        """
        which = {} if isinstance(self._family, Preempting) else {"labelSelector": "waiting=yes"}
        self._client.delete(PODS, gracePeriodSeconds="0", **which)
        eventually(120, "pods deleted", lambda: not self._client.count(PODS, **which))
        claims = [one["metadata"]["name"] for one in self._client.list(PATHS["ResourceClaim"])]
        self._client.in_parallel(self._remove_claim, claims)

    def _remove_claim(self, name: str) -> None:
        path = f"{PATHS['ResourceClaim']}/{name}"
        self._client.patch(path, {"metadata": {"finalizers": None}})
        self._client.delete(path)

    def _create(self, bodies: Iterable[Json]) -> None:
        self._client.in_parallel(self._create_one, bodies)

    def _create_one(self, body: Json) -> None:
        path = PATHS[body["kind"]]
        try:
            self._client.create(path, body)
        except ApiFailure as failure:
            if failure.status != 409:  # a volume of the first scheduler's pods exists already
                raise
        if body["kind"] == "PodDisruptionBudget":
            self._client.patch(
                f"{path}/{body['metadata']['name']}/status", {"status": body["status"]}
            )


def measure(environment: BenchEnvironment, kind: Kind, program: Path, pods: int) -> Cost:
    """Let one scheduler schedule the pending pods; return its figures."""
    plane = environment.plane
    kubeconfig = plane.write_kubeconfig(plane.folder / "scheduler.kubeconfig", token=ADMIN_TOKEN)
    config = configuration([PROFILE], kubeconfig)
    binds = BindLog(plane.folder / "audit.log")
    scheduler = SchedulerProcess(kind, program, config, plane.folder, kind, ["-v=0"])
    scheduler.run()
    ready = time.time()
    try:
        scheduler.wait_for(TIMEOUT_SECONDS, f"{pods} binds", lambda: binds.read() >= pods)
        families = scheduler.metrics(ADMIN_TOKEN)
    finally:
        scheduler.kill()
    attempts, algorithm = timing(families["scheduler_scheduling_algorithm_duration_seconds"])
    points = families["scheduler_framework_extension_point_duration_seconds"]
    preemptions, post_filter = timing(points, extension_point="PostFilter")
    rate = pods / (max(binds.times) - min(ready, *binds.times))
    return Cost(kind, attempts, algorithm, preemptions, post_filter, rate)


def compare(name: str, options: argparse.Namespace) -> list[Cost]:
    """Run both schedulers with one family, on a new control plane."""
    programs = {
        "kube-scheduler": find_or_build(["kube-scheduler"])["kube-scheduler"],
        "proreus": Path(sys.executable),
    }
    with tempfile.TemporaryDirectory(prefix="proreus-bench-") as folder:
        plane = ControlPlane(find_or_build(["etcd", "kube-apiserver"]), Path(folder) / "plane")
        try:
            plane.start()
            environment = BenchEnvironment(plane, FAMILIES[name], options)
            environment.create_cluster()
            costs = []
            for kind in KINDS:
                environment.create_pods()
                costs.append(measure(environment, kind, programs[kind], options.pods))
                environment.delete_pods()
            return costs
        finally:
            plane.stop()


def show(name: str, theirs: Cost, ours: Cost) -> None:
    """Print a line for the algorithm, and one for PostFilter where there was any."""
    figures = [(name, theirs.algorithm_ms, ours.algorithm_ms)]
    if theirs.post_filters:
        figures.append(("  PostFilter", theirs.post_filter_ms, ours.post_filter_ms))
    figures.append(("  pods/s", theirs.pods_per_second, ours.pods_per_second))
    for title, before, after in figures:
        print(f"{title:<28}{before:>16.2f}{after:>12.2f}{after / before:>8.2f}", flush=True)


def main() -> None:
    """Measure the families, and print each line of the table when it is complete."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("families", nargs="*", metavar="FAMILY", help=", ".join(FAMILIES))
    parser.add_argument("--nodes", type=int, default=5_000)
    parser.add_argument("--placed", type=int, default=10_000)
    parser.add_argument("--pods", type=int, default=1_000)
    parser.add_argument("--json", type=Path, help="append what was measured to this file")
    options = parser.parse_args()
    print(f"{'mean of an attempt, ms':<28}{'kube-scheduler':>16}{'proreus':>12}{'ratio':>8}")
    for name in options.families or FAMILIES:
        theirs, ours = compare(name, options)
        show(name, theirs, ours)
        if options.json:
            settings = {"nodes": options.nodes, "placed": options.placed, "pods": options.pods}
            line = {"family": name, **settings, "costs": [asdict(theirs), asdict(ours)]}
            with options.json.open("a") as file:
                file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
