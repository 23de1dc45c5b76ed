"""Gangs of which more wait than fit, with four ways to schedule them.

    PYTHONPATH=tests python -m bench.gang_comparison [--coscheduling PROGRAM] [WAY ...]

``make bench-gangs``. On a real apiserver, 1,000 nodes, 20 groups of 50 pods are created in turn, a
pod of each group after the other; twelve groups fit, and 30 pods more. Then 50 pods of one group
are deleted, so that another one fits. What is measured is what the apiserver has: pods with a node.

- ``gang-scheduling``: kube-scheduler with its own GangScheduling;
- ``coscheduling``: kube-scheduler with the original Coscheduling of scheduler-plugins (PROGRAM is
  built from the folder ``coscheduling``);
- ``proreus-permit`` and ``proreus-plan``: the modes of proreus' Coscheduling.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from msgspec import Struct

# the real control plane's own tools
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "controlplane"))

from envtest import objects, pod_groups
from envtest.binaries import emulated_version, find_or_build
from envtest.control_plane import ControlPlane
from envtest.kube_client import KubeClient
from envtest.schedulers import SchedulerProcess, configuration, profile
from envtest.waiting import eventually

Json = dict[str, Any]

NODES, GROUPS, MEMBERS, FITTING, SPARE = 1_000, 20, 50, 12, 30
NAME = "gangs"
WAYS = ("gang-scheduling", "coscheduling", "proreus-permit", "proreus-plan")
PODS = "/api/v1/namespaces/default/pods"
POD_GROUPS = "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/default/podgroups"
CRD = Path(__file__).resolve().parents[3] / "deploy" / "crds" / "podgroup.yaml"
PERMIT_SECONDS = 10
"""How long a pod waits in Permit for the others; 60 by default."""
_LOOKS_SECONDS = 0.25


class Figures(Struct):
    """What one way did; seconds since the first pod was created, None: not while it was watched."""

    way: str
    first_group: float | None = None
    all_groups: float | None = None
    whole_groups: int = 0
    utilisation: float = 0.0
    """Of the CPU of the nodes on which the pods may run, of whole groups alone, at the end."""
    partial_groups: int = 0
    """The most groups at a time of which some pods had nodes."""
    partial_seconds: float = 0.0
    """How long there were any."""
    next_group: float | None = None
    """Seconds from the release of a group's room until the next group had all its nodes."""


def scheduler_of(way: str, plane: ControlPlane, folder: Path, original: Path | None) -> Any:
    """Return the scheduler process of one way, not started."""
    made = profile(NAME)
    if way != "gang-scheduling":
        plugins = made.setdefault("plugins", {})
        plugins["queueSort"] = {"enabled": [{"name": "Coscheduling"}], "disabled": [{"name": "*"}]}
        plugins["multiPoint"] = {"enabled": [{"name": "Coscheduling"}]}
        args: Json = {"permitWaitingTimeSeconds": PERMIT_SECONDS}
        if way == "proreus-plan":
            args["mode"] = "plan"
        made["pluginConfig"].append({"name": "Coscheduling", "args": args})
    config = configuration([made], plane.kubeconfig)
    if way.startswith("proreus"):
        return SchedulerProcess("proreus", Path(sys.executable), config, folder, name=way)
    programs = {"gang-scheduling": find_or_build()["kube-scheduler"], "coscheduling": original}
    flags = pod_groups.flags_of() if way == "gang-scheduling" else []
    program = programs[way]
    assert program is not None
    return SchedulerProcess("kube-scheduler", program, config, folder, name=way, flags=flags)


def create(client: KubeClient, way: str) -> None:
    """Create all groups, and their pods, one of each group after the other."""
    own = way == "gang-scheduling"
    spec: Json = {"minMember": MEMBERS}
    if own:
        spec = {"schedulingPolicy": {"gang": {"minCount": MEMBERS}}}
    path = pod_groups.GROUPS if own else POD_GROUPS
    # With their version: custom resources are not created without.
    version = path.removeprefix("/apis/").partition("/namespaces/")[0]
    for number in range(GROUPS):
        meta = {"name": f"g{number}"}
        client.create(
            path, {"apiVersion": version, "kind": "PodGroup", "metadata": meta, "spec": spec}
        )
    pods = []
    for number in range(MEMBERS):
        for group in range(GROUPS):
            labels = {"group": f"g{group}", "scheduling.x-k8s.io/pod-group": f"g{group}"}
            # More than half a node: one on each.
            pod = objects.pod(f"g{group}-{number}", NAME, cpu="20", labels=labels)
            pod["spec"]["nodeSelector"] = {"pool": NAME}
            if own:
                pod["spec"]["schedulingGroup"] = {"podGroupName": f"g{group}"}
            pods.append(pod)
    client.create_all(PODS, pods)


