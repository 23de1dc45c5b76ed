"""What is parsed of a pod in another thread is what scheduling finds and would have parsed."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from proreus.base import bounded_cache
from proreus.base.feature_gates import FeatureGates
from proreus.client.watching.watch import EventDecoder
from proreus.framework import affinity_terms, node_affinity, pod_info, tolerations
from proreus.framework.affinity_terms import affinity_terms_of
from proreus.framework.node_affinity import node_affinity_of
from proreus.framework.pod_info import PodInfo
from proreus.objects.pod import Pod
from proreus.objects.storage import CSI_STORAGE_CAPACITIES, CSIStorageCapacity
from proreus.plugins.parse_ahead import PodParser, parsers
from proreus.plugins.pod_topology_spread import constraints
from proreus.plugins.volume_binding import storage_capacity

HOST = "kubernetes.io/hostname"
IGNORED = "IgnoredDuringExecution"
SELECTOR = {"matchLabels": {"app": "web"}}
TERM = {"topologyKey": HOST, "labelSelector": SELECTOR}
ZONES = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a", "b"]}]}
SPEC: dict[str, Any] = {
    "affinity": {
        "podAntiAffinity": {f"requiredDuringScheduling{IGNORED}": [TERM]},
        "podAffinity": {
            f"preferredDuringScheduling{IGNORED}": [{"weight": 7, "podAffinityTerm": TERM}]
        },
        "nodeAffinity": {f"requiredDuringScheduling{IGNORED}": {"nodeSelectorTerms": [ZONES]}},
    },
    "topologySpreadConstraints": [
        {
            "maxSkew": 1,
            "topologyKey": HOST,
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": SELECTOR,
            "matchLabelKeys": ["app"],
        }
    ],
    "tolerations": [{"key": "gpu", "operator": "Exists"}],
    "containers": [{"name": "c", "resources": {"requests": {"cpu": "1", "example.com/x": "2"}}}],
    "initContainers": [{"name": "i", "resources": {"requests": {"memory": "1Gi"}}}],
}
CACHES = (
    affinity_terms._shared._parsed,
    node_affinity._shared._parsed,
    constraints._shared,
    pod_info._shared_requests,
    tolerations._shared,
)


@pytest.fixture(autouse=True)
def empty_caches() -> Iterator[None]:
    def forget() -> None:
        for _ in range(3):
            bounded_cache.age_caches()

    forget()
    yield
    forget()


def parsed(pod: Pod) -> tuple[object, ...]:
    return (
        affinity_terms_of(pod),
        node_affinity_of(pod),
        constraints._shared.of(pod, True),
        PodInfo(pod).requests,
        tolerations.toleration_index(PodInfo(pod)),
    )


def in_a_thread(pod: Pod) -> Any:
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(PodParser(FeatureGates())(pod)))
    thread.start()
    thread.join()
    return found[0]


@pytest.mark.parametrize("fields", [(), *((name,) for name in SPEC), tuple(SPEC)])
def test_scheduling_finds_what_was_parsed_ahead(fields: tuple[str, ...]) -> None:
    spec = {"containers": [{"name": "c"}]} | {name: SPEC[name] for name in fields}
    meta = {"name": "p", "namespace": "default", "labels": {"app": "web"}}
    pod = msgspec.convert({"metadata": meta, "spec": spec}, Pod)
    expected = parsed(pod)
    for cache in CACHES:
        cache.clear()
    affinity_terms._shared.age()
    node_affinity._shared.age()

    keep = in_a_thread(pod)
    assert not any(map(len, CACHES)), "another thread writes into no cache"
    keep()
    ahead = [dict(cache.items()) for cache in CACHES]
    found = parsed(pod)
    assert [dict(cache.items()) for cache in CACHES[:2]] == ahead[:2], "nothing is parsed again"
    assert repr(found[:3]) == repr(expected[:3])
    requests, wanted = PodInfo(pod).requests, expected[3]
    assert isinstance(wanted, pod_info.PodRequests)
    assert (requests.key, requests.amounts) == (wanted.key, wanted.amounts)
    assert requests in ahead[3].values()
    assert bool(ahead[4]) == ("tolerations" in fields)
    assert found[4] is expected[4]


@pytest.mark.parametrize(
    ("type_", "size", "ahead"),
    [("ADDED", 70_000, True), ("ADDED", 100, False), ("MODIFIED", 70_000, False)],
)
async def test_new_large_objects_are_parsed_in_a_thread_before_anybody_sees_them(
    type_: str, size: int, ahead: bool
) -> None:
    steps: list[str] = []
    loop_thread = threading.get_ident()

    def parse(pod: Pod) -> Any:
        steps.append("parsed" if threading.get_ident() != loop_thread else "parsed on the loop")
        return lambda: steps.append(
            "kept" if threading.get_ident() == loop_thread else "kept elsewhere"
        )

    decoder = EventDecoder(Pod, parse_ahead=parse)
    pod = {"kind": "Pod", "metadata": {"name": "p", "annotations": {"a": "x" * size}}}
    line = msgspec.json.encode({"type": type_, "object": pod})
    async for batch in decoder.batches([line, line]):
        steps.append(f"{len(batch.events)} events")
    assert steps == (["parsed", "kept"] * 2 if ahead else []) + ["2 events"]


async def test_the_loop_turns_meanwhile() -> None:
    loop, began, go_on = asyncio.get_running_loop(), asyncio.Event(), threading.Event()

    def parse(pod: Pod) -> Any:
        loop.call_soon_threadsafe(began.set)
        assert go_on.wait(10)
        return lambda: None

    decoder = EventDecoder(Pod, parse_ahead=parse)
    pod = {"kind": "Pod", "metadata": {"name": "p", "annotations": {"a": "x" * 70_000}}}
    line = msgspec.json.encode({"type": "ADDED", "object": pod})

    async def read() -> int:
        return sum([len(batch.events) async for batch in decoder.batches([line])])

    reading = asyncio.create_task(read())
    await began.wait()
    assert not reading.done()
    go_on.set()
    assert await reading == 1


async def test_an_object_that_cannot_be_parsed_is_left_to_those_who_need_it() -> None:
    """One object must not end a watch, whatever is wrong with it."""

    def parse(pod: Pod) -> Any:
        raise RecursionError

    decoder = EventDecoder(Pod, parse_ahead=parse)
    pod = {"kind": "Pod", "metadata": {"name": "p", "annotations": {"a": "x" * 70_000}}}
    line = msgspec.json.encode({"type": "ADDED", "object": pod})
    assert [len(batch.events) async for batch in decoder.batches([line, line])] == [2]


def test_topologies_of_capacities_are_parsed_ahead() -> None:
    topology = {"matchLabels": {"zone": "a"}}
    document = {"storageClassName": "c", "capacity": "1Gi", "nodeTopology": topology}
    capacity = msgspec.convert(document, CSIStorageCapacity)
    keep = parsers(FeatureGates())[CSI_STORAGE_CAPACITIES.id](capacity)
    assert len(storage_capacity._shared_topologies) == 0
    keep()
    ((_, nodes),) = storage_capacity._shared_topologies.items()
    found = storage_capacity.storage_capacity_of(capacity)
    assert found is not None
    assert found.accessible_nodes is nodes
