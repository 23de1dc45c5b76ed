"""How fast ``explain`` answers while pods are scheduled at full rate, and what that costs the rate.

    PYTHONPATH=tests python -m bench.explain_under_load [--nodes N] [--pods N] [--pairs N]

The embedded cluster, a ``proreus run`` and whoever asks are a process each. ``--pods`` pods are
created and scheduled at a time, in turn with and without questions: a placed pod and one that waits
for cpu, every ``--every`` seconds, over HTTPS with a bearer token, as ``proreus explain`` asks.
Neighbours make a pair; medians of the pairs' ratios are printed, for the rate and for the
scheduler's processor time a pod, and the milliseconds of the answers.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import select
import ssl
import statistics
import sys
import tempfile
from http.client import HTTPSConnection
from pathlib import Path
from time import monotonic, perf_counter, sleep

import uvloop
import yaml

from bench.sandbox import make_pod
from proreus.workbench.bench.processes import free_ports
from proreus.workbench.sandbox import Sandbox

PLACED, WAITING = "placed", "waiting"
_TICK = os.sysconf("SC_CLK_TCK")


class Scheduler:
    """A ``proreus run`` in a process of its own."""

    def __init__(self, process: asyncio.subprocess.Process, port: int) -> None:
        self.process = process
        self.port = port

    @classmethod
    async def start(cls, folder: Path, sandbox: Sandbox, record: int) -> Scheduler:
        """Start it; the cluster's tokens are good for its pages."""
        kubeconfig = str(sandbox.write_kubeconfig(folder / "kubeconfig"))
        [port] = free_ports(1)
        configuration = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "clientConnection": {"kubeconfig": kubeconfig, "qps": 5000, "burst": 5000},
            "leaderElection": {"leaderElect": False},
        }
        config = folder / "config.yaml"
        config.write_text(yaml.safe_dump(configuration))
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "proreus", "run", f"--config={config}"),
            *(f"--kubeconfig={kubeconfig}", "--bind-address=127.0.0.1", f"--secure-port={port}"),
            *(f"--authentication-kubeconfig={kubeconfig}",),
            *(f"--authorization-kubeconfig={kubeconfig}", f"--decision-record-bytes={record}"),
        )
        return cls(process, port)

    def cpu_seconds(self) -> float:
        """Return the processor time that the process has taken."""
        stat = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(stat[11]) + int(stat[12])) / _TICK

    async def end(self) -> None:
        """Stop it."""
        self.process.terminate()
        await self.process.wait()


def ask(port: int, token: str, every: float) -> None:
    """Ask until standard input ends; print the name and the milliseconds of each answer."""
    # A connection for each question, as a command makes; the certificate is self-signed.
    context = ssl._create_unverified_context()
    print("ready", flush=True)
    # Standard input becomes readable when it is closed.
    while not select.select([sys.stdin], [], [], 0)[0]:
        began = monotonic()
        for name in (PLACED, WAITING):
            asked = perf_counter()
            connection = HTTPSConnection("127.0.0.1", port, timeout=30, context=context)
            path = f"/explain/pod?namespace=default&name={name}"
            connection.request("GET", path, headers={"Authorization": f"Bearer {token}"})
            response = connection.getresponse()
            body = json.loads(response.read())
            connection.close()
            took = 1000 * (perf_counter() - asked)
            expected = "bound" if name == PLACED else "waiting"
            assert response.status == 200, body
            assert body["state"] == expected, body
            print(name, took, flush=True)
        sleep(max(began + every - monotonic(), 0))