def looks(client: KubeClient, seconds: float) -> Iterator[tuple[float, Counter[str]]]:
    """Yield the time and the pods with nodes by group, several times a second."""
    end = time.monotonic() + seconds
    while (now := time.monotonic()) < end:
        bound = client.list(PODS, fieldSelector="spec.nodeName!=")
        yield now, Counter(pod["metadata"]["labels"]["group"] for pod in bound)
        time.sleep(max(0.0, now + _LOOKS_SECONDS - time.monotonic()))


def measure(way: str, seconds: float, original: Path | None) -> Figures:
    """Let one scheduler schedule the groups on a new control plane."""
    figures = Figures(way)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        flags = [*pod_groups.APISERVER_FLAGS, *pod_groups.flags_of()]
        plane = ControlPlane(find_or_build(), folder, audit=False, flags=flags)
        plane.start()
        scheduler = scheduler_of(way, plane, folder, original)
        try:
            client = plane.client
            pool = FITTING * MEMBERS + SPARE
            nodes = (
                objects.node(index, labels={"pool": NAME} if index < pool else None)
                for index in range(NODES)
            )
            client.create_all(objects.NODES, nodes)
            definition = yaml.safe_load(CRD.read_text())
            client.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
            eventually(30, "PodGroups are served", lambda: _is_served(client))
            scheduler.run()
            _watch(client, way, seconds, figures)
        finally:
            scheduler.kill()
            plane.stop()
    return figures


def _is_served(client: KubeClient) -> bool:
    return bool(client.request("GET", POD_GROUPS).status == 200)


def _watch(client: KubeClient, way: str, seconds: float, figures: Figures) -> None:
    started = time.monotonic()
    create(client, way)
    counts: Counter[str] = Counter()
    before = started
    for now, counts in looks(client, seconds):
        whole = [group for group, count in counts.items() if count == MEMBERS]
        partial = len(counts) - len(whole)
        figures.partial_groups = max(figures.partial_groups, partial)
        figures.partial_seconds += (now - before) if partial else 0.0
        before = now
        if whole and figures.first_group is None:
            figures.first_group = now - started
        if len(whole) == FITTING:
            figures.all_groups = now - started
            break
    whole = [group for group, count in counts.items() if count == MEMBERS]
    figures.whole_groups = len(whole)
    pool = FITTING * MEMBERS + SPARE
    figures.utilisation = len(whole) * MEMBERS * 20 / (pool * 32)
    if figures.all_groups is None:
        return
    names = [f"{whole[0]}-{number}" for number in range(MEMBERS)]
    client.in_parallel(lambda name: client.delete(f"{PODS}/{name}", gracePeriodSeconds="0"), names)
    released = time.monotonic()
    for now, counts in looks(client, seconds):
        if sum(1 for count in counts.values() if count == MEMBERS) == FITTING:
            figures.next_group = now - released
            return


def _seconds(value: float | None) -> str:
    return "never" if value is None else f"{value:.1f} s"


def main() -> None:
    """Measure the ways one after the other and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--coscheduling", type=Path, help="kube-scheduler with Coscheduling")
    parser.add_argument("--seconds", type=float, default=120, help="how long each is watched")
    parser.add_argument("ways", nargs="*", metavar="WAY", help=", ".join(WAYS))
    options = parser.parse_args()
    print(f"Kubernetes {emulated_version()}, {NODES} nodes, {GROUPS} groups of {MEMBERS} pods")
    print(
        "| way | first group | twelve groups | whole groups | CPU used | most groups in part "
        "| how long | next group after a release |\n|---|---|---|---|---|---|---|---|"
    )
    for way in options.ways or WAYS:
        if way == "coscheduling" and options.coscheduling is None:
            print(f"| {way} | not measured: no program is given |")
            continue
        one = measure(way, options.seconds, options.coscheduling)
        print(
            f"| {way} | {_seconds(one.first_group)} | {_seconds(one.all_groups)} "
            f"| {one.whole_groups} | {one.utilisation:.0%} | {one.partial_groups} "
            f"| {one.partial_seconds:.1f} s | {_seconds(one.next_group)} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
