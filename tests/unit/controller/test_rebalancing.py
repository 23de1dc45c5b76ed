"""Better nodes, proved on small clusters; plans; evictions by an apiserver that notes them."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from proreus.base.errors import ApiError, ConfigError, Conflict, NotFound, TooManyRequests
from proreus.controller.controller_metrics import ControllerMetrics
from proreus.controller.evictions.eviction_record import (
    EvictionRecord,
    RecordedEviction,
    UnreadableRecord,
)
from proreus.controller.evictions.pod_evictor import Choose, PodEvictor
from proreus.controller.options import ControllerOptions
from proreus.controller.rebalancing.better_nodes import Move, find_better_nodes, is_movable
from proreus.controller.rebalancing.rebalancer import choose, settings_of
from proreus.insight.snapshots.cluster_objects import ClusterObjects
from proreus.objects.kinds import PODS
from proreus.workbench.simulation.controllers import Controllers

sys.path.insert(0, str(Path(__file__).parent.parent / "workbench" / "simulation"))
from clusters import cluster, node, pod

OPTIONS = ControllerOptions(rebalance_period=60, evict=True)


def moves_in(objects: ClusterObjects, min_gain: int = 10) -> dict[str, str]:
    keys = sorted(key for key in objects.of(PODS) if key.startswith("shop/web-"))
    moves = find_better_nodes(objects, settings_of(None), keys, min_gain)
    return {move.pod.removeprefix("shop/"): move.better_node for move in moves}


def crowded(*more: dict[str, Any], pods: int = 4) -> ClusterObjects:
    """A full node next to whatever is in ``more``."""
    members = [pod(f"web-{i}", on="full", of="ReplicaSet/web") for i in range(pods)]
    return cluster(node("full"), *members, *more)


def test_pods_of_a_full_node_would_have_an_empty_one_until_both_are_even() -> None:
    assert moves_in(crowded(node("empty"))) == {"web-0": "empty", "web-1": "empty"}
    assert moves_in(crowded(node("empty")), min_gain=90) == {}


def test_nobody_moves_where_there_is_no_better_node() -> None:
    assert moves_in(crowded()) == {}
    assert moves_in(crowded(node("empty", cpu="500m"))) == {}


def test_the_simulation_has_the_plugins_that_the_configuration_enables() -> None:
    plugins = Path(__file__).parents[3] / "deploy" / "plugins-from-configmap"
    settings = settings_of(plugins / "scheduler.yaml", plugin_folders=(str(plugins),))
    assert "Maintenance" in settings.registry


def test_pods_that_wait_have_the_room_first() -> None:
    waiting = pod("waits-0", cpu="4", of="ReplicaSet/waits")
    assert moves_in(crowded(node("empty"), waiting)) == {}


def test_a_node_that_a_pod_may_not_have_any_more_is_worse_than_any_other() -> None:
    selective = pod("web-9", on="full", of="ReplicaSet/web", nodeSelector={"disk": "fast"})
    fast = node("fast")
    fast["metadata"]["labels"]["disk"] = "fast"
    objects = cluster(node("full"), fast, selective)
    [move] = find_better_nodes(objects, settings_of(None), ["shop/web-9"], 50)
    assert (move.better_node, move.gain) == ("fast", 1500)
    assert "node affinity" in move.reason


def test_a_cordon_says_nothing_about_pods_that_run() -> None:
    lone = pod("web-0", on="full", of="ReplicaSet/web")
    assert moves_in(cluster(node("full", unschedulable=True), node("empty"), lone)) == {}


@pytest.mark.parametrize("kind", ["required", "preferred"])
@pytest.mark.parametrize("reach", [{"namespaces": ["shop"]}, {"namespaceSelector": {}}])
def test_terms_of_another_namespace_do_not_move_a_pod(kind: str, reach: dict[str, Any]) -> None:
    term = {
        "labelSelector": {"matchLabels": {"app": "web"}},
        "topologyKey": "kubernetes.io/hostname",
        **reach,
    }
    terms = {
        "required": {"requiredDuringSchedulingIgnoredDuringExecution": [term]},
        "preferred": {
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": 100, "podAffinityTerm": term}
            ]
        },
    }[kind]
    hostile = pod("hostile", cpu="0", on="full", affinity={"podAntiAffinity": terms})
    web = pod("web-0", cpu="0", on="full", of="ReplicaSet/web")
    objects = [node("full"), node("empty"), web, hostile]
    # A term with a namespaceSelector may be about other namespaces: it counts for none.
    assert moves_in(cluster(*objects)) == ({"web-0": "empty"} if "namespaces" in reach else {})
    hostile["metadata"]["namespace"] = "elsewhere"
    assert moves_in(cluster(*objects)) == {}


def test_a_pod_is_not_moved_to_a_node_that_terms_of_another_namespace_forbid() -> None:
    term = {
        "labelSelector": {"matchLabels": {"app": "web"}},
        "topologyKey": "kubernetes.io/hostname",
        "namespaceSelector": {},
    }
    terms = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    other = pod("other", cpu="0", on="empty", affinity={"podAntiAffinity": terms})
    other["metadata"]["namespace"] = "elsewhere"
    assert moves_in(crowded(node("empty"))) != {}
    assert moves_in(crowded(node("empty"), other)) == {}


def test_pods_that_cannot_be_created_elsewhere_are_not_movable() -> None:
    group = pod("gang-0", on="full", of="ReplicaSet/gang")
    group["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"] = "gang"
    kept = pod("kept-0", on="full", of="ReplicaSet/kept")
    kept["metadata"]["annotations"] = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}
    objects = crowded(
        group,
        kept,
        pod("bare", on="full"),
        pod("agent-0", on="full", of="DaemonSet/agent"),
        pod("work-0", on="full", of="Job/work"),
        pod("waits-0", of="ReplicaSet/waits"),
        pods=1,
    )
    controllers = Controllers(objects)
    movable = [key for key, one in objects.of(PODS).items() if is_movable(one, controllers)]
    assert movable == ["shop/web-0"]


# ---- plans ---------------------------------------------------------------------------------------


def move(name: str, gain: int = 20, namespace: str = "a", workload: str = "") -> Move:
    workload = workload or f"deployment/{namespace}/{name}"
    return Move(f"{namespace}/{name}", f"uid-{name}", workload, "n1", "n2", gain, "why")


def names(moves: list[Move]) -> list[str]:
    return [one.pod.rpartition("/")[2] for one in moves]


def recorded(name: str, at: float, state: Any = "done", namespace: str = "a") -> RecordedEviction:
    workload = f"deployment/{namespace}/{name}"
    return RecordedEviction(f"{namespace}/{name}", f"uid-{name}", workload, "n1", at, state)


def test_the_best_moves_come_first_within_both_budgets() -> None:
    moves = [move("x", 11), move("y", 30), move("z", 20), move("o", 12, "b")]
    options = ControllerOptions(rebalance_period=60, max_evictions=3)
    assert names(choose(moves, [], options, 1000)) == ["y", "z", "o"]
    options = ControllerOptions(rebalance_period=60, max_evictions=1)
    assert names(choose(moves, [], options, 1000)) == ["y"]


def test_evictions_of_the_last_period_have_used_the_budget() -> None:
    before = [recorded("p", 990), recorded("q", 990)]
    assert choose([move("x")], before, OPTIONS, 1000) == []
    assert names(choose([move("x")], before, OPTIONS, 1060)) == ["x"]


def test_a_workload_rests_after_an_eviction_and_gives_one_pod_at_a_time() -> None:
    before = [recorded("web", 0)]
    moves = [move("web-1", workload="deployment/a/web"), move("web-2", workload="deployment/a/web")]
    assert choose(moves, before, OPTIONS, 1799) == []
    assert len(choose(moves, before, OPTIONS, 1801)) == 1


def test_evictions_need_cycles() -> None:
    with pytest.raises(ConfigError, match="--rebalance-period"):
        ControllerOptions(evict=True)


# ---- evictions -----------------------------------------------------------------------------------


class Api:
    """Pods by key, a ConfigMap, and what happens to them; ``dies_at``: a request is never sent."""

    def __init__(self, **uids: str) -> None:
        self.uids = uids
        self.terminating: set[str] = set()
        self.evicted: list[str] = []
        self.stored: dict[str, Any] | None = None
        self.version = 0
        self.refused: dict[str, ApiError] = {}
        self.evicts_refused = False
        self.fails_at = ""

    async def request(self, method: str, path: str, body: bytes = b"", **_: Any) -> bytes:
        if self.fails_at and self.fails_at in f"{method} {path}":
            raise ApiError(0, "", "no answer")
        sent = json.loads(body or b"{}")
        if "/configmaps" in path:
            return self._config_map(method, sent)
        name = path.removesuffix("/eviction").rpartition("/")[2]
        if name not in self.uids:
            raise NotFound(404, "NotFound", "gone")
        if method == "POST":
            if refusal := self.refused.get(name):
                if self.evicts_refused:
                    self.terminating.add(name)
                raise refusal
            assert sent["deleteOptions"]["preconditions"]["uid"] == self.uids[name]
            self.evicted.append(name)
            self.terminating.add(name)
            return b"{}"
        meta = {"uid": self.uids[name], "resourceVersion": "1"}
        if name in self.terminating:
            meta["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        return json.dumps({"metadata": meta}).encode()

    def _config_map(self, method: str, sent: dict[str, Any]) -> bytes:
        if method == "GET":
            if self.stored is None:
                raise NotFound(404, "NotFound", "none yet")
            return json.dumps(self.stored).encode()
        if sent["metadata"].get("resourceVersion", "0") != str(self.version):
            raise Conflict(409, "Conflict", "somebody else has written")
        self.version += 1
        sent["metadata"]["resourceVersion"] = str(self.version)
        self.stored = sent
        return json.dumps(sent).encode()

    def states(self) -> dict[str, str]:
        assert self.stored is not None
        entries = json.loads(self.stored["data"]["evictions.json"])
        return {one["pod"]: one["state"] for one in entries}


def evictor_over(api: Api, now: float = 1000.0) -> PodEvictor:
    record = EvictionRecord(api, "system")  # type: ignore[arg-type]
    return PodEvictor(api, record, ControllerMetrics(), 1800, lambda: now)  # type: ignore[arg-type]


async def plan(api: Api, *entries: RecordedEviction) -> None:
    record = EvictionRecord(api, "system")  # type: ignore[arg-type]
    await record.read()
    await record.write(entries)


async def test_a_plan_that_another_process_left_is_finished_once() -> None:
    api = Api(x="uid-x", y="another")
    await plan(api, recorded("x", 990, "planned"), recorded("y", 990, "planned"))
    for _ in range(2):
        await evictor_over(api).finish()
    assert api.evicted == ["x"]
    assert api.states() == {"a/x": "done", "a/y": "done"}


async def test_an_eviction_whose_record_was_never_finished_is_not_made_again() -> None:
    api = Api(x="uid-x")
    await plan(api, recorded("x", 990, "planned"))
    api.fails_at = "PUT"
    with pytest.raises(ApiError):
        await evictor_over(api).finish()
    api.fails_at = ""
    await evictor_over(api).finish()
    assert api.evicted == ["x"]
    assert api.states() == {"a/x": "done"}


async def test_refused_plans_are_recorded_and_outdated_ones_dropped() -> None:
    api = Api(x="uid-x", y="uid-y")
    api.refused["x"] = TooManyRequests(429, "TooManyRequests", "a budget")
    await plan(api, recorded("x", 990, "planned"), recorded("y", 600, "planned"))
    await evictor_over(api).finish()
    assert api.states() == {"a/x": "refused"}
    assert api.evicted == []


REFUSALS = [
    TooManyRequests(429, "TooManyRequests", "a budget of zero"),
    ApiError(500, "InternalError", "This pod has more than one PodDisruptionBudget"),
]


@pytest.mark.parametrize("refusal", REFUSALS)
async def test_a_pod_that_cannot_be_evicted_leaves_its_place_in_the_plan_to_others(
    refusal: ApiError,
) -> None:
    api = Api(x="uid-x", y="uid-y", z="uid-z", other="uid-other")
    api.refused.update(x=refusal, y=refusal)
    moves = [move("x", 50), move("y", 40), move("z", 30), move("other", 20, "b")]
    options = ControllerOptions(rebalance_period=60, evict=True, max_evictions=1)

    def chosen(known: list[RecordedEviction]) -> list[RecordedEviction]:
        return [
            RecordedEviction(one.pod, one.uid, one.workload, one.node, 1000.0)
            for one in choose(moves, known, options, 1000.0)
        ]

    await evictor_over(api).evict(chosen)
    # Of namespace a two were tried, which is its part of the period.
    assert api.evicted == ["other"]
    assert api.states() == {"a/x": "refused", "a/y": "refused", "b/other": "done"}
    assert choose(moves, [], options, 1000.0) != choose(moves, [recorded("x", 990)], options, 1060)


async def test_an_eviction_that_happened_although_it_failed_is_done() -> None:
    api = Api(x="uid-x")
    api.refused["x"] = ApiError(504, "Timeout", "the apiserver was slow")
    api.evicts_refused = True
    await plan(api, recorded("x", 990, "planned"))
    await evictor_over(api).finish()
    assert api.states() == {"a/x": "done"}


@pytest.mark.parametrize(
    "text",
    ["[", "{}", '[{"pod": "x"}]', '[{"pod":"../y","uid":"u","workload":"","node":"n","at":1}]'],
)
async def test_nobody_is_evicted_by_a_record_that_cannot_be_read(text: str) -> None:
    api = Api(x="uid-x")
    await plan(api, recorded("x", 990, "planned"))
    assert api.stored is not None
    api.stored["data"]["evictions.json"] = text
    with pytest.raises(UnreadableRecord, match=r"ConfigMap system/proreus-controller-evictions"):
        await evictor_over(api).evict(lambda known: [] if known else [recorded("x", 1, "planned")])
    assert api.evicted == []


async def test_two_plans_of_a_process_are_made_one_after_the_other() -> None:
    api = Api(x="uid-x", y="uid-y")
    evictor = evictor_over(api)

    def only(name: str) -> Choose:
        return lambda known: [] if known else [recorded(name, 1000, "planned")]

    await asyncio.gather(evictor.evict(only("x")), evictor.evict(only("y")))
    assert api.evicted == ["x"]
    assert api.states() == {"a/x": "done"}


async def test_of_two_processes_one_fails_before_it_evicts() -> None:
    api = Api(x="uid-x")
    first, second = EvictionRecord(api, "s"), EvictionRecord(api, "s")  # type: ignore[arg-type]
    assert await first.read() == await second.read() == []
    await first.write([recorded("x", 1)])
    with pytest.raises(Conflict):
        await second.write([recorded("x", 2)])
