"""GPUs allocated by each way of packing, on the tasks of Alibaba's GPU cluster of 2023.

    PYTHONPATH=tests python -m bench.openb DIR [--workload NAME ...] [--seeds N] [--plot FILE]

DIR holds ``nodes.csv`` and ``pods_WORKLOAD.csv`` (also ``.gz``) of the simulator that was published
with Q. Weng et al., "Beware of Fragmentation", USENIX ATC 2023 (repository
hkust-adsl/kubernetes-scheduler-simulator), and ``published.tsv``, the results of that paper. The
tasks of a workload, shuffled, arrive one after the other until they ask for 130 % of all GPUs. They
stay; a task that fits nowhere is lost. The table has the share of all GPUs that is allocated when
90, 100 and 130 % have been asked for, means over the seeds, and the milliseconds of an attempt.

The engine schedules them, with the plugins of a profile. Part of a GPU is the annotation
``gpu-fraction``; the models that a task accepts are a required node affinity.
"""

from __future__ import annotations

import argparse
import asyncio
import csv
import gzip
import random
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.progress import Progress

from bench.engine import mean_ms
from proreus.addons.device_share import DeviceShare
from proreus.base.feature_gates import FeatureGates
from proreus.config.load import load
from proreus.engine.runtime.registry import Registry
from proreus.offline.cluster import OfflineCluster, OfflineOptions
from proreus.plugins import IN_TREE_PLUGINS

Json = dict[str, Any]
ASKED = (90, 100, 130)
"""Percent of all GPUs that have been asked for when the allocated share is noted."""
MODEL = "nvidia.com/gpu.product"
_DEVICES = {"name": "DeviceShare", "weight": 1}
_WHOLE = 1000


def _fit(strategy: str, *resources: str) -> Json:
    weights = [{"name": name, "weight": 1} for name in resources]
    return {"scoringStrategy": {"type": strategy, "resources": weights}}


def _profile(score: Sequence[Json], strategy: str, fit: Json | None = None) -> Json:
    args = {"DeviceShare": {"scoringStrategy": {"type": strategy}}}
    if fit:
        args["NodeResourcesFit"] = fit
    return {
        "plugins": {
            "multiPoint": {"enabled": [_DEVICES]},
            "score": {"disabled": [{"name": "*"}], "enabled": list(score)},
        },
        "pluginConfig": [{"name": name, "args": one} for name, one in args.items()],
    }


_FIT = {"name": "NodeResourcesFit", "weight": 1}
POLICIES: Mapping[str, Json] = {
    "random": _profile([], "MostAllocated"),
    "LeastAllocated": _profile([_DEVICES], "LeastAllocated"),
    "MostAllocated": _profile([_DEVICES], "MostAllocated"),
    "best fit": _profile([_FIT, _DEVICES], "MostAllocated", _fit("MostAllocated", "cpu", "memory")),
    "LeastFragmented": _profile([_DEVICES], "LeastFragmented"),
}


@dataclass(frozen=True)
class Task:
    """A task of a workload: thousandths of a CPU, MiB, number of GPUs, thousandths of each."""

    cpu: int
    memory: int
    gpus: int
    milli: int
    models: tuple[str, ...]

    @property
    def asked(self) -> int:
        """The thousandths of GPUs that it asks for."""
        return self.gpus * self.milli

    def pod(self, name: str) -> Json:
        """Return the pod of the task."""
        requests = {"cpu": f"{self.cpu}m", "memory": f"{self.memory}Mi"}
        annotations = {}
        if self.gpus and self.milli < _WHOLE:
            annotations["gpu-fraction"] = str(self.milli / _WHOLE)
        elif self.gpus:
            requests["nvidia.com/gpu"] = str(self.gpus)
        spec: Json = {
            "schedulerName": "default-scheduler",
            "containers": [{"name": "main", "resources": {"requests": requests}}],
        }
        if self.models:
            one_of = {"key": MODEL, "operator": "In", "values": list(self.models)}
            terms = {"nodeSelectorTerms": [{"matchExpressions": [one_of]}]}
            required = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
            spec["affinity"] = {"nodeAffinity": required}
        metadata = {"name": name, "namespace": "default", "uid": name, "annotations": annotations}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


@dataclass
class Run:
    """The results of a policy for a seed: ``allocated``, percent, at each of ``ASKED``."""

    allocated: list[float] = field(default_factory=list)
    curve: list[tuple[float, float]] = field(default_factory=list)
    milliseconds: float = 0.0


def rows_of(folder: Path, name: str) -> list[dict[str, str]]:
    """Return the lines of a table; raises ``SystemExit`` if the folder lacks it."""
    for path in (folder / f"{name}.csv", folder / f"{name}.csv.gz"):
        if path.exists():
            data = path.read_bytes()
            text = gzip.decompress(data) if path.suffix == ".gz" else data
            return list(csv.DictReader(text.decode().splitlines()))
    raise SystemExit(f"{folder} has no {name}.csv or {name}.csv.gz")


def nodes_of(folder: Path) -> list[Json]:
    """Return the nodes of the cluster."""
    return [_node(row) for row in rows_of(folder, "nodes")]


def _node(row: Mapping[str, str]) -> Json:
    allocatable = {
        "cpu": f"{row['cpu_milli']}m",
        "memory": f"{row['memory_mib']}Mi",
        "nvidia.com/gpu": row["gpu"],
        "pods": "1000",
    }
    metadata = {"name": row["sn"], "uid": row["sn"], "labels": {MODEL: row["model"]}}
    status = {"allocatable": allocatable}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": status}


