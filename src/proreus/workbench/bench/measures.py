"""The measurements of one pass: throughput, latencies, algorithm time, CPU, memory, spread."""

from __future__ import annotations

import math
import statistics
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from prometheus_client.parser import text_string_to_metric_families

from proreus.base.metrics.families import quantile
from proreus.objects.codec import decoder_for
from proreus.objects.kinds import NODES, PODS
from proreus.objects.pod import is_terminal
from proreus.objects.quantity import parse_amount
from proreus.objects.requests import pod_requests
from proreus.workbench.bench.api import Api
from proreus.workbench.bench.pods import ObservedBinding, PodTracker
from proreus.workbench.bench.processes import Child, machine_cpu_seconds
from proreus.workbench.bench.schedulers import SchedulerProcess, wait_until_idle

ALGORITHM = "scheduler_scheduling_algorithm_duration_seconds"
_IDLE_TIMEOUT_SECONDS = 10.0
_SHARED = ("cpu", "memory")


@dataclass
class Period:
    """The measurements of one period. Times are in seconds unless the name has a unit."""

    name: str
    pods: int
    seconds: float
    pods_per_second: float
    each_second: list[int]
    """Pods bound in each second of the period."""
    latency_p50: float
    latency_p90: float
    latency_p99: float
    algorithm_mean_ms: float | None
    algorithm_p99_ms: float | None
    cpu_seconds: dict[str, float]
    """CPU time of each process, from the start until the scheduler has written its last Event."""
    other_cpus_busy: float = 0.0
    """The number of CPUs that other processes kept busy meanwhile; a high value means noisy
    figures.
    """


@dataclass
class Pass:
    """The results of one scheduler with one workload, in one round."""

    scheduler: str
    round: int
    periods: list[Period] = field(default_factory=list)
    peak_rss_bytes: dict[str, int] = field(default_factory=dict)
    start_seconds: float = 0.0
    utilisation_spread: float = 0.0
    """Standard deviation of the nodes' utilisation (mean of CPU and memory), in per cent."""
    log_errors: list[str] = field(default_factory=list)
    failure: str = ""
    """Why the pass did not complete; its measurements are then meaningless."""

    @property
    def main(self) -> Period | None:
        """The period with the most pods, or None."""
        return max(self.periods, key=lambda period: period.pods, default=None)


class PeriodCollector:
    """Measures periods: the bindings that a watch shows, and the CPU that the processes use."""

    def __init__(self, pods: PodTracker, children: Mapping[str, Child]) -> None:
        self.periods: list[Period] = []
        self.scheduler: SchedulerProcess | None = None
        self._pods = pods
        self._children = dict(children)

    async def start(
        self, name: str, namespaces: list[str], labels: dict[str, str], *, at_once: bool
    ) -> None:
        """Start a period, ``at_once`` or once the scheduler has become idle."""
        assert self.scheduler is not None, "no scheduler runs yet"
        if not at_once:
            await wait_until_idle(self.scheduler, _IDLE_TIMEOUT_SECONDS)
        self._name, self._namespaces, self._labels = name, frozenset(namespaces), labels
        self._metrics = await self.scheduler.metrics()
        self._cpu, self._machine_cpu = self._cpu_seconds(), machine_cpu_seconds()
        self._first = len(self._pods.bindings)
        self.restart_clock()

    def restart_clock(self) -> None:
        """Count the time of the period from now on, when the scheduler may begin with its
        backlog.
        """
        self._began = time.perf_counter()

    async def stop(self) -> None:
        """End the period, and wait until the scheduler has written its remaining Events."""
        assert self.scheduler is not None
        ended = time.perf_counter()
        bindings = [
            binding
            for binding in self._pods.bindings[self._first :]
            if binding.namespace in self._namespaces
            and self._labels.items() <= binding.labels.items()
        ]
        await wait_until_idle(self.scheduler, _IDLE_TIMEOUT_SECONDS)
        cpu = {name: used - self._cpu[name] for name, used in self._cpu_seconds().items()}
        others = machine_cpu_seconds() - self._machine_cpu - sum(cpu.values())
        others /= time.perf_counter() - self._began
        mean, p99 = histogram_between(ALGORITHM, self._metrics, await self.scheduler.metrics())
        self.periods.append(self._period(bindings, ended, mean, p99, cpu, others))

    def _period(
        self,
        bindings: Sequence[ObservedBinding],
        ended: float,
        mean: float | None,
        p99: float | None,
        cpu: dict[str, float],
        other_cpus_busy: float,
    ) -> Period:
        times = sorted(binding.bound for binding in bindings)
        # a leader may bind before the bench has seen that it leads
        began = min([self._began, *times[:1]])
        seconds = max((times[-1] if times else ended) - began, 1e-3)
        each_second = [0] * math.ceil(seconds)
        for moment in times:
            each_second[min(int(moment - began), len(each_second) - 1)] += 1
        # pods of a backlog were held back on purpose, so their latency counts from the start
        latencies = [each.bound - max(each.created or began, began) for each in bindings]
        p50, p90, p99_latency = (percentile(latencies, part) for part in (0.5, 0.9, 0.99))
        return Period(
            name=self._name,
            pods=len(times),
            seconds=seconds,
            pods_per_second=len(times) / seconds,
            each_second=each_second,
            latency_p50=p50,
            latency_p90=p90,
            latency_p99=p99_latency,
            algorithm_mean_ms=None if mean is None else 1000 * mean,
            algorithm_p99_ms=None if p99 is None else 1000 * p99,
            cpu_seconds=cpu,
            other_cpus_busy=other_cpus_busy,
        )

    def _cpu_seconds(self) -> dict[str, float]:
        assert self.scheduler is not None
        children = {"scheduler": self.scheduler, **self._children}
        own = time.process_time()
        return {name: child.cpu_seconds() for name, child in children.items()} | {"bench": own}

    def peak_rss_bytes(self) -> dict[str, int]:
        """Return the peak resident memory of each process, in bytes."""
        assert self.scheduler is not None
        children = {"scheduler": self.scheduler, **self._children}
        return {name: child.peak_rss_bytes() for name, child in children.items()}


