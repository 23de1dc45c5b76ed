"""What the record says of an attempt is what the attempt found, however much has happened since."""

from __future__ import annotations

import asyncio
import random
import sys
from collections import Counter
from typing import Any

import numpy as np
import pytest

from proreus.base.feature_gates import FeatureGates
from proreus.config.load import default_configuration
from proreus.engine.runtime.registry import Registry
from proreus.insight.decisions.recorder import DecisionRecorder
from proreus.insight.decisions.retention import KeptRecords
from proreus.objects.kinds import NODES, PODS
from proreus.offline.cluster import OfflineCluster
from proreus.plugins import IN_TREE_PLUGINS
from proreus.testing import make_node


class CheckedRecorder(DecisionRecorder):
    """Keeps whole copies of what an attempt found, to compare the records with."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.truth: list[tuple[Any, Any, Any, Any]] = []

    def chosen(self, attempt, found, row, totals=None, computed=None) -> None:
        super().chosen(attempt, found, row, totals, computed)
        scores, shared = {}, found.equivalence_class
        size, rows = attempt.profile.table.size, found.rows
        for scorer in shared.scores.scorers if shared is not None and totals is not None else ():
            raw = np.broadcast_to(scorer.results.raw_scores, size)[rows]
            weighted = np.broadcast_to(scorer.weighted_scores, size)[rows]
            scores[scorer.plugin.name] = (raw.copy(), weighted.copy())
        if computed is not None:
            for name, weighted in computed.weighted.items():
                both = [np.broadcast_to(computed.raw.get(name, 0), len(rows)).copy()]
                if name not in computed.raw:
                    both = [scores[name][0]]
                scores[name] = (*both, np.broadcast_to(weighted, len(rows)).copy())
        sums = None if totals is None else totals.scores[rows].copy()
        names = [attempt.profile.table[row].name for row in rows.tolist()]
        self.truth.append((attempt.record, names, sums, scores))


class World:
    """An offline cluster whose attempts are recorded."""

    def __init__(self, nodes: int, budget_bytes: int = 2**26) -> None:
        gates, registry = FeatureGates(), Registry(IN_TREE_PLUGINS)
        self.cluster = OfflineCluster(default_configuration(registry, gates), registry, gates)
        self.recorder = CheckedRecorder.of(self.cluster.scheduler, self.cluster.clock, budget_bytes)
        self.records = self.recorder.records
        for number in range(nodes):
            labels = {"zone": f"z{number % 3}"}
            self.cluster.api.put(NODES, make_node(f"n{number}", cpu="8", labels=labels))

    async def schedule(self, *pods: Any) -> None:
        for pod in pods:
            self.cluster.api.add(pod)
        while await self.cluster.schedule_next() is not None:
            pass


def pod(name: str, labels: dict[str, str] | None = None, cpu: str = "50m", **spec: Any) -> Any:
    container = {"name": "c", "resources": {"requests": {"cpu": cpu}}}
    return {
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "uid": name, "labels": labels or {}},
        "spec": {"schedulerName": "default-scheduler", "containers": [container], **spec},
    }


def spread(name: str) -> Any:
    constraint = {
        "maxSkew": 5,
        "topologyKey": "zone",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": {"app": "s"}},
    }
    return pod(name, {"app": "s"}, topologySpreadConstraints=[constraint])


def check(recorder: CheckedRecorder) -> int:
    """Compare all records with what was copied; return how many share their results."""
    users = Counter(id(record.results) for record, *_ in recorder.truth)
    for record, names, sums, scores in recorder.truth:
        verdicts, table = record.found()
        size = len(record.names)
        rejected = (
            () if verdicts is None else [row for _, r in verdicts.rejections(size) for row in r]
        )
        assert {record.names[row] for row in range(size)} - {
            record.names[r] for r in rejected
        } == set(names)
        if sums is None:
            assert table is None
            continue
        place_of = {name: place for place, name in enumerate(names)}
        assert len(table.rows) == len(names)
        assert sum(table.counts().values()) == len(names)
        assert list(table.counts()) == sorted(set(sums.tolist()), reverse=True)
        assert table.plugins.keys() == scores.keys()
        for place, row in enumerate(table.rows.tolist()):
            at = place_of[record.names[row]]
            assert table.totals[place] == sums[at]
            for plugin, (raw, weighted) in scores.items():
                assert table.plugins[plugin].at(place) == (raw[at], weighted[at]), plugin
        assert record.node in [record.names[row] for row in table.rows]
    return sum(count for count in users.values() if count > 1)


@pytest.mark.parametrize("seed", range(4))
def test_every_attempt_is_recorded_as_it_was(seed: int) -> None:
    async def run() -> tuple[int, int]:
        rng, world = random.Random(seed), World(30)
        alive: list[Any] = []
        for number in range(220):
            kind = rng.random()
            if kind < 0.6:
                new = pod(f"p{number}", {"app": "x"}, "100m")
            elif kind < 0.75:
                new = pod(f"p{number}", cpu="1")
            elif kind < 0.9:
                new = spread(f"p{number}")
            else:
                new = pod(f"p{number}", cpu="3", nodeSelector={"zone": "z1"})
            await world.schedule(new)
            alive.append(new)
            if rng.random() < 0.3:
                gone = alive.pop(rng.randrange(len(alive)))
                world.cluster.api.remove("Pod", f"default/{gone['metadata']['name']}")
            if rng.random() < 0.03:
                world.cluster.api.put(
                    NODES, make_node(f"more{number}", cpu="8", labels={"zone": "z1"})
                )
            if rng.random() < 0.03:
                world.cluster.api.remove("Node", f"n{rng.randrange(30)}")
        world.records.validate()
        return check(world.recorder), len(world.recorder.truth)

    shared, attempts = asyncio.run(run())
    assert attempts > 150
    assert shared > 30, "attempts of pods that are alike share their results"


def test_nodes_that_come_and_go_count_as_memory_of_the_records() -> None:
    async def run() -> KeptRecords:
        world = World(2_000, budget_bytes=2**20)
        for number in range(300):
            world.cluster.api.put(NODES, make_node(f"more{number}", cpu="8"))
            await world.schedule(pod(f"p{number}", cpu="9"))  # which fits nowhere
            world.cluster.api.remove("Pod", f"default/p{number}")
        world.records.validate()
        return world.records

    records = asyncio.run(run())
    assert records.size_bytes <= 1.1 * 2**20
    held = {id(one.names): sys.getsizeof(one.names._names) for one in records}
    assert len(held) > 20
    assert sum(held.values()) < 1.1 * 2**20


def test_of_thousands_of_reasons_the_first_are_kept() -> None:
    async def run() -> KeptRecords:
        world = World(2)
        requests = {f"example.com/r{number:05}": "1" for number in range(20_000)}
        container = {"name": "c", "resources": {"requests": requests}}
        await world.schedule(pod("p", containers=[container]))
        world.records.validate()
        return world.records

    (record,) = asyncio.run(run())
    verdicts, _ = record.found()
    ((status, rows),) = verdicts.rejections(2)
    assert len(rows) == 2
    assert status.reasons[0] == "Insufficient example.com/r00000"
    assert status.reasons[20:] == ("and 19980 more reasons",)
    assert record.failure.message.startswith("0/2 nodes are available: 2 Insufficient example.com/")
    assert len(record.failure.message) < 20_000
    assert record.size_bytes + record.results.size_bytes < 50_000


def test_of_few_plugins_all_scores_are_kept_a_byte_each() -> None:
    async def run() -> World:
        world = World(5000)
        await world.schedule(*(pod(f"p{number}", cpu=f"{100 + number}m") for number in range(5)))
        check(world.recorder)
        return world

    for record in asyncio.run(run()).records:
        _, table = record.found()
        assert len(table.rows) == 5000
        # NodeResourcesFit and NodeResourcesBalancedAllocation differ by node, no other plugin does.
        assert 10_000 < record.results.size_bytes < 13_000


def test_records_have_arrays_of_their_own_whose_bytes_are_counted() -> None:
    async def run() -> World:
        world = World(5_000)
        await world.schedule(pod("one"), spread("two"), pod("three", cpu="99"))
        return world

    for record in asyncio.run(run()).records:
        plugins, verdicts = record.results._plugins or (), record.results.verdicts
        kept = [one for _, _, *both in plugins for one in both]
        kept += [verdicts.numbers, verdicts.evaluated]
        arrays = [one for one in kept if isinstance(one, np.ndarray)]
        assert arrays
        assert all(array.base is None for array in arrays)
        assert record.results.size_bytes > sum(array.nbytes for array in arrays)


def test_the_budget_is_kept_and_waiting_pods_keep_their_last_attempt() -> None:
    async def run() -> World:
        world = World(40, budget_bytes=40_000)
        await world.schedule(pod("large", cpu="99"))
        for number in range(120):
            await world.schedule(spread(f"p{number}"))
            world.records.validate()
            assert world.records.size_bytes <= 40_000
        check_kept(world)
        return world

    def check_kept(world: World) -> None:
        record = world.records.latest("default/large")
        assert record is not None
        assert record.failure.message.startswith("0/40 nodes are available")
        assert world.records.latest("default/p0") is None, "the oldest are gone"
        assert world.records.latest("default/p119") is not None

    world = asyncio.run(run())
    assert world.records.attempts == 121


def test_waiting_pods_alone_are_reduced_to_counts_and_then_dropped() -> None:
    async def run() -> World:
        world = World(300, budget_bytes=30_000)
        for number in range(60):
            # Each is of a class of its own: their verdicts are not shared.
            await world.schedule(pod(f"large{number}", cpu=f"{100 + number}"))
            world.records.validate()
            assert world.records.size_bytes <= 30_000
        return world

    world = asyncio.run(run())
    records = [record for record in world.records if record.failure.counts]
    assert records
    assert {sum(record.failure.counts.values()) for record in records} == {300}


def test_failures_that_are_alike_are_counted() -> None:
    async def run() -> World:
        world = World(5)
        await world.schedule(pod("large", cpu="99"))
        for _ in range(3):
            world.cluster.advance(20)
            world.cluster.scheduler.queue.activate(["default/large"])
            await world.schedule()
        return world

    world = asyncio.run(run())
    (record,) = world.records.of("default/large")
    assert record.count == 4
    assert record.at - record.first_at == pytest.approx(60)
    assert record.failure.plugins == ("NodeResourcesFit",)
    verdicts, scores = record.found()
    assert scores is None
    ((status, rows),) = verdicts.rejections(5)
    assert (status.plugin, status.reasons) == ("NodeResourcesFit", ("Insufficient cpu",))
    assert rows.tolist() == [0, 1, 2, 3, 4]


def test_an_error_in_the_recorder_costs_no_pod_its_node(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> World:
        world = World(3)

        def broken(*args: Any) -> None:
            raise KeyError("row")

        world.recorder.truth = []
        monkeypatch.setattr(world.recorder, "_begin", broken)
        await world.schedule(pod("fits"), pod("fits-too"), pod("huge", cpu="100"))
        return world

    world = asyncio.run(run())
    bound = [each.spec.node_name for each in world.cluster.api.store(PODS).values()]
    assert sorted(map(bool, bound)) == [False, True, True]
    assert not world.records.of("default/fits")
    assert sum("Cannot record a decision" in line for line in caplog.messages) == 1
