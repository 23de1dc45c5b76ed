"""Replays a recording with another scheduler: the same arrivals and departures.

Time is virtual, back-offs and Permit included; decisions take none. A pod that ended by itself runs
as long as it did in the recording, from wherever and whenever it is bound now. Pods that were
deleted leave at the recorded time. Nobody creates preempted pods anew: if that happened, it is in
the recording as an arrival.
"""

from __future__ import annotations

import asyncio
import heapq
from pathlib import Path
from time import perf_counter
from typing import Any

import msgspec
import numpy as np

from proreus.base.errors import ConfigError
from proreus.base.kubernetes_version import KubernetesVersion
from proreus.insight.snapshots.cluster_objects import ClusterObjects
from proreus.insight.snapshots.object_files import decode_object
from proreus.insight.snapshots.recording import RecordedEvent, read_recording
from proreus.objects.kinds import BY_KIND, PODS
from proreus.objects.meta import Resource, key_of
from proreus.objects.pod import Pod
from proreus.offline.virtual_time import VirtualTimeLoop
from proreus.workbench.simulation.results import ScenarioResult, Timings
from proreus.workbench.simulation.scenario import Scenario
from proreus.workbench.simulation.scenario_run import result_of, timings_of
from proreus.workbench.simulation.simulated_cluster import Settings, SimulatedCluster
from proreus.workbench.simulation.utilisation import measure

_SAMPLES = 200
_replace = msgspec.structs.replace