def tasks_of(folder: Path, workload: str) -> list[Task]:
    """Return the tasks of a workload."""
    return [
        Task(
            int(row["cpu_milli"]),
            int(row["memory_mib"]),
            int(row["num_gpu"]),
            int(row["gpu_milli"] or 0),
            tuple(one for one in (row.get("gpu_spec") or "").split("|") if one),
        )
        for row in rows_of(folder, f"pods_{workload}")
    ]


def arrivals(tasks: Sequence[Task], gpus: int, seed: int) -> Iterator[Task]:
    """Yield tasks until they ask for 130 % of the GPUs: each once, then any of them."""
    generator = random.Random(seed)
    shuffled = generator.sample(tasks, len(tasks))
    asked = 0
    while asked < gpus * _WHOLE * ASKED[-1] // 100:
        task = shuffled.pop() if shuffled else generator.choice(tasks)
        asked += task.asked
        yield task


async def play(policy: Json, nodes: Sequence[Json], tasks: Sequence[Task], seed: int) -> Run:
    """Schedule the arrivals of a seed."""
    configuration = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [policy],
    }
    gates, registry = FeatureGates(), Registry((*IN_TREE_PLUGINS, DeviceShare))
    options = OfflineOptions(seed=seed)
    cluster = OfflineCluster(load(configuration, registry, gates), registry, gates, options)
    gpus = sum(int(node["status"]["allocatable"]["nvidia.com/gpu"]) for node in nodes)
    for node in nodes:
        cluster.api.add(node)
    run, asked, got = Run(), 0, 0
    for number, task in enumerate(arrivals(tasks, gpus, seed)):
        pod = task.pod(f"pod-{number}")
        cluster.api.add(pod)
        outcome = await cluster.schedule_next()
        asked += task.asked
        if outcome is not None and outcome[1]:
            got += task.asked
        else:
            cluster.api.remove("Pod", f"default/{pod['metadata']['name']}")
        if 100 * asked >= ASKED[len(run.allocated)] * gpus * _WHOLE:
            run.allocated.append(100 * got / gpus / _WHOLE)
        if number % 100 == 0:
            run.curve.append((100 * asked / gpus / _WHOLE, 100 * got / gpus / _WHOLE))
    run.milliseconds = mean_ms(cluster.metrics.scheduling_algorithm_duration_seconds)
    return run


def published(folder: Path, workload: str) -> Iterator[tuple[str, list[float]]]:
    """Yield the published means of a workload by policy."""
    path = folder / "published.tsv"
    if path.exists():
        for row in csv.DictReader(path.read_text().splitlines(), delimiter="\t"):
            if row["workload"] == workload:
                policy = row["policy"].split("-")[-1]
                yield policy, [float(row[f"allocated_at_{asked}"]) for asked in ASKED]


def line(workload: str, name: str, figures: Sequence[float], milliseconds: float | None) -> str:
    """Return a line of the table."""
    cells = [workload, name, *(f"{figure:.2f} %" for figure in figures)]
    return f"| {' | '.join(cells)} | {'' if milliseconds is None else f'{milliseconds:.2f}'} |"


def draw(path: Path, curves: Mapping[str, Sequence[tuple[float, float]]]) -> None:
    """Draw the allocated share over what has been asked for, of the first seed."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 4.5), layout="constrained")
    axes = figure.subplots()
    for name, curve in curves.items():
        axes.plot(*zip(*curve, strict=True), label=name)
    axes.set_xlabel("GPUs asked for, % of all GPUs")
    axes.set_ylabel("GPUs allocated, % of all GPUs")
    axes.set_xlim(75, 130)
    axes.set_ylim(75, 100)
    axes.legend(fontsize="small")
    figure.savefig(path)


def main() -> None:
    """Play the workloads and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("folder", type=Path, metavar="DIR")
    parser.add_argument("--workload", action="append", help="by default: default")
    parser.add_argument("--policy", action="append", choices=POLICIES, help="by default: all")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--nodes", type=int, default=1, help="times the nodes of the trace")
    parser.add_argument(
        "--plot", type=Path, help="draw the first workload (matplotlib, extra bench)"
    )
    args = parser.parse_args()
    workloads, policies = args.workload or ["default"], args.policy or list(POLICIES)
    nodes = [
        one | {"metadata": one["metadata"] | {"name": f"{one['metadata']['name']}-{copy}"}}
        for copy in range(args.nodes)
        for one in nodes_of(args.folder)
    ]
    print("| workload | policy | at 90 % | at 100 % | at 130 % | ms |\n|---|---|---|---|---|---|")
    curves: dict[str, Sequence[tuple[float, float]]] = {}
    with Progress(transient=True) as progress:
        bar = progress.add_task("playing", total=len(workloads) * len(policies) * args.seeds)
        for workload in workloads:
            tasks = tasks_of(args.folder, workload)
            for name in policies:
                runs = []
                for seed in range(args.first_seed, args.first_seed + args.seeds):
                    runs.append(asyncio.run(play(POLICIES[name], nodes, tasks, seed)))
                    progress.advance(bar)
                means = [
                    statistics.mean(one)
                    for one in zip(*(run.allocated for run in runs), strict=True)
                ]
                milliseconds = statistics.mean(run.milliseconds for run in runs)
                print(line(workload, name, means, milliseconds), flush=True)
                curves.setdefault(name, runs[0].curve)
            for name, figures in published(args.folder, workload):
                print(line(workload, f"{name} (published)", figures, None), flush=True)
    if args.plot:
        draw(args.plot, curves)


if __name__ == "__main__":
    main()
