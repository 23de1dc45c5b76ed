"""Explanations of recorded decisions say what kube-scheduler answered, and their advice works.

Of a thousand random cases with one decision each: the explanation's rejected nodes, reasons and
scores are the recorded ones; every change of the pod or of a node that is said to help is made, and
the engine asked again.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from proreus.base.errors import PluginError
from proreus.base.feature_gates import FeatureGates
from proreus.base.kubernetes_version import parse_emulated_version
from proreus.config.load import default_configuration, load
from proreus.engine.runtime.registry import Registry
from proreus.engine.runtime.select_host import root_of_heap
from proreus.framework.pod_info import PodInfo, QueuedPodInfo
from proreus.insight.decisions.recorder import DecisionRecorder
from proreus.insight.explain import Explainer
from proreus.insight.explain.engine import Engine
from proreus.insight.explain.node_what_if import VerifiedNode, look_for_node_help
from proreus.insight.explain.what_if import Verified, look_for_help
from proreus.objects.kinds import NODES, PODS
from proreus.objects.requests import PodResourcesOptions
from proreus.offline.api import InMemoryApi
from proreus.offline.cluster import OfflineCluster, OfflineOptions
from proreus.offline.evaluate import read_cases
from proreus.offline.virtual_time import VirtualTimeLoop
from proreus.plugins import IN_TREE_PLUGINS

HERE = Path(__file__).parent
CASES = 1000
_GATES = ("SchedulerAsyncPreemption=false", "SchedulerAsyncAPICalls=false")


def decisions() -> list[Any]:
    """Return random cases of all families, those with a single decision and without extenders."""
    found = [
        case
        for path in sorted((HERE / "cases").glob("*/*.jsonl.gz"))
        for case in read_cases(path)
        if "pod" in case and not case.get("extenders") and "filter" in case["expect"]
    ]
    return random.Random(107556).sample(found, min(CASES, len(found)))


class Explained:
    """A case that the whole scheduler has decided, with the record of it."""

    def __init__(self, case: Any) -> None:
        registry = Registry(IN_TREE_PLUGINS)
        version = parse_emulated_version(case.get("kubernetesVersion", "1.36"), "version")
        gates = FeatureGates.from_list([*_GATES, *case.get("features", ())], version)
        config = case.get("config")
        loaded = load(config, registry, gates) if config else default_configuration(registry, gates)
        self.gates = gates
        self.case = case
        self.cluster = OfflineCluster(
            loaded,
            registry,
            gates,
            OfflineOptions(select_host=root_of_heap, polls_only=True),
            InMemoryApi(hide_finished=False),
        )
        queue = self.cluster.scheduler.queue
        self.recorder = DecisionRecorder(self.cluster.clock, lambda key: queue.get(key) is not None)
        self.explainer = Explainer(
            self.cluster.scheduler,
            self.recorder,
            self.cluster.api.store(PODS),
            self.cluster.clock,
        )

    async def decide(self) -> None:
        """Schedule the pod of the case, as the first one of all."""
        scheduler, meta = self.cluster.scheduler, self.case["pod"]["metadata"]
        for obj in self.case["objects"]:
            self.cluster.api.add(obj)
        await self.cluster.settle()
        self.cluster.api.add({"kind": "Pod", **self.case["pod"]})
        self.key = f"{meta.get('namespace', 'default')}/{meta['name']}"
        scheduler.record(self.recorder)
        # The recorded scheduler had an empty queue: other pods count as being in flight.
        chosen = None
        while (queued := scheduler.queue.pop()) is not None:
            if queued.key == self.key:
                chosen = queued
        if chosen is not None:
            self.queued = chosen
            await self.cluster.schedule_popped(chosen)

    @property
    def attempt(self) -> Any:
        record = self.recorder.records.of(self.key)
        explained = self.explainer.pod(*self.key.split("/"), names=10**6, changes=False)
        return explained.attempt if record else None

    def engine(self) -> Engine:
        profiles = self.cluster.scheduler.profiles
        profile = profiles[self.case["pod"]["spec"].get("schedulerName", "default-scheduler")]
        search = self.cluster.scheduler.scheduling_cycle.node_search
        return Engine(profile, search, limit_seconds=60)


def rejected(attempt: Any) -> dict[str, tuple[str, str, tuple[str, ...]]]:
    """Return what an explanation says of each rejected node."""
    return {
        name: (group.code, group.plugin, tuple(sorted(group.reasons)))
        for group in attempt.rejected
        if group.plugin
        for name in group.names
    }


def as_recorded(expect: Any) -> dict[str, tuple[str, str, tuple[str, ...]]]:
    return {
        name: (status["code"], status["plugin"], tuple(sorted(status.get("reasons", ()))))
        for name, status in expect["filter"].items()
    }


def run(case: Any) -> Iterator[str]:
    """Decide a case; yield what was compared or asked. Assertions fail in here."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        explained = runner.run(_decided(case))
        attempt = explained.attempt
        if attempt is None or attempt.status == "Error":
            yield "no decision"
            return
        expect = case["expect"]
        if attempt.placement is None or attempt.placement.total is not None:
            assert rejected(attempt) == as_recorded(expect), case["id"]
            yield "rejections"
        if attempt.placement is not None:
            placement = attempt.placement
            if placement.total is None:
                assert expect["feasible"] == [placement.node]
                yield "single node"
                return
            assert placement.feasible == len(expect["feasible"])
            for scored in placement.nodes:
                assert scored.total == expect["total"][scored.name], case["id"]
                scores = {p.plugin: p.weighted for p in scored.plugins}
                assert scores == expect["scores"][scored.name], case["id"]
                yield "scores"
            return
        yield from _advice(explained, runner)