def percentile(values: Iterable[float], part: float) -> float:
    """Return the ``part`` quantile (0 to 1) by nearest rank; 0 if there are no values."""
    ordered = sorted(values)
    return ordered[max(math.ceil(part * len(ordered)) - 1, 0)] if ordered else 0.0


def histogram_between(name: str, before: str, after: str) -> tuple[float | None, float | None]:
    """Return the mean and the 99th percentile of a histogram's observations between two scrapes.

    Both are None if nothing was observed.
    """
    added = _added(name, before, after)
    if not (count := added[f"{name}_count"]):
        return None, None
    limits = {float(key): value for key, value in added.items() if not key.startswith(name)}
    bounds = sorted(limits)
    cumulative = [limits[bound] for bound in bounds]
    counts = [upto - below for upto, below in zip(cumulative, [0.0, *cumulative], strict=False)]
    return added[f"{name}_sum"] / count, quantile(0.99, bounds[:-1], counts)


def _added(name: str, before: str, after: str) -> Mapping[str, float]:
    """Return the growth of a histogram's sum, count, and cumulative buckets by upper bound."""
    added: defaultdict[str, float] = defaultdict(float)
    for sign, text in ((1, after), (-1, before)):
        for family in text_string_to_metric_families(text):
            for sample in family.samples if family.name == name else ():
                added[sample.labels.get("le", sample.name)] += sign * sample.value
    return added


async def utilisation_spread(api: Api) -> float:
    """Return the standard deviation of the nodes' utilisation, in per cent.

    A node's utilisation is the mean of the requested shares of its CPU and its memory; nodes that
    lack either are ignored.
    """
    used: dict[str, Counter[str]] = defaultdict(Counter)
    pods = decoder_for(PODS.type)
    for item in await api.list("/api/v1/pods"):
        pod = pods.convert(item)
        if pod.spec.node_name and not is_terminal(pod):
            used[pod.spec.node_name].update(pod_requests(pod))
    shares = []
    nodes = decoder_for(NODES.type)
    for item in await api.list("/api/v1/nodes"):
        node = nodes.convert(item)
        amounts = node.status.allocatable
        allocatable = {key: parse_amount(key, amounts.get(key, "0")) for key in _SHARED}
        if all(allocatable.values()):
            mine = used[node.metadata.name]
            shares.append(100 * statistics.fmean(mine[key] / allocatable[key] for key in _SHARED))
    return statistics.pstdev(shares) if shares else 0.0
