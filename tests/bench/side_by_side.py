"""Drain the same waiting pods with kube-scheduler and with proreus, on one real apiserver.

    python tests/bench/side_by_side.py --rounds 3

Each drain starts from the same place: fake nodes, fresh pods that nobody has tried, and a scheduler
that stands by with warm caches because this script holds the Lease. Then the Lease is given up, and
the clock runs from the first bind to the last as the apiserver's audit log tells them, so that
nothing polls while it runs. CPU is counted from just before until the Events have been written too.

Rounds take turns in who goes first. Both get the same configuration; ``--plugins shared`` (the
plugins that both have) compares like with like, ``--plugins default`` what each does by default.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

# out with this folder, whose modules would hide some of the standard library's
sys.path.pop(0)
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "controlplane"))

from testground import findings, objects
from testground.binaries import MissingBinaries, find_or_build
from testground.children import CLOCK_TICKS_A_SECOND, Child, eventually
from testground.control_plane import ADMIN_TOKEN, ControlPlane
from testground.kube_client import KubeClient
from testground.schedulers import SHARED_PLUGINS, Kind, SchedulerProcess, configuration, profile

Json = dict[str, Any]

KINDS: tuple[Kind, ...] = ("kube-scheduler", "proreus")
SCHEDULER_NAME = "drain"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
LEASE = {
    "leaderElect": True,
    "resourceName": SCHEDULER_NAME,
    "leaseDuration": "15s",
    "renewDeadline": "10s",
    "retryPeriod": "1s",
}
STILL_SECONDS = 1.0
"""A scheduler that used no CPU to speak of for so long has nothing left to do."""


@dataclass
class Drain:
    """What one scheduler did with one load."""

    kind: str
    pods_per_second: float
    seconds: float
    scheduler_cpu_ms_per_pod: float
    apiserver_cpu_ms_per_pod: float
    etcd_cpu_ms_per_pod: float
    scheduler_peak_rss_mib: float
    start_seconds: float
    start_cpu_seconds: float
    other_cpus_busy: float
    """How many CPUs others kept busy meanwhile, this script included: noise, if it is much."""


RATIOS = (
    ("pods_per_second", "pods/s"),
    ("scheduler_cpu_ms_per_pod", "CPU ms a pod, scheduler"),
    ("apiserver_cpu_ms_per_pod", "CPU ms a pod, apiserver"),
    ("etcd_cpu_ms_per_pod", "CPU ms a pod, etcd"),
    ("scheduler_peak_rss_mib", "peak RSS, MiB"),
    ("start_seconds", "s until ready"),
    ("start_cpu_seconds", "CPU s until ready"),
    ("other_cpus_busy", "CPUs busy with others"),
)


class BindLog:
    """Reads the audit log as it grows: one line a bind request."""

    def __init__(self, path: Path) -> None:
        self._file = open(path, "rb") if path.exists() else open(os.devnull, "rb")  # noqa: SIM115
        self._file.seek(0, os.SEEK_END)
        self._rest = b""
        self.times: list[float] = []

    def read(self) -> int:
        """Take in what is new; return the number of successful binds so far."""
        *lines, self._rest = (self._rest + self._file.read()).split(b"\n")
        for line in lines:
            event = json.loads(line)
            if event["responseStatus"]["code"] == 201:
                stamp = datetime.datetime.fromisoformat(event["stageTimestamp"])
                self.times.append(stamp.timestamp())
        return len(self.times)


def hold_lease(client: KubeClient) -> None:
    """Keep every scheduler standing by."""
    now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    spec = {
        "holderIdentity": "bench",
        "leaseDurationSeconds": 3600,
        "acquireTime": now,
        "renewTime": now,
        "leaseTransitions": 0,
    }
    client.delete(f"{LEASES}/{SCHEDULER_NAME}")
    client.create(LEASES, {"metadata": {"name": SCHEDULER_NAME}, "spec": spec})


def give_lease_up(client: KubeClient) -> None:
    """Let the one that stands by lead."""
    client.patch(f"{LEASES}/{SCHEDULER_NAME}", {"spec": {"holderIdentity": ""}})


def make_pods(count: int, shapes: int, tag: str) -> Iterable[Json]:
    """Yield pods that ask for little, in so many different ways."""
    for index in range(count):
        yield objects.pod(
            f"{tag}-{index:06}",
            SCHEDULER_NAME,
            cpu=f"{100 + index % shapes}m",
            memory=f"{128 + index % shapes}Mi",
        )


def clear(client: KubeClient) -> None:
    """Delete all pods and Events, so that each drain finds the same cluster."""
    client.delete("/api/v1/namespaces/default/pods", gracePeriodSeconds="0")
    eventually(120, "all pods deleted", lambda: client.count(findings.ALL_PODS) == 0)
    client.delete("/apis/events.k8s.io/v1/namespaces/default/events")


def machine_cpu_seconds() -> float:
    """Return what all CPUs together have worked since boot, for whomever."""
    user, nice, system, _, _, irq, soft = map(int, Path("/proc/stat").read_text().split()[1:8])
    return (user + nice + system + irq + soft) / CLOCK_TICKS_A_SECOND


def wait_until_still(child: Child) -> None:
    """Wait until a process has nothing left to do, at most half a minute."""
    deadline = time.monotonic() + 30
    before = child.cpu_seconds()
    while time.monotonic() < deadline:
        time.sleep(STILL_SECONDS)
        now = child.cpu_seconds()
        if now - before < 0.05 * STILL_SECONDS:
            return
        before = now


def drain(
    plane: ControlPlane, kind: Kind, program: Path, options: argparse.Namespace, tag: str
) -> Drain:
    """Let one scheduler bind all pods; return how it went. Raises when it did it wrongly."""
    client = plane.client
    hold_lease(client)
    client.create_all(objects.PODS, make_pods(options.pods, options.shapes, tag))
    plugins = SHARED_PLUGINS if options.plugins == "shared" else ()
    # as a pod in the cluster: by token, which costs the apiserver less than a certificate does
    kubeconfig = plane.write_kubeconfig(plane.folder / "scheduler.kubeconfig", token=ADMIN_TOKEN)
    config = configuration([profile(SCHEDULER_NAME, plugins=plugins)], kubeconfig, LEASE)
    scheduler = SchedulerProcess(kind, program, config, plane.folder, f"{kind}-{tag}", ["-v=0"])
    started = time.monotonic()
    scheduler.run()
    start_seconds = time.monotonic() - started
    try:
        wait_until_still(scheduler)
        wait_until_still(plane.apiserver)
        log = BindLog(plane.folder / "audit.log")
        children: tuple[Child, ...] = (scheduler, plane.apiserver, plane.etcd)
        before = [child.cpu_seconds() for child in children]
        all_before, wall_before = machine_cpu_seconds(), time.monotonic()
        give_lease_up(client)
        scheduler.require(
            options.timeout, f"{options.pods} binds", lambda: log.read() >= options.pods
        )
        wait_until_still(scheduler)
        after = [child.cpu_seconds() for child in children]
        others = machine_cpu_seconds() - all_before - (sum(after) - sum(before))
        elapsed = time.monotonic() - wall_before
        mine, apiservers, etcds = (
            1000 * (late - early) / options.pods for early, late in zip(before, after, strict=True)
        )
        seconds = max(log.times) - min(log.times)
        findings.check_no_node_over_committed(
            client.list(objects.NODES), client.list(findings.ALL_PODS)
        )
        return Drain(
            kind=kind,
            pods_per_second=options.pods / seconds,
            seconds=seconds,
            scheduler_cpu_ms_per_pod=mine,
            apiserver_cpu_ms_per_pod=apiservers,
            etcd_cpu_ms_per_pod=etcds,
            scheduler_peak_rss_mib=scheduler.peak_rss_bytes() / 2**20,
            start_seconds=start_seconds,
            start_cpu_seconds=before[0],
            other_cpus_busy=others / elapsed,
        )
    finally:
        scheduler.kill()
        clear(client)


def machine() -> Json:
    """Return what the figures depend on."""
    cpuinfo = Path("/proc/cpuinfo").read_text().splitlines()
    models = [line.partition(":")[2].strip() for line in cpuinfo if line.startswith("model name")]
    return {
        "cpus": os.cpu_count(),
        "cpu": models[0] if models else platform.processor(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "python": platform.python_version(),
    }


def medians(drains: Sequence[Drain]) -> dict[str, dict[str, float]]:
    """Return the median of every figure for each scheduler that drained."""
    return {
        kind: {
            field: statistics.median(getattr(each, field) for each in drains if each.kind == kind)
            for field, _ in RATIOS
        }
        for kind in dict.fromkeys(each.kind for each in drains)
    }


def show(middle: dict[str, dict[str, float]]) -> None:
    """Print the medians side by side, and proreus's share of kube-scheduler's."""
    print(f"{'':26}" + "".join(f"{kind:>16}" for kind in middle) + f"{'ratio':>10}")
    for field, title in RATIOS:
        values = [middle[kind][field] for kind in middle]
        line = f"{title:26}" + "".join(f"{value:16.2f}" for value in values)
        if set(middle) == set(KINDS):
            line += f"{middle['proreus'][field] / middle['kube-scheduler'][field]:10.2f}"
        print(line)


def run(options: argparse.Namespace, folder: Path) -> list[Drain]:
    """Bring a control plane up and let the schedulers drain it, round by round."""
    binaries = find_or_build(["etcd", "kube-apiserver", "kube-scheduler"])
    programs = {"kube-scheduler": binaries["kube-scheduler"], "proreus": Path(sys.executable)}
    plane = ControlPlane(binaries, folder)
    drains: list[Drain] = []
    try:
        plane.start()
        nodes = (objects.node(index) for index in range(options.nodes))
        plane.client.create_all(objects.NODES, nodes)
        for number in range(options.rounds):
            kinds = options.schedulers[:: 1 if number % 2 == 0 else -1]
            for kind in kinds:
                one = drain(plane, kind, programs[kind], options, f"{kind[:1]}{number}")
                drains.append(one)
                print(
                    f"round {number + 1}: {kind:15} {one.pods_per_second:7.0f} pods/s, "
                    f"{one.scheduler_cpu_ms_per_pod:.2f} ms CPU a pod, "
                    f"others kept {one.other_cpus_busy:.1f} CPUs busy",
                    file=sys.stderr,
                )
    finally:
        plane.stop()
    return drains


def main() -> int:
    """Parse the flags, drain, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--pods", type=int, default=5000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--shapes", type=int, default=1, help="how many different pods there are")
    parser.add_argument("--plugins", choices=("shared", "default"), default="shared")
    parser.add_argument("--schedulers", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--timeout", type=float, default=120, help="seconds that a drain may take")
    parser.add_argument("--json", type=Path, help="write everything that was measured there")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="proreus-bench-") as folder:
        try:
            drains = run(options, Path(folder) / "plane")
        except MissingBinaries as missing:
            print(f"no real control plane here: {missing}", file=sys.stderr)
            return 1
    middle = medians(drains)
    here = machine()
    print(
        f"{options.pods} pods of {options.shapes} shape(s) on {options.nodes} nodes, "
        f"{options.plugins} plugins, median of {options.rounds}; "
        f"{here['cpus']} CPUs ({here['cpu']}), {here['memory_gib']} GiB"
    )
    show(middle)
    if options.json:
        settings = {key: value for key, value in vars(options).items() if key != "json"}
        report = {
            "machine": here,
            "settings": settings,
            "median": middle,
            "drains": [asdict(each) for each in drains],
        }
        options.json.write_text(json.dumps(report, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