async def _decided(case: Any) -> Explained:
    explained = Explained(case)
    await explained.decide()
    return explained


async def _place_on_changed_node(explained: Explained, one: VerifiedNode) -> bool:
    """Change a node for real, and return whether the scheduler finds a node for the pod now."""
    api, scheduler = explained.cluster.api, explained.cluster.scheduler
    before = scheduler.cache.table[one.row].node
    assert before is not None
    api.put(NODES, one.node)
    await explained.cluster.settle()
    placed = await _schedule_again(explained)
    api.put(NODES, before)
    await explained.cluster.settle()
    return placed


async def _schedule_again(explained: Explained) -> bool:
    """Return whether the scheduler finds a node for the pod of the case, which waits."""
    scheduler = explained.cluster.scheduler
    scheduler.queue.activate([explained.key])
    while (queued := scheduler.queue.pop()) is not None:
        if queued.key == explained.key:
            assert isinstance(queued, QueuedPodInfo)
            profile = scheduler.profiles[queued.pod.spec.scheduler_name]
            attempt = scheduler.begin(queued, profile)
            return isinstance(await scheduler.scheduling_cycle.schedule_pod(attempt), str)
    raise AssertionError("the pod is not in the queue")


async def _place_changed(explained: Explained, one: Verified) -> bool:
    """Make a change for real, and return whether the scheduler finds a node for the pod now."""
    api = explained.cluster.api
    for gone in one.without:
        api.remove("Pod", gone.key)
    api.remove("Pod", explained.key)
    await explained.cluster.settle()
    api.put(PODS, one.pod.pod)
    return await _schedule_again(explained)


def _advice(explained: Explained, runner: asyncio.Runner) -> Iterator[str]:
    live = explained.cluster.api.store(PODS).get(explained.key)
    if live is None or live.spec.node_name:
        return
    info = PodInfo(live, PodResourcesOptions.of(explained.gates))
    engine = explained.engine()
    try:
        found, new_node, _ = look_for_help(engine, info)
        on_nodes = look_for_node_help(engine, info, 3)
    except PluginError:
        return
    explained.cluster.scheduler.cache.table.validate()
    for changed in on_nodes:
        assert engine.rejection(info, changed.row) is not None
        assert engine.rejection_on(changed.node, info, changed.row) is None
        yield "node advice"
    for one in found:
        # The change is made, and the engine asked anew, from PreFilter on.
        if one.without:
            assert engine.rejection_without(one.pod, one.row, one.without) is None
        else:
            assert engine.rejection(one.pod, one.row) is None
        yield "advice"
    # Where preemption evicts pods, the cluster is another one once they are gone.
    preempted = explained.case["expect"].get("preemption", ())
    if any(one.get("victims") for one in preempted):
        found, on_nodes = [], []
    for changed in on_nodes:
        # A new cluster each time: the pod must wait there, as it did when the question was asked.
        again = runner.run(_decided(explained.case))
        assert runner.run(_place_on_changed_node(again, changed)), explained.case["id"]
        yield "node changed"
    if found:
        assert runner.run(_place_changed(explained, found[0])), explained.case["id"]
        yield "applied"
    if new_node is not None:
        yield "new node"


@pytest.mark.parametrize("part", range(4))
def test_explanations_are_the_recorded_answers_and_advice_helps(part: int) -> None:
    cases = decisions()
    assert len(cases) == CASES
    seen: dict[str, int] = {}
    for case in cases[part::4]:
        for what in run(case):
            seen[what] = seen.get(what, 0) + 1
    print(seen)
    assert seen["rejections"] > 80
    assert seen["scores"] > 200
    assert seen["advice"] > 50
    assert seen["node advice"] > 40
    assert seen["node changed"] > 20
    assert seen["applied"] > 10
