"""Does anything grow? Pods created and deleted at a constant population, for an hour or longer.

    PYTHONPATH=tests python -m bench.soak [--duration SECONDS] [--cluster embedded|real]

An hour is 500,000 pods on the embedded cluster, 50,000 on a real control plane; a shorter run has
the same rate. The pods are of all kinds (``soak_load``), and one node in a while is replaced. RSS,
open files, asyncio tasks, loop lag and the number of time series of the scheduler are sampled, and
the run fails if one of them grows (``flatness``).
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

# the real control plane's own tools
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "controlplane"))

from envtest.schedulers import SchedulerProcess, configuration
from prometheus_client import Metric

from bench.flatness import Sample, draw, report
from bench.soak_load import CLUSTERS, POPULATION, Churn, Cluster
from proreus.workbench.bench.processes import ChildFailed

START_SECONDS = 60
STEP_SECONDS = 0.1
SAMPLES = 120
RECORD_BYTES = 4 << 20
"""Of the record of decisions: full before what counts begins, in runs of ten minutes or more. The
default of 64 MiB holds 40,000 attempts, those of three quarters of an hour on a real cluster."""


class Probe:
    """Samples one scheduler process."""

    def __init__(self, scheduler: SchedulerProcess, token: str) -> None:
        self._scheduler = scheduler
        self._token = token
        self._lag = (0.0, 0.0)
        self.scheduled = 0

    def sample(self, second: float) -> Sample:
        """Return the values of all measures now."""
        families = self._scheduler.metrics(self._token)
        lag = _sum_and_count(families["proreus_loop_lag_seconds"])
        seconds, count = (new - old for new, old in zip(lag, self._lag, strict=True))
        self._lag = lag
        self.scheduled = int(
            sum(
                one.value
                for one in families["scheduler_schedule_attempts"].samples
                if one.labels["result"] == "scheduled"
            )
        )
        folder = Path(f"/proc/{self._scheduler.pid}")
        pages = int((folder / "statm").read_text().split()[1])
        return Sample(
            second,
            {
                "rss_mib": pages * os.sysconf("SC_PAGE_SIZE") / 2**20,
                "open_files": len(list((folder / "fd").iterdir())),
                "tasks": families["proreus_event_loop_tasks"].samples[0].value,
                "loop_lag_ms": 1000 * seconds / count if count else 0.0,
                "series": sum(len(family.samples) for family in families.values()),
            },
        )


def _sum_and_count(histogram: Metric) -> tuple[float, float]:
    values = {sample.name.rpartition("_")[2]: sample.value for sample in histogram.samples}
    return values["sum"], values["count"]


def soak(cluster: Cluster, folder: Path, duration: float, keep: Callable[[Sample], None]) -> int:
    """Run a scheduler under load; call ``keep`` with each sample; return the pods scheduled."""
    config = configuration([{"schedulerName": "default-scheduler"}], cluster.kubeconfig)
    del config["clientConnection"]["qps"], config["clientConnection"]["burst"]
    flags = ["-v=0", f"--decision-record-bytes={RECORD_BYTES}"]
    scheduler = SchedulerProcess("proreus", Path(sys.executable), config, folder, flags=flags)
    scheduler.start()
    try:
        scheduler.wait_for(START_SECONDS, "readyz", lambda: scheduler.get("/readyz")[0] == 200)
        probe, churn = Probe(scheduler, cluster.token), Churn(cluster)
        interval = max(duration / SAMPLES, 1.0)
        begun = time.monotonic()
        next_sample = 0.0
        while (second := time.monotonic() - begun) < duration:
            churn.advance(second)
            if second >= next_sample:
                keep(probe.sample(second))
                next_sample = second + interval
            if not scheduler.running:
                raise ChildFailed(f"the scheduler has ended\n{scheduler.log_tail()}")
            time.sleep(STEP_SECONDS)
        keep(probe.sample(duration))
        print(
            f"{churn.created} pods created, {churn.deleted} deleted, {churn.nodes} nodes replaced"
        )
        return probe.scheduled
    finally:
        scheduler.kill()


def main() -> None:
    """Run, print the table, draw the plot; exit with 1 if anything grew."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--duration", type=float, default=3_600, help="seconds")
    parser.add_argument("--cluster", choices=CLUSTERS, default="embedded")
    parser.add_argument("--plot", type=Path, help="draw the samples to this file (.svg)")
    parser.add_argument("--json", type=Path, help="append the samples to this file")
    options = parser.parse_args()
    samples: list[Sample] = []

    def keep(sample: Sample) -> None:
        samples.append(sample)
        values = " ".join(f"{name}={value:.1f}" for name, value in sample.values.items())
        print(f"{sample.second:6.0f} s  {values}", flush=True)
        if options.json:
            with options.json.open("a") as file:
                file.write(json.dumps({"second": sample.second, **sample.values}) + "\n")

    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="proreus-soak-")))
        cluster = CLUSTERS[options.cluster](folder)
        stack.callback(cluster.close)
        scheduled = soak(cluster, folder, options.duration, keep)
    print(f"{scheduled} pods scheduled, {POPULATION} at a time")
    if options.plot:
        draw(options.plot, samples)
    grown = report(samples)
    sys.exit(1 if grown else 0)


if __name__ == "__main__":
    main()
