"""DeviceShare: whole and fractional GPUs, their annotations, accounts after a restart."""

from __future__ import annotations

import json

import pytest

from proreus.addons.device_share import DeviceShare
from proreus.addons.device_share.annotations import ALLOCATED
from proreus.addons.device_share.devices import _cards_in_text, _registered
from proreus.framework import ApiError
from proreus.objects import PODS
from proreus.testing import Harness, make_node, make_pod

GPU = "nvidia.com/gpu"
GIB = 2**30


def gpu_node(name: str, count: int = 2, **more: object) -> object:
    labels = {"nvidia.com/gpu.memory": "16384"}
    return make_node(name, "32", resources={GPU: count}, labels=labels, **more)


def fraction(name: str, portion: str, count: int = 1, **more: object) -> object:
    annotations = {"gpu-fraction": portion, "gpu-fraction-num-devices": str(count)}
    return make_pod(name, metadata={"annotations": annotations}, **more)


def harness(*objects: object, nodes=None, **args: object) -> Harness:
    made = [gpu_node("a")] if nodes is None else nodes
    return Harness([DeviceShare], made, objects, args={"DeviceShare": args})


def devices(cluster: Harness, pod: str) -> list[tuple[int, str]]:
    """Return minor and compute of each GPU that the pod's annotation names."""
    found = json.loads(cluster.pod(pod).metadata.annotations[ALLOCATED])
    return [(one["minor"], one["resources"]["koordinator.sh/gpu-core"]) for one in found["gpu"]]


MOST = {"scoringStrategy": {"type": "MostAllocated"}}


# ---- whole and fractional GPUs -------------------------------------------------------------------


def test_whole_and_fractional_gpus_do_not_share_a_card() -> None:
    cluster = harness(**MOST)

    assert cluster.schedule(fraction("half", "0.5")).node == "a"
    assert cluster.schedule(make_pod("whole", resources={GPU: 1})).node == "a"
    assert cluster.schedule(fraction("other", "0.5")).node == "a"
    outcome = cluster.schedule(fraction("more", "0.1"))

    assert devices(cluster, "default/half") == devices(cluster, "default/other") == [(0, "50")]
    assert devices(cluster, "default/whole") == [(1, "100")]
    assert outcome.why_not("a") == "DeviceShare: Insufficient free devices"


def test_the_annotation_has_compute_and_memory() -> None:
    cluster = harness()
    cluster.schedule(fraction("eighth", "0.125"))

    annotations = cluster.pod("default/eighth").metadata.annotations
    found = json.loads(annotations[ALLOCATED])

    assert annotations["scheduling.koordinator.sh/gpu-minors"] == "0"
    assert annotations["scheduling.koordinator.sh/bind-timestamp"].isdecimal()
    resources = {
        "koordinator.sh/gpu-core": "12500m",
        "koordinator.sh/gpu-memory-ratio": "12500m",
        "koordinator.sh/gpu-memory": str(2 * GIB),
    }
    assert found == {"gpu": [{"minor": 0, "resources": resources}]}


def test_spreading_takes_the_emptier_card_and_best_fit_the_fuller_one() -> None:
    for strategy, minor in (("LeastAllocated", 1), ("MostAllocated", 0)):
        cluster = harness(scoringStrategy={"type": strategy})
        cluster.schedule(fraction("first", "0.3"))
        cluster.schedule(fraction("second", "0.3"))
        assert devices(cluster, "default/second") == [(minor, "30")]


def test_best_fit_prefers_the_fuller_node() -> None:
    cluster = harness(nodes=[gpu_node("a"), gpu_node("b")], **MOST)
    first = cluster.schedule(fraction("first", "0.5")).node
    outcome = cluster.schedule(fraction("second", "0.5"))
    assert outcome.node == first
    assert outcome.score(first, "DeviceShare") == 100


def test_more_gpus_than_a_node_has_cannot_be_preempted() -> None:
    outcome = harness(nodes=[gpu_node("a"), "b"]).schedule(fraction("p", "0.5", 3))
    assert outcome.why_not("a") == "DeviceShare: node(s) had too few devices"
    assert outcome.why_not("b") == "DeviceShare: node(s) had too few devices"