class Bench:
    """The cluster, the scheduler and the pods so far."""

    def __init__(self, sandbox: Sandbox, scheduler: Scheduler, args: argparse.Namespace) -> None:
        self._sandbox = sandbox
        self._scheduler = scheduler
        self._args = args
        self._made = 0
        self.answers: dict[str, list[float]] = {PLACED: [], WAITING: []}

    def _bound(self, names: list[str]) -> bool:
        store = self._sandbox.store
        return all(store.get("pods", n, "default").object()["spec"].get("nodeName") for n in names)

    async def until_bound(self, names: list[str]) -> None:
        """Wait until pods have nodes."""
        while names:
            while names and self._bound(names[-1:]):
                names.pop()
            await asyncio.sleep(0.01)

    async def prepare(self) -> None:
        """Make the pods that are asked about."""
        large = make_pod(0)
        large["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "999"
        for name, pod in ((PLACED, make_pod(0)), (WAITING, large)):
            self._sandbox.store.create("pods", {**pod, "metadata": {"name": name}})
        await self.until_bound([PLACED])

    async def batch(self, asking: bool) -> tuple[float, float]:
        """Schedule a batch of pods; return seconds, and processor seconds of the scheduler."""
        asker = await self._start_asking() if asking else None
        cpu, began = self._scheduler.cpu_seconds(), perf_counter()
        names = []
        for _ in range(self._args.pods):
            pod = make_pod(self._made)
            self._sandbox.store.create("pods", pod)
            names.append(pod["metadata"]["name"])
            self._made += 1
        await self.until_bound(names)
        seconds = perf_counter() - began
        cpu = self._scheduler.cpu_seconds() - cpu
        if asker is not None:
            out, _ = await asker.communicate(b"")
            for line in out.decode().splitlines():
                name, took = line.split()
                self.answers[name].append(float(took))
        # Events are written after the bindings: they belong to this batch, not to the next.
        await asyncio.sleep(1)
        return seconds, cpu

    async def _start_asking(self) -> asyncio.subprocess.Process:
        options = (str(self._scheduler.port), self._sandbox.token, str(self._args.every))
        asker = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "bench.explain_under_load", "--ask", *options),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        # What its imports cost is not the cost of answers.
        assert asker.stdout is not None
        await asker.stdout.readline()
        return asker


async def measure(args: argparse.Namespace) -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as folder:
        async with Sandbox(args.nodes) as sandbox:
            scheduler = await Scheduler.start(Path(folder), sandbox, args.record)
            try:
                bench = Bench(sandbox, scheduler, args)
                await bench.prepare()
                await bench.batch(False)
                rates, cpus = [], []
                for number in range(args.pairs):
                    took = {}
                    for asking in (False, True) if number % 2 else (True, False):
                        took[asking] = await bench.batch(asking)
                    rates.append((args.pods / took[False][0], args.pods / took[True][0]))
                    cpus.append((took[False][1] / args.pods, took[True][1] / args.pods))
            finally:
                await scheduler.end()
    print(f"{'':<32}{'without':>10}{'asking':>10}{'ratio':>8}{'quartiles':>15}")
    for title, pairs, scale in (("pods/s", rates, 1.0), ("CPU, µs a pod", cpus, 1e6)):
        low, middle, high = statistics.quantiles([on / off for off, on in pairs], n=4)
        off, on = (scale * statistics.median(column) for column in zip(*pairs, strict=True))
        print(f"{title:<32}{off:>10.0f}{on:>10.0f}{middle:>8.3f}{low:>9.3f}-{high:.3f}")
    for name, took_ms in bench.answers.items():
        count, worst = len(took_ms), max(took_ms)
        text = f"answers about the {name} pod, ms"
        print(
            f"{text:<32}  median {statistics.median(took_ms):.1f}, max {worst:.1f}, {count} times"
        )


def main() -> None:
    """Measure, or be the process that asks."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--pods", type=int, default=3000, help="in a batch")
    parser.add_argument("--pairs", type=int, default=6)
    parser.add_argument("--every", type=float, default=1.0, help="seconds between questions")
    parser.add_argument("--record", type=int, default=64 * 2**20, help="bytes")
    parser.add_argument("--ask", nargs=3, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.ask:
        port, token, every = args.ask
        ask(int(port), token, float(every))
    else:
        uvloop.run(measure(args))


if __name__ == "__main__":
    main()
