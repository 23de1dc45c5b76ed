"""DeviceShare: the names of each project, and the annotations that its agents read."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from proreus.addons.device_share import DeviceShare
from proreus.addons.device_share.annotations import ALLOCATED, claimed_devices
from proreus.addons.device_share.devices import MIB, NodeDevice, inventory_of
from proreus.addons.device_share.hints import InvalidRequest
from proreus.addons.device_share.requests import Share, request_of
from proreus.addons.device_share.usage import Grant
from proreus.framework import NodeInfo
from proreus.testing import Harness, make_node, make_pod

GIB = 2**30


def pod(resources: dict[str, object] | None = None, **annotations: str) -> Any:
    metadata = {"annotations": {name.replace("_", "-"): text for name, text in annotations.items()}}
    return make_pod("p", resources=resources, metadata=metadata)


def koordinator(**amounts: object) -> Any:
    return pod({"koordinator.sh/" + name.replace("_", "-"): one for name, one in amounts.items()})


def volcano(**amounts: object) -> Any:
    return pod({"volcano.sh/vgpu-" + name.replace("_", "-"): one for name, one in amounts.items()})


@pytest.mark.parametrize(
    ("asking", "shares"),
    [
        (pod({"nvidia.com/gpu": 2}), [Share(2, 1000, 0, 1000)]),
        (pod({"nvidia.com/mig-1g.5gb": 3}), [Share(3, profile="1g.5gb")]),
        (koordinator(gpu=50), [Share(1, 500, 0, 500)]),
        (koordinator(gpu=300), [Share(3, 1000, 0, 1000)]),
        (koordinator(gpu_core=30, gpu_memory_ratio=40), [Share(1, 300, 0, 400)]),
        (koordinator(gpu_core=30, gpu_memory="8Gi"), [Share(1, 300, 8 * GIB)]),
        (koordinator(gpu_memory_ratio=200), [Share(2, 0, 0, 1000)]),
        (koordinator(gpu_memory="4Gi"), [Share(1, 0, 4 * GIB)]),
        (koordinator(gpu=150, **{"gpu.shared": 3}), [Share(3, 500, 0, 500)]),
        (koordinator(rdma=50), [Share(1, 500, 0, 500, "rdma")]),
        (volcano(number=2, memory=4000, cores=50), [Share(2, 500, 4000 * MIB)]),
        (volcano(number=1, memory=4000, memory_percentage=25), [Share(1, 0, 0, 250)]),
        (volcano(number=1, memory_percentage=101), [Share(1, 0, 0, 1000)]),
        (pod({"volcano.sh/gpu-memory": 1000}), [Share(1, 0, 1000 * MIB)]),
        (pod({"volcano.sh/gpu-number": 2}), [Share(2, 1000, 0, 1000)]),
        (pod(gpu_fraction="0.25"), [Share(1, 250, 0, 250)]),
        (pod(gpu_memory="4000", gpu_fraction_num_devices="2"), [Share(2, 0, 4000 * MIB)]),
        (
            pod({"nvidia.com/gpu": 1, "nvidia.com/gpumem": 3000, "nvidia.com/gpucores": 30}),
            [Share(1, 300, 3000 * MIB)],
        ),
        (
            pod({"nvidia.com/gpu": 1, "nvidia.com/gpumem-percentage": 25}),
            [Share(1, 0, 0, 250)],
        ),
    ],
)
def test_the_request_in_the_names_of_each_project(asking: Any, shares: list[Share]) -> None:
    request = request_of(asking)
    assert request is not None
    assert list(request.shares) == shares


@pytest.mark.parametrize(
    "asking",
    [
        koordinator(gpu_core=50),
        koordinator(gpu_memory="1Gi", gpu_memory_ratio=10),
        koordinator(gpu_memory_ratio=150),
        koordinator(gpu=50, gpu_core=50),
        koordinator(gpu_memory_ratio=50, gpu_core=150),
        volcano(number=1, cores=101),
        pod(gpu_fraction="half"),
        pod(gpu_fraction="nan"),
        pod(gpu_fraction="0"),
        pod(gpu_fraction="0.5", gpu_memory="1"),
        pod(gpu_fraction="0.5", gpu_fraction_num_devices="0"),
    ],
)
def test_invalid_requests(asking: Any) -> None:
    with pytest.raises(InvalidRequest):
        request_of(asking)


def test_a_pod_without_devices_asks_for_nothing() -> None:
    assert request_of(make_pod("p", "1", resources={"example.com/gpu": 1})) is None


# ---- devices of a node ---------------------------------------------------------------------------


def inventory(annotations: dict[str, str]) -> tuple[NodeDevice, ...]:
    info = NodeInfo("a")
    node = make_node("a")
    node.metadata.annotations.update(annotations)
    info.set_node(node)
    return inventory_of(info, None).devices


def test_cards_that_volcano_registered() -> None:
    text = "GPU-1,10,16384,NVIDIA-Tesla V100,true:GPU-2,10,16384,NVIDIA-Tesla V100,false:bad:"
    card = NodeDevice(0, id="GPU-1", memory=16 * GIB, model="NVIDIA-Tesla V100", max_users=10)
    assert inventory({"volcano.sh/node-vgpu-register": text}) == (card,)


def test_cards_that_hami_registered() -> None:
    text = "GPU-1,10,16384,100,NVIDIA-A100,1,true:"
    card = NodeDevice(0, id="GPU-1", memory=16 * GIB, numa=1, model="NVIDIA-A100", max_users=10)
    assert inventory({"hami.io/node-nvidia-register": text}) == (card,)
    with_index = "GPU-1,10,16384,100,NVIDIA-A100,1,true,0,hami-core:"
    assert inventory({"hami.io/node-nvidia-register": with_index}) == (
        replace(card, mode="hami-core"),
    )


def test_cards_that_hami_registered_in_json() -> None:
    # Its agent leaves out what is zero or false: the index of the first card, NUMA node 0.
    text = json.dumps(
        [
            {
                "id": "GPU-0",
                "count": 10,
                "devmem": 16384,
                "devcore": 100,
                "type": "A",
                "health": True,
            },
            {"id": "GPU-1", "index": 1, "count": 10, "devmem": 16384, "type": "A"},
            {"id": "GPU-2", "index": 2, "numa": 1, "mode": "mig", "type": "A", "health": True},
        ]
    )
    assert inventory({"hami.io/node-nvidia-register": text}) == (
        NodeDevice(0, id="GPU-0", memory=16 * GIB, numa=0, model="A", max_users=10),
        NodeDevice(2, id="GPU-2", numa=1, model="A", mig=True, mode="mig"),
    )
    assert inventory({"hami.io/node-nvidia-register": "[{"}) == ()


# ---- Volcano's cards -----------------------------------------------------------------------------


def vgpu_cluster(**args: object) -> Harness:
    cards = ":".join(f"GPU-{n},2,10000,{model},true" for n, model in enumerate(("V100", "A100")))
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "a", "annotations": {"volcano.sh/node-vgpu-register": cards}},
        "status": {
            "allocatable": {
                "cpu": "8",
                "memory": "8Gi",
                "pods": "100",
                "volcano.sh/vgpu-number": "20",
                "volcano.sh/vgpu-memory": "20000",
                "volcano.sh/vgpu-cores": "200",
            }
        },
    }
    return Harness([DeviceShare], [node], args={"DeviceShare": args})


def vgpu(name: str, memory: int, cores: int = 0, **annotations: str) -> Any:
    amounts = {"volcano.sh/vgpu-number": 1, "volcano.sh/vgpu-memory": memory}
    if cores:
        amounts["volcano.sh/vgpu-cores"] = cores
    named = {f"volcano.sh/{key.replace('_', '-')}": one for key, one in annotations.items()}
    return make_pod(name, resources=amounts, metadata={"annotations": named})


PACK = {"scoringStrategy": {"type": "MostAllocated"}}


def card_of(cluster: Harness, name: str) -> str:
    return cluster.pod(f"default/{name}").metadata.annotations["volcano.sh/vgpu-ids-new"]


def test_volcano_reads_which_card_it_is() -> None:
    cluster = vgpu_cluster(**PACK)
    cluster.schedule(vgpu("p", 4000, 30))
    found = cluster.pod("default/p").metadata.annotations
    assert found["volcano.sh/vgpu-ids-new"] == "GPU-0,NVIDIA,4000,30:"
    assert found["volcano.sh/devices-to-allocate"] == "GPU-0,NVIDIA,4000,30:"
    assert found["volcano.sh/vgpu-node"] == "a"
    assert found["volcano.sh/bind-phase"] == "allocating"


def test_a_card_takes_no_more_users_than_it_may() -> None:
    cluster = vgpu_cluster(**PACK)
    for name in ("p", "q", "r"):
        cluster.schedule(vgpu(name, 1000))
    cards = [card_of(cluster, name)[:5] for name in ("p", "q", "r")]
    assert cards == ["GPU-0", "GPU-0", "GPU-1"]


def test_all_cores_need_an_idle_card_and_then_nobody_joins() -> None:
    cluster = vgpu_cluster(**PACK)
    cluster.schedule(vgpu("p", 1000))
    cluster.schedule(vgpu("all", 1000, 100))
    assert card_of(cluster, "all").startswith("GPU-1")
    cluster.schedule(vgpu("q", 1000))
    assert card_of(cluster, "q").startswith("GPU-0")
    assert (
        cluster.schedule(vgpu("r", 1000)).why_not("a") == "DeviceShare: Insufficient free devices"
    )


def test_cards_by_uuid_and_model() -> None:
    cluster = vgpu_cluster(**PACK)
    cluster.schedule(vgpu("p", 1000, vgpu_use_gpuuuid="GPU-1"))
    assert card_of(cluster, "p").startswith("GPU-1")
    cluster.schedule(vgpu("q", 1000, vgpu_nouse_gpuuuid="GPU-1"))
    assert card_of(cluster, "q").startswith("GPU-0")
    unlike = make_pod(
        "r",
        resources={"volcano.sh/vgpu-number": 1},
        metadata={"annotations": {"nvidia.com/use-gputype": "H100"}},
    )
    outcome = cluster.schedule(unlike)
    assert outcome.why_not("a") == "DeviceShare: node(s) had too few devices"


def test_pods_of_a_group_spread_over_cards() -> None:
    cluster = vgpu_cluster(**PACK)
    for name in ("p", "q", "r"):
        one = vgpu(name, 1000, vgpu_podgroup_policy="spread")
        one.pod.metadata.annotations["scheduling.k8s.io/group-name"] = "g"
        cluster.schedule(one)
    assert {card_of(cluster, name)[:5] for name in ("p", "q")} == {"GPU-0", "GPU-1"}
    assert cluster.outcome("default/r").node == ""


def containers(*amounts: dict[str, int]) -> list[dict[str, Any]]:
    return [
        {"name": f"c{index}", "image": "i", "resources": {"limits": one, "requests": one}}
        for index, one in enumerate(amounts)
    ]


VGPU = {"volcano.sh/vgpu-number": 1, "volcano.sh/vgpu-memory": 1000}


def test_volcano_finds_a_container_by_its_position() -> None:
    cluster = vgpu_cluster(**PACK)
    cluster.schedule(make_pod("p", spec={"containers": containers({}, VGPU, {})}))
    assert card_of(cluster, "p") == ";GPU-0,NVIDIA,1000,0:;"


def test_volcano_has_no_cards_for_init_containers() -> None:
    cluster = vgpu_cluster(**PACK)
    spec = {"initContainers": containers(VGPU), "containers": containers({})}
    assert "init containers cannot have" in cluster.schedule(make_pod("p", spec=spec)).message


# ---- HAMi's cards --------------------------------------------------------------------------------


def hami_cluster(mode: str = "hami-core") -> Harness:
    cards = [
        {"id": f"GPU-{n}", "index": n, "count": 10, "devmem": 10000, "mode": mode, "health": True}
        for n in range(2)
    ]
    vgpus = {"nvidia.com/gpu": 20, "nvidia.com/gpumem": 20000, "nvidia.com/gpucores": 200}
    node = make_node("a", resources={**vgpus, "koordinator.sh/gpu-memory-ratio": 200})
    node.metadata.annotations["hami.io/node-nvidia-register"] = json.dumps(cards)
    return Harness([DeviceShare], [node], args={"DeviceShare": PACK})


PART = {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 4000, "nvidia.com/gpucores": 30}


def test_hami_reads_the_cards_of_each_container_init_containers_first() -> None:
    cluster = hami_cluster()
    sidecar = {**containers(PART)[0], "name": "side", "restartPolicy": "Always"}
    before = {**containers(PART)[0], "name": "before"}
    spec = {"initContainers": [before, sidecar], "containers": containers({}, PART)}
    cluster.schedule(make_pod("p", spec=spec))
    found = cluster.pod("default/p").metadata
    card = "GPU-0,NVIDIA,4000,30:;"
    # The init container has ended when the sidecar gets the card.
    assert found.annotations["hami.io/vgpu-devices-to-allocate"] == card + card + ";" + card
    assert found.annotations["hami.io/vgpu-devices-allocated"] == card + card + ";" + card
    assert found.annotations["hami.io/bind-phase"] == "allocating"
    assert found.labels["hami.io/vgpu-node"] == "a"
    granted = json.loads(found.annotations[ALLOCATED])["gpu"]
    assert [one["minor"] for one in granted] == [0, 0]


def test_only_an_init_container_may_have_a_card_of_hami() -> None:
    cluster = hami_cluster()
    two = {**PART, "nvidia.com/gpu": 2}
    spec = {"initContainers": containers(PART, two), "containers": containers({})}
    assert cluster.schedule(make_pod("p", spec=spec)).node == "a"
    annotations = cluster.pod("default/p").metadata.annotations
    cards = [f"GPU-{n},NVIDIA,4000,30:" for n in range(2)]
    assert annotations["hami.io/vgpu-devices-allocated"] == f"{cards[0]};{cards[0]}{cards[1]};;"
    # They are the pod's until it ends, as all its resources are; and so after a restart.
    assert len(json.loads(annotations[ALLOCATED])["gpu"]) == 2
    del annotations[ALLOCATED]
    after = hami_cluster()
    after.add(cluster.pod("default/p"))
    more = {**PART, "nvidia.com/gpumem": 7000}
    assert after.schedule(make_pod("q", spec={"containers": containers(more)})).node == ""
    assert after.events("default/p") == []


def test_an_init_container_cannot_ask_hami_for_more_than_the_containers() -> None:
    cluster = hami_cluster()
    more = {**PART, "nvidia.com/gpumem": 8000}
    spec = {"initContainers": containers(more), "containers": containers(PART)}
    message = cluster.schedule(make_pod("p", spec=spec)).message
    assert "an init container asks for GPUs that no container asks for" in message


def test_a_whole_gpu_of_a_node_with_hamis_agent() -> None:
    cluster = hami_cluster()
    cluster.schedule(make_pod("p", spec={"containers": containers({"nvidia.com/gpu": 2})}))
    found = cluster.pod("default/p").metadata.annotations
    ids = found["hami.io/vgpu-devices-to-allocate"]
    assert ids == "GPU-0,NVIDIA,10000,100:GPU-1,NVIDIA,10000,100:;"


def test_cards_that_hami_splits_into_mig_instances_are_not_given_in_parts() -> None:
    outcome = hami_cluster("mig").schedule(make_pod("p", spec={"containers": containers(PART)}))
    assert outcome.why_not("a") == "DeviceShare: node(s) had too few devices"


def test_koordinators_agent_limits_what_is_listed() -> None:
    cluster = hami_cluster()
    cluster.schedule(make_pod("p", resources={"koordinator.sh/gpu-memory-ratio": 50}))
    found = json.loads(cluster.pod("default/p").metadata.annotations[ALLOCATED])
    assert found["gpu"][0]["resources"] == {
        "koordinator.sh/gpu-memory-ratio": "50",
        "koordinator.sh/gpu-memory": str(5000 * MIB),
    }


# ---- reading annotations -------------------------------------------------------------------------


def claimed(pod_: Any, **annotations: str) -> list[Grant]:
    named = {f"volcano.sh/{key.replace('_', '-')}": one for key, one in annotations.items()}
    pod_.pod.metadata.annotations.update(named)
    request = request_of(pod_)
    assert request is not None
    return list(claimed_devices(pod_, request))


def test_what_volcano_and_the_old_names_say_is_read() -> None:
    ids = ";GPU-1,NVIDIA,4000,30:;GPU-0[1-2],NVIDIA,1000,0,more:"
    found = claimed(pod({"volcano.sh/vgpu-number": 2}), vgpu_ids_new=ids)
    assert found == [Grant("gpu", -1, id="GPU-1"), Grant("gpu", -1, id="GPU-0")]
    assert claimed(pod({"volcano.sh/gpu-memory": 1000}), gpu_index="1") == [Grant("gpu", 1)]


def test_a_pod_of_volcano_counts_on_its_card() -> None:
    cluster = vgpu_cluster(**PACK)
    ids = {"volcano.sh/vgpu-ids-new": "GPU-1,NVIDIA,9000,0:"}
    amounts = {"volcano.sh/vgpu-number": 1, "volcano.sh/vgpu-memory": 9000}
    cluster.add(make_pod("there", resources=amounts, node_name="a", metadata={"annotations": ids}))
    cluster.schedule(vgpu("p", 2000))
    assert card_of(cluster, "p").startswith("GPU-0")
    assert json.loads(cluster.pod("default/p").metadata.annotations[ALLOCATED])