def test_an_invalid_request_is_said() -> None:
    outcome = harness().schedule(fraction("p", "1.5"))
    assert outcome.node == ""
    assert "invalid device request: annotation gpu-fraction must be in (0, 1]" in outcome.message


def test_pods_without_devices_stay_off_gpu_nodes() -> None:
    nodes = [gpu_node("a"), "b"]
    outcome = harness(nodes=nodes).schedule(make_pod("web"))
    assert (outcome.score("a", "DeviceShare"), outcome.score("b", "DeviceShare")) == (0, 100)

    rejected = harness(nodes=nodes, cpuOnlyPods="Reject").schedule(make_pod("web"))
    assert rejected.why_not("a") == "DeviceShare: node(s) are kept for GPU pods"

    allowed = harness(nodes=nodes, cpuOnlyPods="Allow").schedule(make_pod("web"))
    assert allowed.score("a", "DeviceShare") == allowed.score("b", "DeviceShare") == 0


# ---- accounts ------------------------------------------------------------------------------------


def test_a_restart_reads_the_annotations() -> None:
    before = harness(scoringStrategy={"type": "LeastAllocated"})
    for name in ("first", "second"):
        before.schedule(fraction(name, "0.6"))
    pods = [before.pod("default/first"), before.pod("default/second")]
    assert devices(before, "default/first") != devices(before, "default/second")

    after = harness(*pods, **MOST)

    assert after.schedule(fraction("third", "0.4")).node == "a"
    assert after.schedule(fraction("fourth", "0.4")).node == "a"
    assert after.schedule(fraction("fifth", "0.1")).node == ""


def test_a_pod_without_annotation_takes_what_best_fit_gives() -> None:
    bound = make_pod("bound", resources={GPU: 1}, node_name="a")
    cluster = harness(bound, **MOST)
    cluster.schedule(fraction("half", "0.5"))
    assert devices(cluster, "default/half") == [(1, "50")]


def test_the_annotation_of_an_attempt_that_failed_does_not_count() -> None:
    cluster = harness(**MOST)
    cluster.schedule(fraction("first", "0.5"))
    stale = cluster.pod("default/first").metadata.annotations
    cluster.remove("Pod", "first")

    cluster.schedule(fraction("keep", "1"))
    again = make_pod("again", metadata={"annotations": dict(stale)})

    assert cluster.schedule(again).node == "a"
    assert devices(cluster, "default/again") == [(1, "50")]


def test_a_deleted_pod_gives_back_its_devices_and_wakes_others() -> None:
    cluster = harness(nodes=[gpu_node("a", 1)])
    cluster.schedule(fraction("first", "0.7"))
    assert cluster.schedule(fraction("second", "0.5")).node == ""

    cluster.remove("Pod", "first")
    assert cluster.queue_of("default/second") != "unschedulable"
    cluster.advance(30)
    cluster.schedule_all()
    assert cluster.outcome("default/second").node == "a"


def test_a_deleted_pod_without_devices_wakes_nobody() -> None:
    cluster = harness(make_pod("web", node_name="a"), nodes=[gpu_node("a", 1)])
    cluster.schedule(fraction("first", "0.7"))
    cluster.schedule(fraction("second", "0.5"))
    cluster.remove("Pod", "web")
    assert cluster.queue_of("default/second") == "unschedulable"


def test_devices_are_given_back_if_the_annotation_cannot_be_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = harness(nodes=[gpu_node("a", 1)])
    patch = cluster.api.patch

    async def refuse(resource: object, *args: object) -> object:
        if resource is PODS:
            raise ApiError(403, "Forbidden", "no")
        return await patch(resource, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(cluster.api, "patch", refuse)
    outcome = cluster.schedule(fraction("p", "1"))
    assert "writing the devices of pod default/p: no" in outcome.message
    monkeypatch.undo()
    assert cluster.schedule(fraction("other", "1")).node == "a"


def test_profiles_share_the_accounts() -> None:
    def profile(name: str) -> dict:
        return {
            "schedulerName": name,
            "plugins": {"multiPoint": {"enabled": [{"name": "DeviceShare"}]}},
        }

    config = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [profile("one"), profile("two")],
    }
    cluster = Harness([DeviceShare], [gpu_node("a", 2)], config=config)
    first, second = cluster.scheduler.profiles["one"], cluster.scheduler.profiles["two"]
    plugins = [
        next(plugin for plugin in one.plugins if isinstance(plugin, DeviceShare))
        for one in (first, second)
    ]
    assert plugins[0]._accounts is plugins[1]._accounts

    cluster.schedule(fraction("p", "0.6", scheduler_name="one"))
    cluster.schedule(fraction("q", "0.6", scheduler_name="two"))

    assert {devices(cluster, "default/p")[0][0], devices(cluster, "default/q")[0][0]} == {0, 1}