class WaitingTimes(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The waiting times of pods until they got a node, in seconds."""

    pods: int
    mean: float
    p50: float
    p99: float
    most: float


class UtilisationSample(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The cluster at one moment: used shares of its nodes, and the pods without a node."""

    seconds: float
    nodes: int
    empty_nodes: int
    pods: int
    waiting: int
    shares: dict[str, float]


class ReplayResult(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A replay. ``result``: at its end, ``arrivals`` and all else of pods that are still there.

    ``recorded`` and ``replayed``: waiting times of all pods that got a node, there and here.
    ``same_node``: how many pods got the node that they had got there.
    """

    seconds: float
    arrivals: int
    scheduled: int
    departures: int
    same_node: int
    recorded: WaitingTimes
    replayed: WaitingTimes
    samples: tuple[UtilisationSample, ...]
    result: ScenarioResult


class Recording:
    """A recording in memory: the cluster at its start, and the events after that."""

    def __init__(self, path: Path) -> None:
        """Read a file; raises ``ConfigError``."""
        header, events = read_recording(path)
        try:
            self.version = KubernetesVersion.parse(header.kubernetes_version)
        except ValueError as error:
            raise ConfigError(f"{path}: kubernetesVersion: {error}") from None
        self.start = ClusterObjects(self.version)
        self.events: list[tuple[RecordedEvent, Resource[Any] | None, Any]] = []
        for place, event in events:
            resource = obj = None
            if event.type in ("ADDED", "MODIFIED"):
                found = self._typed(place, event)
                if found is None:
                    continue
                resource, obj = found
                if event.t == 0 and event.type == "ADDED":
                    self.start.put(resource, obj)
                    continue
            elif event.kind not in BY_KIND:
                raise ConfigError(f"{place}: kind: {event.kind!r} is not known")
            self.events.append((event, resource, obj))
        self.seconds = self.events[-1][0].t if self.events else 0.0
        self.bound_at, self.node_of, self.run_seconds = self._lives()

    def _typed(self, place: str, event: RecordedEvent) -> tuple[Resource[Any], Any] | None:
        resource, obj = decode_object(event.object, place)
        # Written by hand; pods are told apart by their uids.
        if not obj.metadata.uid and event.type == "ADDED":
            meta = _replace(obj.metadata, uid=f"{key_of(obj)}@{event.t}")
            obj = _replace(obj, metadata=meta)
        return resource, obj

    def _lives(self) -> tuple[dict[str, float], dict[str, str], dict[str, float]]:
        """Return when and where each pod was bound, and how long it ran, by uid."""
        uids = {key: pod.metadata.uid for key, pod in self.start.of(PODS).items()}
        bound_at = {
            pod.metadata.uid: 0.0 for pod in self.start.of(PODS).values() if pod.spec.node_name
        }
        node_of: dict[str, str] = {}
        run_seconds: dict[str, float] = {}
        for event, resource, obj in self.events:
            if resource is PODS and event.type == "ADDED":
                uids[key_of(obj)] = obj.metadata.uid
                if obj.spec.node_name:
                    bound_at[obj.metadata.uid] = event.t
            elif event.type == "BOUND" and event.key in uids:
                bound_at[uids[event.key]] = event.t
                node_of[uids[event.key]] = event.node
            elif event.type == "DELETED" and event.kind == PODS.kind:
                uid = uids.pop(event.key, "")
                if event.ended and uid in bound_at:
                    run_seconds[uid] = event.t - bound_at[uid]
        return bound_at, node_of, run_seconds


def replay(recording: Recording, settings: Settings) -> tuple[ReplayResult, Timings]:
    """Replay a recording; raises ``ConfigError`` for the configuration.

    Needs a thread without a running event loop, as ``run_scenario`` does.
    """
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(_replay(recording, settings))


async def _replay(recording: Recording, settings: Settings) -> tuple[ReplayResult, Timings]:
    return await _Replay(recording, settings).run()


class _Replay:
    """One replay. Pods are known by uid: names come again."""

    def __init__(self, recording: Recording, settings: Settings) -> None:
        self._recording = recording
        self._settings = settings
        self._cluster = SimulatedCluster(settings, recreates_victims=False)
        self._arrived: dict[str, float] = {}
        self._bound: dict[str, tuple[float, str]] = {}
        self._ends: list[tuple[float, str, str]] = []
        self._departures = 0
        self._left_waiting = 0
        self._samples: list[UtilisationSample] = []

    async def run(self) -> tuple[ReplayResult, Timings]:
        recording, cluster = self._recording, self._cluster
        started = perf_counter()
        await cluster.load(recording.start)
        load_seconds = perf_counter() - started
        shapes = cluster.shapes_with(
            obj for _, resource, obj in recording.events if resource is PODS
        )
        before = measure(cluster.table, shapes)
        for pod in cluster.pods.values():
            self._note(pod)
        cluster.api.on_change(PODS, self._pod_changed)
        began = perf_counter()
        await cluster.schedule_now()
        interval = max(recording.seconds / _SAMPLES, 1.0)
        for number, (event, resource, obj) in enumerate(recording.events):
            await self._pass_until(event.t, interval)
            self._apply(event, resource, obj)
            self._settings.progress(number + 1, len(recording.events))
        await self._pass_until(recording.seconds, interval)
        await cluster.schedule()
        self._sample()
        seconds = perf_counter() - began
        scenario = Scenario(recording.start)
        result = ReplayResult(
            seconds=recording.seconds,
            arrivals=len(self._arrived),
            scheduled=len(self._bound),
            departures=self._departures,
            same_node=sum(
                recording.node_of.get(uid) == node for uid, (_, node) in self._bound.items()
            ),
            recorded=_waiting_times(
                [
                    recording.bound_at[uid] - arrived
                    for uid, arrived in self._arrived.items()
                    if uid in recording.node_of
                ]
            ),
            replayed=_waiting_times(
                [at - self._arrived[uid] for uid, (at, _) in self._bound.items()]
            ),
            samples=tuple(self._samples),
            result=result_of(cluster, scenario, before, shapes),
        )
        return result, timings_of(cluster, load_seconds, seconds)

    # ---- time ----------------------------------------------------------------------------------

    async def _pass_until(self, end: float, interval: float) -> None:
        """Let time pass until an event: pods end, back-offs end, and samples are taken."""
        cluster = self._cluster
        await cluster.schedule_now()
        while True:
            now = cluster.virtual_seconds
            while self._ends and self._ends[0][0] <= now + _MILLISECOND:
                _, uid, key = heapq.heappop(self._ends)
                self._depart(key, uid)
                await cluster.schedule_now()
            if not self._samples or now >= self._samples[-1].seconds + interval:
                self._sample()
            if now >= end - _MILLISECOND / 2:
                return
            until = min(end, now + 1.0, self._ends[0][0] if self._ends else end)
            await cluster.pass_time(max(until - now, _MILLISECOND))
            await cluster.schedule_now()

    def _sample(self) -> None:
        use = measure(self._cluster.table, {})
        self._samples.append(
            UtilisationSample(
                seconds=round(self._cluster.virtual_seconds, 3),
                nodes=use.nodes,
                empty_nodes=use.empty_nodes,
                pods=use.pods,
                waiting=len(self._arrived) - len(self._bound) - self._left_waiting,
                shares={name: one.share for name, one in use.resources.items() if one.requested},
            )
        )

    # ---- events --------------------------------------------------------------------------------

    def _apply(self, event: RecordedEvent, resource: Resource[Any] | None, obj: Any) -> None:
        if event.type == "DELETED":
            if event.kind != PODS.kind:
                self._cluster.api.remove(event.kind, event.key)
            elif not event.ended:
                # One that ended there ends here too, as soon as it has run as long.
                self._depart(event.key)
        elif resource is PODS:
            self._put_pod(obj, event.type == "ADDED")
        elif resource is not None:
            self._cluster.api.put(resource, obj)

    def _put_pod(self, pod: Pod, is_new: bool) -> None:
        key = key_of(pod)
        live = self._cluster.pods.get(key)
        if is_new:
            if live is not None:  # the pod of this name that was here before still runs
                self._depart(key)
            self._cluster.put_pod(pod)
            self._note(pod)
        elif live is not None and pod.metadata.uid in ("", live.metadata.uid):
            meta = _replace(pod.metadata, uid=live.metadata.uid)
            spec = _replace(pod.spec, node_name=live.spec.node_name)
            changed = _replace(pod, metadata=meta, spec=spec, status=live.status)
            self._cluster.api.put(PODS, changed)

    def _note(self, pod: Pod) -> None:
        uid = pod.metadata.uid
        if not pod.spec.node_name:
            self._arrived[uid] = self._cluster.virtual_seconds
        else:
            self._begin(pod)

    def _pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        if old is None or new is None or old.spec.node_name or not new.spec.node_name:
            return
        self._bound[new.metadata.uid] = self._cluster.virtual_seconds, new.spec.node_name
        self._begin(new)

    def _begin(self, pod: Pod) -> None:
        """Note when a pod that has its node now will end by itself."""
        seconds = self._recording.run_seconds.get(pod.metadata.uid)
        if seconds is not None:
            end = self._cluster.virtual_seconds + seconds
            heapq.heappush(self._ends, (end, pod.metadata.uid, key_of(pod)))

    def _depart(self, key: str, uid: str = "") -> None:
        """Remove a pod; with a uid, only that one."""
        pod = self._cluster.pods.get(key)
        if pod is None or (uid and pod.metadata.uid != uid):
            return
        self._departures += 1
        self._left_waiting += not pod.spec.node_name
        self._cluster.remove_pod(key)


_MILLISECOND = 0.001


def _waiting_times(seconds: list[float]) -> WaitingTimes:
    if not seconds:
        return WaitingTimes(pods=0, mean=0.0, p50=0.0, p99=0.0, most=0.0)
    waited = np.array(seconds)
    p50, p99 = np.percentile(waited, [50, 99])
    return WaitingTimes(
        pods=len(waited),
        mean=round(float(waited.mean()), 3),
        p50=round(float(p50), 3),
        p99=round(float(p99), 3),
        most=round(float(waited.max()), 3),
    )
