"""One run: a cluster, two schedulers, waves of hostile objects, and what came of them."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from envtest import assertions, objects, pod_groups
from envtest.control_plane import ADMIN_TOKEN, ControlPlane
from envtest.kube_client import KubeClient
from envtest.progress import say
from envtest.schedulers import LEASE, RunScheduler, SchedulerProcess, configuration, profile
from envtest.waiting import eventually
from hostile.allocator import allocator_environment
from prometheus_client import Metric

from hostile_run import bind_at_once
from hostile_run.bind_at_once import BindAtOnce
from hostile_run.figures import Figures, count_between, total
from hostile_run.load import HostileLoad
from hostile_run.odd_values import CLASS, DRIVER
from hostile_run.probes import Probes
from proreus.base.bounded_cache import AGE_INTERVAL_SECONDS

Json = dict[str, Any]

APISERVER_FLAGS = [
    *pod_groups.flags_of(pod_groups.ALL_GATES),
    *pod_groups.APISERVER_FLAGS,
    # no controller removes its finalizers
    "--disable-admission-plugins=StorageObjectInUseProtection",
]
ELECTION = {"leaderElect": True, "resourceName": "proreus"}
"""The Lease of the default configuration: 15 s."""

_DEVICE_NODES, _DEVICES = 20, 16
_BATCH = 50
"""How many objects of each kind exist at the same time."""
_WAVES = 3
_RECORD_BYTES = 4 * 2**20
"""Of decisions: full after the first wave."""
_CALM_SECONDS = 2.0


class HostileRun:
    """Creates and deletes ``count`` objects of each kind in a cluster with ``nodes`` nodes.

    They come in waves of the same objects. ``settle_seconds``: how long caches may take to forget
    what is gone, after each of them. ``logs``: the folder that
    gets the schedulers' logs.
    """

    def __init__(
        self,
        plane: ControlPlane,
        run_scheduler: RunScheduler,
        *,
        count: int,
        nodes: int,
        seed: int,
        settle_seconds: float = 3 * AGE_INTERVAL_SECONDS,
        logs: Path | None = None,
    ) -> None:
        self._plane = plane
        self._client = plane.client
        self._run_scheduler = run_scheduler
        self._count = count
        self._nodes = nodes
        self._settle_seconds = settle_seconds
        self._logs = logs
        self._load = HostileLoad(plane.client, seed)
        self._figures = Figures()

    def run(self) -> Figures:
        """Run, and return the figures."""
        figures, load = self._figures, self._load
        create_cluster(self._client, self._nodes)
        with ExitStack() as cleanup:
            schedulers = self._start(cleanup)
            if unserved := load.leave_out_unserved():
                say(f"the apiserver does not serve {', '.join(unserved)}")
            binder = BindAtOnce(self._new_client(), node=f"node-{self._nodes - 1:05}")
            binder.start()
            cleanup.callback(binder.stop)
            probes = self._start_probes(cleanup, "default-scheduler")
            least = self._start_probes(cleanup, bind_at_once.SCHEDULER)
            # what is imported, compiled and cached once and for all belongs to the memory before
            self._batch(0, min(self._count, 10), large=False)
            time.sleep(_CALM_SECONDS * 5)
            load.stored.clear()
            load.refused.clear()
            load.refusals.clear()
            figures.quiet_waits, figures.quiet_least = probes.waits[-20:], least.waits[-20:]
            figures.rss_before = {one.name: one.rss_bytes() / 2**20 for one in schedulers}
            before = [one.metrics(ADMIN_TOKEN) for one in schedulers]
            transitions = self._transitions()
            for _ in range(_WAVES):
                probes.waits.clear()
                least.waits.clear()
                started = time.monotonic()
                self._wave(-(-self._count // _WAVES))
                figures.seconds += time.monotonic() - started
                figures.waits += probes.waits
                figures.least += least.waits
                time.sleep(self._settle_seconds)
                figures.rss_after.append({one.name: one.rss_bytes() / 2**20 for one in schedulers})
            probes.stop()
            least.stop()
            figures.lost = probes.lost
            figures.left = load.left()
            self._judge(schedulers, before, transitions)
        return figures

    def _start(self, cleanup: ExitStack) -> list[SchedulerProcess]:
        """Start both schedulers; the leader alone on a processor, if there are several."""
        kubeconfig = self._plane.write_kubeconfig(
            self._plane.folder / "scheduler.kubeconfig", token=ADMIN_TOKEN
        )
        config = configuration([profile("default-scheduler")], kubeconfig, ELECTION)
        flags = [*pod_groups.flags_of(pod_groups.ALL_GATES), "--loop-blocked-threshold=100ms"]
        flags.append(f"--decision-record-bytes={_RECORD_BYTES}")
        environment = allocator_environment()
        leader = self._run_scheduler(config, flags=flags, environment=environment)
        cleanup.enter_context(apart_from(leader.pid))
        eventually(30, "a leader", lambda: leader.is_leader(ADMIN_TOKEN))
        standby = self._run_scheduler(config, flags=flags, environment=environment)
        self._client.create_all(
            objects.PODS, [objects.pod(f"warm-{n}", "default-scheduler") for n in range(20)]
        )
        assertions.wait_until_bound(self._client, 20, 60)
        return [leader, standby]

    def _start_probes(self, cleanup: ExitStack, scheduler: str) -> Probes:
        probes = Probes(self._new_client(), scheduler)
        probes.start()
        cleanup.callback(probes.stop)
        return probes

    def _new_client(self) -> KubeClient:
        return KubeClient.from_kubeconfig(self._plane.kubeconfig)

    def _wave(self, count: int) -> None:
        load = self._load
        load.begin_wave()
        for first in range(0, count, _BATCH):
            self._batch(1_000 + first, min(_BATCH, count - first))
            say(f"{sum(load.stored.values())} stored")

    def _batch(self, first: int, count: int, *, large: bool = True) -> None:
        self._load.create(first, count, large=large)
        time.sleep(_CALM_SECONDS)
        self._load.delete()
        # etcd keeps what was deleted until then, and stops at 2 GiB
        self._plane.compact_etcd()

    def _transitions(self) -> int:
        return int(self._client.get(LEASE)["spec"].get("leaseTransitions", 0))

    def _judge(
        self,
        schedulers: list[SchedulerProcess],
        before: list[dict[str, Metric]],
        transitions: int,
    ) -> None:
        figures, load = self._figures, self._load
        figures.stored, figures.refused = dict(load.stored), dict(load.refused)
        figures.refusals, figures.largest = load.refusals, dict(load.largest)
        figures.transitions = self._transitions() - transitions
        leader = schedulers[0].metrics(ADMIN_TOKEN)
        figures.cycles = count_between(
            leader, before[0], "scheduler_scheduling_algorithm_duration_seconds"
        )
        figures.lags = count_between(leader, before[0], "proreus_loop_lag_seconds")
        for one in schedulers:
            metrics = one.metrics(ADMIN_TOKEN)
            figures.unreadable += total(metrics, "proreus_objects_unreadable")
            figures.handler_failures += total(metrics, "proreus_informer_handler_failures")
        for one in schedulers:
            assert one.running, f"{one.name} has ended\n{one.log_tail()}"
            one.finish()
            if self._logs is not None:
                shutil.copy(one.log, self._logs)
            log = one.log.read_text(errors="replace")
            figures.log_bytes += len(log)
            figures.tracebacks += log.count("Traceback")


def create_cluster(client: KubeClient, nodes: int) -> None:
    """Create nodes, and devices on some of them."""
    client.create_all(objects.NODES, [objects.node(number) for number in range(nodes)])
    api = "/apis/resource.k8s.io/v1"
    client.create(f"{api}/deviceclasses", {"metadata": {"name": CLASS}, "spec": {}})
    for number in range(min(nodes, _DEVICE_NODES)):
        name = f"node-{number:05}"
        devices = [
            {"name": f"d{n}", "attributes": {"side": {"int": n % 2}, "number": {"int": n}}}
            for n in range(_DEVICES)
        ]
        pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
        spec = {"driver": DRIVER, "nodeName": name, "pool": pool, "devices": devices}
        client.create(f"{api}/resourceslices", {"metadata": {"name": name}, "spec": spec})


@contextmanager
def apart_from(pid: int) -> Iterator[None]:
    """Run a process on a processor of its own and all of ours on the others, if there are any.

    How late its event loop comes is then its own doing, and not the apiserver's, which has
    megabytes to store.
    """
    processors = os.sched_getaffinity(0)
    if len(processors) == 1:
        say("ONE PROCESSOR: how long pods wait also depends on what else it does")
        yield
        return
    own, *others = sorted(processors)
    _set_processors(pid, {own})
    for process in children_of(os.getpid()) - {pid}:
        _set_processors(process, set(others))
    _set_processors(os.getpid(), set(others))  # those that are started from now on, too
    try:
        yield
    finally:
        _set_processors(os.getpid(), processors)


def _set_processors(pid: int, processors: set[int]) -> None:
    for thread in os.listdir(f"/proc/{pid}/task"):
        with suppress(ProcessLookupError):  # a thread that has ended since it was listed
            os.sched_setaffinity(int(thread), processors)


def children_of(pid: int) -> set[int]:
    """Return the ids of the processes that a process has started."""
    children: set[int] = set()
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # ended since it was listed
            children.update(map(int, (thread / "children").read_text().split()))
    return children
