"""DeviceShare: pods' owners write what they like; nobody else loses a device, or gets one twice."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from proreus.addons.device_share import DeviceShare
from proreus.addons.device_share.annotations import ALLOCATED
from proreus.objects import PODS, Pod
from proreus.testing import Harness, make_node, make_pod

GPU = "nvidia.com/gpu"
REFUSED = "AllocationRefused"


def node(name: str = "a", count: int = 2, **labels: str) -> Any:
    memory = {"nvidia.com/gpu.memory": "40960"}
    listed = {GPU: count, "nvidia.com/mig-3g.20gb": 2}
    return make_node(name, "32", resources=listed, labels={**memory, **labels})


def cluster(*objects: Any, nodes: Any = None) -> Harness:
    made = [node()] if nodes is None else nodes
    args = {"DeviceShare": {"scoringStrategy": {"type": "MostAllocated"}}}
    return Harness([DeviceShare], made, objects, args=args)


def gpu_pod(name: str, count: int = 1, **more: Any) -> Any:
    return make_pod(name, resources={GPU: count}, **more)


def part(name: str, portion: str, **annotations: str) -> Any:
    return make_pod(name, metadata={"annotations": {"gpu-fraction": portion, **annotations}})


def claim(*minors: Any, core: str = "100") -> str:
    resources = {"koordinator.sh/gpu-core": core, "koordinator.sh/gpu-memory-ratio": core}
    return json.dumps({"gpu": [{"minor": one, "resources": resources} for one in minors]})


def bound(name: str, text: str, resources: Any = None, **more: Any) -> Any:
    annotations = {ALLOCATED: text, **more.pop("annotations", {})}
    metadata = {"annotations": annotations}
    return make_pod(name, resources=resources, node_name="a", metadata=metadata, **more)


def write(harness: Harness, pod: str, **annotations: str | None) -> None:
    """Change annotations of a pod, as its owner may."""
    named = {ALLOCATED if key == "allocated" else key: one for key, one in annotations.items()}
    harness.patch("Pod", pod, {"metadata": {"annotations": named}})


def minors(harness: Harness, pod: str) -> list[int]:
    found = json.loads(harness.pod(pod).metadata.annotations[ALLOCATED])
    return [one["minor"] for one in found["gpu"]]


def restarted(harness: Harness, **nodes: Any) -> Harness:
    return cluster(*harness.api.store(PODS).values(), **nodes)


def said(harness: Harness, pod: str) -> list[str]:
    return [one.note for one in harness.events(pod) if one.reason == REFUSED]


# ---- while the process lives ---------------------------------------------------------------------


@pytest.mark.parametrize("text", [claim(7), claim(1), claim(0, core="1"), "{}", None])
def test_an_owner_that_changes_its_annotation_changes_nothing(text: str | None) -> None:
    harness = cluster(nodes=[node(count=2)])
    harness.schedule(gpu_pod("victim"))
    write(harness, "victim", allocated=text)
    assert harness.schedule(gpu_pod("other")).node == "a"
    assert minors(harness, "other") == [1]
    assert not harness.schedule(part("third", "0.1")).node


def test_a_pod_that_asks_for_no_device_takes_none() -> None:
    harness = cluster(bound("before", claim(0)))
    harness.schedule(make_pod("web"))
    write(harness, "web", allocated=claim(0, 1))
    write(harness, "web", **{"gpu-fraction": "1", "volcano.sh/gpu-index": "0,1"})
    harness.add(bound("direct", claim(0, 1)))
    assert harness.schedule(gpu_pod("p", 2)).node == "a"
    assert minors(harness, "p") == [0, 1]


def test_a_request_in_annotations_counts_as_it_was_when_the_pod_got_its_node() -> None:
    harness = cluster(nodes=[node(count=1)])
    harness.schedule(part("half", "0.6"))
    write(harness, "half", **{"gpu-fraction": "0.1"})
    assert not harness.schedule(part("more", "0.5")).node
    write(harness, "half", **{"gpu-fraction": "1"})
    assert harness.schedule(part("rest", "0.4")).node == "a"


def test_an_annotation_that_comes_before_the_binding_changes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    harness = cluster()
    bind = harness.api.bind

    async def annotate(pod: Pod, node_name: str) -> None:
        patch = {"metadata": {"annotations": {"gpu-fraction": "1", ALLOCATED: claim(0, 1)}}}
        await harness.api.patch(PODS, "default", pod.metadata.name, patch)
        await bind(pod, node_name)

    monkeypatch.setattr(harness.api, "bind", annotate)
    assert harness.schedule(make_pod("web")).node == "a"
    monkeypatch.undo()
    assert harness.schedule(gpu_pod("p", 2)).node == "a"


def test_waiting_pods_are_woken_by_a_pod_that_denies_its_devices() -> None:
    harness = cluster(nodes=[node(count=1)])
    harness.schedule(part("first", "0.7"))
    assert not harness.schedule(part("second", "0.5")).node
    write(harness, "first", allocated=None, **{"gpu-fraction": None})
    harness.remove("Pod", "first")
    assert harness.queue_of("default/second") != "unschedulable"


# ---- after a start -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (claim(7), "the node has no healthy gpu 7"),
        (claim(1, 0), "its annotation names more devices than the pod requests"),
        (claim(-1), "the node has no healthy gpu"),
        (claim(0), "too little of gpu 0 is left"),
        ('{"gpu": [{"minor": 9, "id": {"a": 1}}]}', "cannot be read"),
        ('{"gpu": [{"minor": "x"}]}', "cannot be read"),
        ('{"gpu": [{"minor": 1e999}]}', "cannot be read"),
        ('{"gpu": {"minor": 0}}', "cannot be read"),
        ("[" * 100_000, "cannot be read"),
        ('{"gpu": [{"minor": 0, "x": ' + "[" * 100_000, "cannot be read"),
        (f'{{"gpu": [{{"minor": {"9" * 5_000}}}]}}', "cannot be read"),
        ('{"rdma": [{"minor": 0}]}', "its annotation names fewer devices than the pod requests"),
    ],
)
def test_a_claim_that_does_not_fit_counts_as_what_the_pod_requests(text: str, why: str) -> None:
    harness = cluster(bound("honest", claim(0), {GPU: 1}), bound("odd", text, {GPU: 1}))
    outcome = harness.schedule(part("p", "0.1"))
    assert outcome.why_not("a") == "DeviceShare: Insufficient free devices"
    assert not said(harness, "honest")
    (told,) = said(harness, "odd")
    assert why in told
    assert harness.metric("proreus_refused_allocations_total", "DeviceShare") == 1


def test_a_claim_has_what_the_pod_requests_not_what_it_says() -> None:
    harness = cluster(bound("p", claim(0, core="1"), {GPU: 1}), nodes=[node(count=1)])
    assert not harness.schedule(part("q", "0.5")).node
    assert not said(harness, "p")


def test_of_two_claims_to_one_device_that_of_the_pod_bound_first_counts() -> None:
    def ready(minute: int) -> dict[str, Any]:
        when = f"2026-01-01T00:{minute:02}:00Z"
        condition = {"type": "PodScheduled", "status": "True", "lastTransitionTime": when}
        return {"status": {"phase": "Running", "conditions": [condition]}}

    for order in (1, -1):
        pods = [
            bound("first", claim(0), {GPU: 1}, **ready(1)),
            bound("second", claim(0), {GPU: 1}, **ready(2)),
        ]
        harness = cluster(*pods[::order], nodes=[node(count=3)])
        assert harness.schedule(gpu_pod("p")).node == "a"
        assert minors(harness, "p") == [2]
        assert (len(said(harness, "first")), len(said(harness, "second"))) == (0, 1)


def test_more_claims_than_devices_leave_nothing() -> None:
    pods = [bound(f"p{n}", claim(0), {GPU: 1}) for n in range(4)]
    harness = cluster(*pods, nodes=[node(count=3)])
    assert not harness.schedule(part("q", "0.1")).node


def test_a_claim_that_counted_goes_on_counting() -> None:
    harness = cluster(bound("p", claim(1), {GPU: 1}))
    harness.schedule(gpu_pod("q"))
    assert minors(harness, "q") == [0]
    write(harness, "p", allocated=claim(0))
    harness.remove("Pod", "q")
    harness.schedule(gpu_pod("r"))
    assert minors(harness, "r") == [0]
    assert not said(harness, "p")


def test_claims_wait_for_a_node_that_lists_no_device_yet() -> None:
    harness = cluster(bound("p", claim(1), {GPU: 1}), nodes=[make_node("a", "32")])
    assert not harness.schedule(gpu_pod("q")).node
    harness.add(node())
    harness.advance(600)
    harness.schedule_all()
    assert minors(harness, "q") == [0]
    assert not said(harness, "p")


def device(*healthy: bool, first: int = 0) -> dict[str, Any]:
    """Return the Device object of node "a": its GPUs, each healthy or not."""
    listed = [
        {"type": "gpu", "minor": minor, "health": health}
        for minor, health in enumerate(healthy, first)
    ]
    kind = {"apiVersion": "scheduling.koordinator.sh/v1alpha1", "kind": "Device"}
    return {**kind, "metadata": {"name": "a"}, "spec": {"devices": listed}}


def test_a_device_that_is_unhealthy_at_a_start_is_still_its_pods() -> None:
    objects = bound("p", claim(1), {GPU: 1}), device(True, False, True)
    harness = cluster(*objects, nodes=[node(count=4)])
    harness.schedule(gpu_pod("q"))
    assert minors(harness, "q") == [2]
    assert not harness.schedule(part("r", "0.1")).node
    harness.remove("Pod", "r")
    harness.add(device(True, True, True))
    assert harness.schedule(gpu_pod("s")).node == "a"
    assert minors(harness, "s") == [0]
    assert not harness.schedule(part("t", "0.1")).node


def test_a_device_with_a_number_that_comes_after_a_start_is_still_its_pods() -> None:
    harness = cluster(bound("p", claim(3), {GPU: 1}))
    assert not harness.schedule(gpu_pod("q", 2)).node
    harness.add(device(True, True, first=2))
    assert harness.schedule(gpu_pod("r")).node == "a"
    assert minors(harness, "r") == [2]


def test_a_device_that_no_node_has_is_claimed_in_vain_whatever_the_node_gets() -> None:
    harness = cluster(bound("p", claim(7), {GPU: 1}), device(True, True))
    for health in (False, True):
        harness.add(device(True, health))
        assert bool(harness.schedule(gpu_pod(f"q{health}")).node) == health
    assert not harness.schedule(part("r", "0.1")).node
    assert len(said(harness, "p")) == 1


def mig_claim(start: int, profile: str = "3g.20gb") -> str:
    entry = {"resources": {f"nvidia.com/mig-{profile}": "1"}, "extension": {"migStart": start}}
    return json.dumps({"gpu": [{"minor": 0, **entry}]})


@pytest.mark.parametrize(
    ("start", "fits"), [(0, True), (4, True), (1, False), (-1, False), (10**15, False)]
)
def test_an_instance_begins_where_instances_may(start: int, fits: bool) -> None:
    nodes = [node(count=1, **{"nvidia.com/mig.capable": "true"})]
    harness = cluster(bound("p", mig_claim(start), {"nvidia.com/mig-3g.20gb": 1}), nodes=nodes)
    other = {"nvidia.com/mig-3g.20gb": 1}
    harness.schedule(make_pod("q", resources=other))
    assert bool(said(harness, "p")) != fits
    if fits:
        found = json.loads(harness.pod("q").metadata.annotations[ALLOCATED])["gpu"][0]
        assert found.get("extension", {}).get("migStart", 0) == 4 - start


# ---- the same state, a new process ---------------------------------------------------------------


@pytest.mark.parametrize("seed", range(30))
def test_no_device_is_given_twice_whatever_owners_write_and_whoever_restarts(seed: int) -> None:
    rng, nodes = random.Random(seed), [node("a", 3), node("b", 2)]
    harness, real, count = cluster(nodes=nodes), {}, 0
    for _ in range(40):
        match rng.choice("sssdwwr"):
            case "s":
                count += 1
                name = f"p{count}"
                pod = gpu_pod(name, rng.choice((1, 1, 2))) if rng.random() < 0.8 else make_pod(name)
                placed = harness.schedule(pod).node
                if placed and ALLOCATED in harness.pod(name).metadata.annotations:
                    real[name] = placed, minors(harness, name)
                if not placed:
                    harness.remove("Pod", name)
            case "d" if real:
                name = rng.choice(sorted(real))
                harness.remove("Pod", name)
                del real[name]
            case "w" if harness.api.store(PODS):
                name = rng.choice(sorted(harness.api.store(PODS))).removeprefix("default/")
                odd = rng.choice((claim(rng.randint(0, 4)), claim(0, 1), "{", "{}", None))
                write(harness, name, allocated=odd)
            case "r":
                harness = restarted(harness, nodes=nodes)
        for name, total in (("a", 3), ("b", 2)):
            given = [one for where, found in real.values() if where == name for one in found]
            # Not which of them: after a restart nothing but the pods' annotations says that.
            assert len(given) <= total
        usages = harness.plugin(DeviceShare)._accounts
        for name in "ab":
            used = sum(one.users > 0 for one in usages.usage(harness.node(name)).of_type("gpu"))
            assert used == sum(len(found) for where, found in real.values() if where == name)


def test_a_restart_gives_no_device_twice() -> None:
    before = cluster(nodes=[node(count=4)])
    for name in ("p", "q", "r"):
        before.schedule(gpu_pod(name))
    before.schedule(make_pod("web"))
    write(before, "p", allocated=claim(9))
    write(before, "web", allocated=claim(3))
    after = restarted(before, nodes=[node(count=4)])
    assert after.schedule(gpu_pod("s")).node == "a"
    assert minors(after, "s") == [3]
    assert not after.schedule(part("t", "0.1")).node


def test_a_handler_meets_any_text() -> None:
    # What no agent writes concerns the pod that has it, at the start as later.
    texts = [
        '{"gpu": [{"minor": 9, "id": {"a": 1}}]}',
        '{"gpu": [{"minor": 9, "id": [1]}]}',
        "0",
        '"x"',
    ]
    pods = [bound(f"p{n}", text, {GPU: 1}) for n, text in enumerate(texts)]
    harness = cluster(*pods, nodes=[node(), node("b")])
    assert harness.schedule(gpu_pod("q", 2)).node == "b"


def test_pods_that_are_gone_leave_nothing() -> None:
    harness = cluster()
    for number in range(3):
        metadata = {"annotations": {ALLOCATED: claim(0)}}
        odd = make_pod(f"odd-{number}", resources={GPU: 1}, node_name="none", metadata=metadata)
        harness.add(odd)
        harness.schedule(gpu_pod(f"p-{number}"))
        harness.remove("Pod", f"odd-{number}")
        harness.remove("Pod", f"p-{number}")
    charges = harness.plugin(DeviceShare)._accounts._charges
    assert not charges._nodes
    assert not charges._by_node
    assert not charges._refused
