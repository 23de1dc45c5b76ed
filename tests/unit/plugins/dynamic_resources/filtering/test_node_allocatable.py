"""Devices that consume cpu or memory of their node (gate DRANodeAllocatableResources).

``node_allocatable_answers.jsonl.gz`` has results of kube-scheduler 1.36.2 for random clusters,
``node_allocatable_answers_1.37.jsonl.gz`` of 1.37.1, and ``node_allocatable_answers_1.38.jsonl.gz``
those that 1.38.0-beta.0 gives otherwise.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from proreus.base.errors import ApiError
from proreus.base.feature_gates import FeatureGates
from proreus.base.kubernetes_version import V1_36, V1_37, V1_38, KubernetesVersion
from proreus.config.load import default_configuration
from proreus.engine.runtime.registry import Registry
from proreus.framework.pod_info import PodInfo
from proreus.objects.codec import to_plain
from proreus.objects.kinds import NODES, PODS
from proreus.objects.pod import Pod, condition_of
from proreus.objects.requests import PodResourcesOptions
from proreus.offline.cluster import OfflineCluster
from proreus.offline.evaluate import evaluate, read_cases
from proreus.plugins import IN_TREE_PLUGINS
from proreus.testing import make_node, make_pod

_spec = importlib.util.spec_from_file_location(
    "compare", Path(__file__).parents[4] / "conformance" / "compare.py"
)
assert _spec is not None
assert _spec.loader is not None
compare = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(compare)

RESULTS = {
    f"{version} {case['id']}": case
    for version, name in (
        ("1.36", "node_allocatable_answers.jsonl.gz"),
        ("1.37", "node_allocatable_answers_1.37.jsonl.gz"),
        ("1.38", "node_allocatable_answers_1.38.jsonl.gz"),
    )
    for case in read_cases(Path(__file__).with_name(name))
}
DRIVER = "cpu.example.com"
MAPPED = {"deviceMultiplier": "3"}
OVERHEAD = {"overhead": {"perPod": "1", "perContainer": "500m"}}


@pytest.mark.parametrize("case_id", RESULTS)
def test_a_node_is_filtered_as_upstream(case_id: str) -> None:
    case = RESULTS[case_id]
    (result,) = evaluate([case], Registry(IN_TREE_PLUGINS))
    assert not compare.differences(case["expect"], json.loads(json.dumps(result["expect"])))


class Cluster(OfflineCluster):
    """One node, each of whose devices consumes two cpus, or what ``consumed`` says (1.37)."""

    def __init__(
        self,
        *gates: str,
        cpu: str = "8",
        devices: int = 4,
        version: KubernetesVersion = V1_36,
        consumed: dict[str, Any] | None = None,
    ) -> None:
        registry = Registry(IN_TREE_PLUGINS)
        on = gates or ["DRANodeAllocatableResources=true"]
        parsed = FeatureGates.from_list(on, emulation_version=version)
        super().__init__(default_configuration(registry, parsed), registry, parsed)
        self.add("DeviceClass", "cpus", {"selectors": []})
        self.api.put(NODES, make_node("n1", cpu))
        both = {"nodeAllocatableResourceMappings": {"cpu": {"allocationMultiplier": "2"}}}
        both["nodeAllocatableResources"] = {"cpu": consumed or {"mapping": MAPPED}}
        self.add(
            "ResourceSlice",
            "slice",
            {
                "driver": DRIVER,
                "pool": {"name": "n1", "generation": 1, "resourceSliceCount": 1},
                "nodeName": "n1",
                "devices": [{"name": f"cpus-{n}", **both} for n in range(devices)],
            },
        )

    def add(self, kind: str, name: str, spec: dict[str, Any], namespace: str = "") -> None:
        meta = {"name": name, "uid": f"uid-of-{name}"}
        if namespace:
            meta["namespace"] = namespace
        self.api.add({"kind": kind, "metadata": meta, "spec": spec})

    def pod(
        self,
        name: str,
        cpu: str = "1",
        count: int = 1,
        claims: Sequence[str] = (),
        priority: int | None = None,
    ) -> None:
        """Add a pod, and its claims unless they exist."""
        wanted = {"deviceClassName": "cpus", "allocationMode": "ExactCount", "count": count}
        names = claims or [f"claim-of-{name}"]
        for claim in () if claims else names:
            request = {"name": "r", "exactly": wanted}
            self.add("ResourceClaim", claim, {"devices": {"requests": [request]}}, "default")
        container = {
            "name": "main",
            "resources": {
                "requests": {"cpu": cpu},
                "claims": [{"name": f"entry-{n}"} for n in range(len(names))],
            },
        }
        entries = [
            {"name": f"entry-{n}", "resourceClaimName": claim} for n, claim in enumerate(names)
        ]
        spec = {"containers": [container], "resourceClaims": entries}
        self.api.put(PODS, make_pod(name, priority=priority, spec=spec).pod)

    def now(self, name: str) -> Pod:
        return self.api.store(PODS)[f"default/{name}"]

    def message(self, name: str) -> str:
        condition = condition_of(self.now(name), "PodScheduled")
        return "" if condition is None else condition.message

    @property
    def taken(self) -> int:
        """Milli-CPUs that are requested on the node."""
        return int(self.scheduler.cache.table[0].requested["cpu"])

    async def cycle(self) -> str:
        outcome = await self.schedule_next()
        assert outcome is not None, "no pod is ready to be scheduled"
        self.scheduler.cache.validate()
        self.scheduler.queue.validate()
        return outcome[1]


async def test_what_devices_consume_is_written_to_the_pod_and_counts_on_its_node() -> None:
    cluster = Cluster()
    cluster.pod("p", "1", count=2)

    assert await cluster.cycle() == "n1"
    (status,) = cluster.now("p").status.node_allocatable_resource_claim_statuses
    assert (status.resource_claim_name, status.containers) == (
        "claim-of-p",
        ("main",),
    )
    assert status.resources == {"cpu": "4"}
    assert cluster.taken == 5000
    cluster.api.put(PODS, make_pod("plain", "4").pod)
    assert await cluster.cycle() == ""
    assert cluster.message("plain").startswith("0/1 nodes are available: 1 Insufficient cpu.")
    cluster.api.remove("Pod", "default/p")
    assert cluster.taken == 0


async def test_a_pod_whose_devices_consume_too_much_waits_until_another_pod_goes() -> None:
    cluster = Cluster()
    cluster.api.put(PODS, make_pod("plain", "4").pod)
    await cluster.cycle()
    cluster.pod("p", "1", count=2)

    assert await cluster.cycle() == ""
    assert cluster.message("p").startswith("0/1 nodes are available: 1 Insufficient cpu.")
    assert cluster.taken == 4000
    cluster.api.remove("Pod", "default/plain")
    cluster.advance(3)
    assert await cluster.cycle() == "n1"


async def test_a_pod_preempts_for_what_its_devices_consume() -> None:
    cluster = Cluster()
    cluster.api.put(PODS, make_pod("victim", "4", priority=1).pod)
    await cluster.cycle()
    cluster.pod("p", "1", count=2, priority=10)

    assert await cluster.cycle() == ""
    assert "default/victim" not in cluster.api.store(PODS)
    cluster.advance(3)
    assert await cluster.cycle() == "n1"
    assert cluster.taken == 5000


async def test_a_claim_that_consumes_of_the_node_cannot_be_shared() -> None:
    cluster = Cluster()
    cluster.pod("p")
    await cluster.cycle()
    cluster.pod("q", claims=["claim-of-p"])

    assert await cluster.cycle() == ""
    assert cluster.message("q").startswith(
        "0/1 nodes are available: 1 node allocatable resource claim claim-of-p is already used by "
        "another pod."
    )


async def test_an_attempt_that_fails_at_binding_clears_the_status_of_the_pod(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = Cluster()

    async def refuse(pod: Pod, node_name: str) -> None:
        raise ApiError(500, "InternalError", "no")

    monkeypatch.setattr(cluster.api, "bind", refuse)
    cluster.pod("p")
    await cluster.cycle()
    assert cluster.now("p").spec.node_name == ""
    assert cluster.now("p").status.node_allocatable_resource_claim_statuses == ()
    assert cluster.taken == 0


async def test_with_the_gate_off_nothing_is_written_and_nothing_counts() -> None:
    cluster = Cluster("DRANodeAllocatableResources=false")
    cluster.pod("p", "1", count=2)

    assert await cluster.cycle() == "n1"
    assert cluster.now("p").status.node_allocatable_resource_claim_statuses == ()
    assert cluster.taken == 1000


def test_devices_count_on_nodes_only() -> None:
    taken = [{"resourceClaimName": "c", "containers": ["x"], "resources": {"cpu": "2"}}]
    pod = make_pod("p", "1", status={"nodeAllocatableResourceClaimStatuses": taken}).pod

    assert PodInfo(pod).accounted_requests.amounts == {"cpu": 1000}
    counted = PodInfo(pod, PodResourcesOptions(devices=True))
    assert counted.requests.amounts == {"cpu": 1000}
    assert counted.accounted_requests.amounts == {"cpu": 3000}
    assert counted.accounted_requests.nonzero[0] == 3000


# ---- the form that 1.37 gave it ------------------------------------------------------------------


async def test_each_version_reads_its_own_field() -> None:
    for version, taken in ((V1_36, 3000), (V1_37, 4000)):
        cluster = Cluster(version=version)
        cluster.pod("p", "1")
        assert await cluster.cycle() == "n1"
        assert cluster.taken == taken


async def test_mapping_and_overhead_are_written_to_the_pod() -> None:
    cluster = Cluster(version=V1_37, consumed={"mapping": MAPPED, **OVERHEAD})
    cluster.pod("p", "100m", count=1)

    assert await cluster.cycle() == "n1"
    (status,) = cluster.now("p").status.node_allocatable_resource_claim_statuses
    assert json.loads(json.dumps(to_plain(status))) == {
        "resourceClaimName": "claim-of-p",
        "containers": ["main"],
        "mapping": [{"name": "cpu", "quantity": "3"}],
        "overhead": [{"name": "cpu", "perPod": "1", "perContainer": "500m"}],
    }
    assert cluster.taken == 100 + 3000 + 1000 + 500


async def test_a_mapped_claim_is_not_shared_and_an_overhead_counts_for_each_pod() -> None:
    cluster = Cluster(version=V1_37)
    cluster.pod("p")
    await cluster.cycle()
    cluster.pod("q", claims=["claim-of-p"])
    assert await cluster.cycle() == ""
    assert cluster.message("q").startswith(
        "0/1 nodes are available: 1 node allocatable resource claim claim-of-p has a mapped device "
        "and cannot be shared across pods."
    )

    cluster = Cluster(version=V1_37, consumed=OVERHEAD)
    cluster.pod("p")
    await cluster.cycle()
    assert cluster.taken == 2500
    cluster.pod("q", claims=["claim-of-p"])
    assert await cluster.cycle() == "n1"
    assert cluster.taken == 5000


async def test_a_claim_allocated_before_counts() -> None:
    cluster = Cluster(version=V1_37, cpu="4", consumed=OVERHEAD)
    cluster.pod("p")
    await cluster.cycle()
    cluster.pod("q", claims=["claim-of-p"])

    assert await cluster.cycle() == ""
    assert cluster.message("q").startswith("0/1 nodes are available: 1 Insufficient cpu.")


async def test_a_failed_attempt_clears_the_status_of_the_same_pod_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = Cluster(version=V1_37)
    patches = []
    patch = cluster.api.patch

    async def refuse(pod: Pod, node_name: str) -> None:
        raise ApiError(500, "InternalError", "no")

    async def recorded(*args: Any, **kwargs: Any) -> Any:
        patches.append(args[3:])
        return await patch(*args, **kwargs)

    monkeypatch.setattr(cluster.api, "bind", refuse)
    monkeypatch.setattr(cluster.api, "patch", recorded)
    cluster.pod("p")
    await cluster.cycle()
    uid = cluster.now("p").metadata.uid
    cleared = {
        "metadata": {"uid": uid},
        "status": {"nodeAllocatableResourceClaimStatuses": []},
    }
    assert (cleared, "status") in patches
    assert cluster.now("p").status.node_allocatable_resource_claim_statuses == ()
    assert cluster.taken == 0


async def test_a_status_that_cannot_be_written_fails_the_attempt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = Cluster(version=V1_37)
    write = cluster.api.patch_pod_status

    async def refuse(pod: Pod, patch: dict[str, Any]) -> None:
        if "nodeAllocatableResourceClaimStatuses" in patch["status"]:
            raise ApiError(403, "Forbidden", "no")
        await write(pod, patch)

    monkeypatch.setattr(cluster.api, "patch_pod_status", refuse)
    cluster.pod("p")
    await cluster.cycle()
    assert "updating pod default/p NodeAllocatableResourceClaimStatuses: no" in cluster.message("p")


RESIZED = {
    "containerStatuses": [
        {
            "name": "main",
            "allocatedResources": {"cpu": "2"},
            "resources": {"requests": {"cpu": "4"}},
        }
    ],
    "nodeAllocatableResourceClaimStatuses": [
        {
            "resourceClaimName": "c",
            "containers": ["main"],
            "mapping": [{"name": "cpu", "quantity": "1"}],
            "overhead": [{"name": "cpu", "perPod": "100m", "perContainer": "400m"}],
        }
    ],
}


@pytest.mark.parametrize(
    ("status", "taken"),
    [
        # Devices count with what is requested and allocated, not with what is actuated.
        (RESIZED, 4000),
        ({**RESIZED, "conditions": [{"type": "PodResizePending", "reason": "Infeasible"}]}, 4000),
        ({**RESIZED, "containerStatuses": []}, 2500),
        (
            {
                **RESIZED,
                "allocatedResources": {"cpu": "1500m"},
                "resources": {"requests": {"cpu": "1"}},
            },
            2500,
        ),
    ],
)
def test_devices_count_with_resizes(status: dict[str, Any], taken: int) -> None:
    spec = {"containers": [{"name": "main", "resources": {"requests": {"cpu": "1"}}}]}
    pod = make_pod("p", spec=spec, status=status).pod
    counted = PodInfo(pod, PodResourcesOptions(devices=True, resized_by_sum=True))
    assert counted.accounted_requests.amounts == {"cpu": taken}


# ---- as 1.38 counts it ---------------------------------------------------------------------------


def test_overhead_of_an_init_container_counts_for_the_peak_only_since_1_38() -> None:
    def container(name: str, cpu: str, **more: str) -> dict[str, Any]:
        return {"name": name, "resources": {"requests": {"cpu": cpu}}, **more}

    overhead = {"name": "cpu", "perPod": "1", "perContainer": "500m"}
    taken = {
        "resourceClaimName": "c",
        "containers": ["init", "sidecar", "main"],
        "mapping": [{"name": "cpu", "quantity": "2"}],
        "overhead": [overhead],
    }
    pod = make_pod(
        "p",
        spec={
            "initContainers": [
                container("init", "3"),
                container("sidecar", "1", restartPolicy="Always"),
            ],
            "containers": [container("main", "1")],
        },
        status={"nodeAllocatableResourceClaimStatuses": [taken]},
    ).pod
    for by_container, amount in ((False, 3000 + 3000 + 1500), (True, 3500 + 3000)):
        options = PodResourcesOptions(
            devices=True, resized_by_sum=True, overhead_by_container=by_container
        )
        assert PodInfo(pod, options).accounted_requests.amounts == {"cpu": amount}


@pytest.mark.parametrize(
    ("amount", "multiplier", "text"),
    [
        ("-1", "1", "ConsumedCapacity for capacity key 'cores' must not be negative, got -1"),
        ("2", "-1", "computed node-allocatable footprint for resource cpu must not be negative, "
         "got -2"),
        ("-1", "-1", "ConsumedCapacity for capacity key 'cores' must not be negative, got -1"),
    ],
)  # fmt: skip
def test_a_negative_part_of_the_node_is_an_error(
    cluster: Any, amount: str, multiplier: str, text: str
) -> None:
    for version, failed in (("1.37", False), ("1.38", True)):
        one = cluster("n1", gates=["DRANodeAllocatableResources=true"], kubernetes_version=version)
        one.device_class()
        mapping = {"capacityKey": "cores", "capacityMultiplier": multiplier}
        device = one.device("a", capacity={"gpu.example.com/cores": "8"})
        device |= {"nodeAllocatableResources": {"cpu": {"mapping": mapping}}}
        one.slice(device | {"allowMultipleAllocations": True})
        status = one.allocated("a", reserved=())
        (result,) = status["allocation"]["devices"]["results"]
        result |= {"shareID": "1", "consumedCapacity": {"cores": amount}}
        one.claim("x", status=status)
        found = one.filter(one.pod("x"))
        assert found == ({"n1": f"!claim default/x, device a: {text}"} if failed else {})


async def test_the_status_names_the_claim_for_extended_resources_since_1_38() -> None:
    for version, named in ((V1_37, False), (V1_38, True)):
        cluster = Cluster(version=version)
        cluster.add("DeviceClass", "cores", {"extendedResourceName": "example.com/cores"})
        container = {"name": "main", "resources": {"requests": {"example.com/cores": "1"}}}
        cluster.api.put(PODS, make_pod("p", spec={"containers": [container]}).pod)
        assert await cluster.cycle() == "n1"
        status = cluster.now("p").status
        assert status.extended_resource_claim_status is not None
        (taken,) = status.node_allocatable_resource_claim_statuses
        name = status.extended_resource_claim_status.resource_claim_name
        assert taken.resource_claim_name == (name if named else "<extended-resources>")