def test_preemption_frees_a_card() -> None:
    cluster = harness(nodes=[gpu_node("a", 1)])
    cluster.schedule(fraction("low", "0.6", priority=0))
    cluster.schedule(fraction("high", "0.6", priority=10))
    assert cluster.api.deleted == ["default/low"]


# ---- what others wrote ---------------------------------------------------------------------------

CORE, RATIO = "koordinator.sh/gpu-core", "koordinator.sh/gpu-memory-ratio"


@pytest.mark.parametrize("strategy", ["LeastAllocated", "MostAllocated", "LeastFragmented"])
@pytest.mark.parametrize(
    "entry",
    [
        {"resources": {"nvidia.com/mig-1g.5gb": "1"}, "extension": {"migStart": -1}},
        {"resources": {"nvidia.com/mig-1g.5gb": "1"}, "extension": {"migStart": 10**15}},
        {"resources": {f"nvidia.com/mig-1g.{'9' * 5_000}gb": "1"}},
        {"resources": {CORE: "100000", RATIO: "100000"}},
        {"resources": {CORE: "-100000", RATIO: "-1000"}},
    ],
    ids=["before the first slice", "behind the last", "a huge profile", "too much", "negative"],
)
def test_an_odd_annotation_of_one_pod_harms_no_other(strategy: str, entry: dict) -> None:
    annotations = {ALLOCATED: json.dumps({"gpu": [{"minor": 0, **entry}]})}
    odd = make_pod("odd", node_name="a", metadata={"annotations": annotations})
    nodes = [gpu_node("a"), gpu_node("b")]
    cluster = harness(odd, nodes=nodes, scoringStrategy={"type": strategy})
    assert cluster.schedule(make_pod("p", resources={GPU: 1})).node in ("a", "b")


def test_numbers_that_nothing_can_have_are_no_cards() -> None:
    digits = "9" * 5_000
    texts = (f"x,{digits},1024,A100,true:", f"x,1,{digits},A100,true:", "x,1,1024,A100,true:")
    found = [[card.devmem for card in _cards_in_text(text)] for text in texts]
    assert found == [[], [], [1024]]


@pytest.mark.parametrize("amounts", [{"devmem": -5, "count": 1}, {"devmem": 5, "count": -1}])
def test_a_listed_card_with_a_negative_amount_is_left_out(amounts: dict[str, int]) -> None:
    cards = [{"id": "odd", "health": True, **amounts}]
    cards.append({"id": "usual", "health": True, "index": 1, "devmem": 1024, "count": 2})
    assert [card.id for card in _registered(json.dumps(cards), mig=False)] == ["usual"]


@pytest.mark.parametrize("memory", ["abc", "-1Gi"])
def test_a_device_object_with_an_odd_amount_harms_no_other_node(memory: str) -> None:
    entry = {"type": "gpu", "health": True, "resources": {"koordinator.sh/gpu-memory": memory}}
    device = {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "Device",
        "metadata": {"name": "a"},
        "spec": {"devices": [entry]},
    }
    cluster = harness(device, nodes=[gpu_node("a"), gpu_node("b", 1)])
    outcomes = [cluster.schedule(make_pod(name, resources={GPU: 1})) for name in ("p", "q")]
    assert [outcome.node for outcome in outcomes] == ["b", ""]
    assert outcomes[1].why_not("a").startswith("DeviceShare: ")


def test_a_device_object_that_is_gone_wakes_the_pods_that_were_rejected() -> None:
    device = {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "Device",
        "metadata": {"name": "a"},
        "spec": {"devices": []},
    }
    cluster = harness(device)
    assert not cluster.schedule(make_pod("p", resources={GPU: 1})).bound
    cluster.remove("Device", "a", "")
    assert cluster.schedule("p").bound
