"""Claims of PodGroups: shared in a dry run, reserved for the group, and released again."""

from __future__ import annotations

from typing import Any

import pytest

from proreus.base.errors import ApiError
from proreus.base.feature_gates import FeatureGates
from proreus.base.kubernetes_version import V1_36, V1_37, KubernetesVersion
from proreus.config.load import default_configuration
from proreus.engine.runtime.registry import Registry
from proreus.framework.cycle_state import CycleState
from proreus.framework.pod_group import (
    POD_GROUP_SCHEDULING_CYCLE,
    PodGroupPostFilterResult,
    PodGroupSchedulingCycle,
)
from proreus.framework.status import Status
from proreus.objects.kinds import NODES, PODS
from proreus.objects.pod import condition_of
from proreus.objects.resource_claims import RESOURCE_CLAIMS, ResourceClaim
from proreus.offline.cluster import OfflineCluster
from proreus.plugins import IN_TREE_PLUGINS
from proreus.testing import make_node, make_pod

DRIVER = "gpu.example.com"
GANGS = ("GenericWorkload=true", "GangScheduling=true")
CLAIMS = (*GANGS, "DRAWorkloadResourceClaims=true")


class Cluster(OfflineCluster):
    """Nodes with one device each, and a gang whose pods may share a claim."""

    def __init__(
        self,
        *nodes: str,
        gates: tuple[str, ...] = CLAIMS,
        cpu: str = "2",
        version: KubernetesVersion = V1_36,
    ) -> None:
        registry = Registry(IN_TREE_PLUGINS)
        parsed = FeatureGates.from_list(gates, version)
        super().__init__(default_configuration(registry, parsed), registry, parsed)
        self.statuses: list[Status] = []
        self.put("DeviceClass", "gpu", {"selectors": []}, namespace="")
        for node in nodes:
            self.api.put(NODES, make_node(node, cpu))
            self.devices(node, "gpu-0")

    def put(
        self, kind: str, name: str, spec: dict[str, Any], namespace: str = "default", **more: Any
    ) -> None:
        uid = f"uid-of-{name}"
        meta = {"name": name, "uid": uid} | ({"namespace": namespace} if namespace else {})
        owners = more.pop("owners", ())
        self.api.add(
            {"kind": kind, "metadata": {**meta, "ownerReferences": owners}, "spec": spec, **more}
        )

    def devices(self, node: str, *names: str) -> None:
        pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
        devices = [{"name": name} for name in names]
        spec = {"driver": DRIVER, "pool": pool, "nodeName": node, "devices": devices}
        self.put("ResourceSlice", f"slice-{node}", spec, namespace="")

    def claim(self, name: str = "shared", status: Any = None, **more: Any) -> None:
        wanted = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}
        request = {"name": "r", "exactly": wanted}
        spec = {"devices": {"requests": [request]}}
        self.put("ResourceClaim", name, spec, status=status or {}, **more)

    def group(self, *claims: dict[str, str], min_count: int = 2, **more: Any) -> None:
        policy = {"gang": {"minCount": min_count}}
        spec = {"schedulingPolicy": policy, "resourceClaims": list(claims)}
        self.put("PodGroup", "g", spec, **more)

    def pods(self, *names: str, cpu: str = "1", **entry: str) -> None:
        entry = entry or {"name": "c", "resourceClaimName": "shared"}
        spec = {"schedulingGroup": {"podGroupName": "g"}, "resourceClaims": [entry]}
        for name in names:
            self.api.put(PODS, make_pod(name, cpu, spec=spec).pod)

    def claim_now(self, name: str = "shared") -> ResourceClaim:
        return self.api.store(RESOURCE_CLAIMS)[f"default/{name}"]

    def consumers(self, name: str = "shared") -> list[tuple[str, str, str, str]]:
        users = self.claim_now(name).status.reserved_for
        return [(user.api_group or "", user.resource, user.name, user.uid) for user in users]

    def placed(self) -> dict[str, str]:
        pods = self.api.store(PODS).values()
        return {p.metadata.name: p.spec.node_name for p in pods if p.spec.node_name}

    def message(self, name: str) -> str:
        condition = condition_of(self.api.store(PODS)[f"default/{name}"], "PodScheduled")
        return "" if condition is None else condition.message

    async def cycle(self) -> None:
        assert await self.schedule_next() is not None, "no pod is ready to be scheduled"
        self.scheduler.cache.validate()
        self.scheduler.queue.validate()


SHARED = {"name": "c", "resourceClaimName": "shared"}
THE_GROUP = ("scheduling.k8s.io", "podgroups", "g", "uid-of-g")


async def test_pods_of_a_gang_share_a_claim_that_is_not_allocated_yet() -> None:
    cluster = Cluster("a", "b")
    cluster.claim()
    cluster.group(SHARED)
    cluster.pods("p", "q")

    await cluster.cycle()
    placed = cluster.placed()
    assert sorted(placed) == ["p", "q"]
    assert len(set(placed.values())) == 1  # where the device is
    assert cluster.consumers() == [THE_GROUP]
    allocation = cluster.claim_now().status.allocation
    assert allocation is not None
    assert [result.pool for result in allocation.devices.results] == [placed["p"]]


async def test_a_claim_that_was_written_before_the_next_pod_is_reserved(cluster: Any) -> None:
    devices = cluster("n1", gates=CLAIMS)
    devices.device_class()
    devices.slice("gpu-0")
    devices.claim()
    meta = {"name": "g", "namespace": "default", "uid": "uid-of-g"}
    entries = [{"name": "claim", "resourceClaimName": "claim"}]
    devices.handle.add({"kind": "PodGroup", "metadata": meta, "spec": {"resourceClaims": entries}})
    spec = {"schedulingGroup": {"podGroupName": "g"}}
    first, second = (devices.pod("claim", name=name, spec=spec) for name in ("p", "q"))
    states = {pod.name: CycleState() for pod in (first, second)}
    plugin, nodes = devices.plugin, devices.handle.nodes
    for pod in (first, second):  # the dry run
        states[pod.name].write(POD_GROUP_SCHEDULING_CYCLE, PodGroupSchedulingCycle())
        assert plugin.pre_filter(states[pod.name], pod, nodes) is None
        assert plugin.reserve(states[pod.name], pod, "n1") is None
    for pod in (second, first):
        plugin.unreserve(states[pod.name], pod, "n1")
        states[pod.name].write(POD_GROUP_SCHEDULING_CYCLE, None)
    for pod in (first, second):  # one after the other, each bound at once
        assert plugin.reserve(states[pod.name], pod, "n1") is None
        assert await plugin.pre_bind(states[pod.name], pod, "n1") is None
    assert [user.name for user in devices.claim_now().status.reserved_for] == ["g"]
    assert not plugin.manager.allocated.in_flight


async def test_a_gang_whose_claim_holds_it_on_a_node_that_is_too_small_does_not_go() -> None:
    cluster = Cluster("a", "b", cpu="1")
    cluster.claim()
    cluster.group(SHARED)
    cluster.pods("p", "q")

    await cluster.cycle()
    assert cluster.placed() == {}
    assert cluster.claim_now().status.allocation is None
    reasons = cluster.message("p") + cluster.message("q")
    assert "1 resourceclaim not available on the node" in reasons
    assert "1 Insufficient cpu" in reasons


async def test_a_claim_that_the_group_does_not_name_is_reserved_for_each_pod() -> None:
    cluster = Cluster("a")
    cluster.claim()
    cluster.group({"name": "other name", "resourceClaimName": "shared"})
    cluster.pods("p", "q")

    await cluster.cycle()
    assert sorted(cluster.placed()) == ["p", "q"]
    assert sorted(name for _, _, name, _ in cluster.consumers()) == ["p", "q"]


async def test_a_claim_from_a_template_of_the_group() -> None:
    cluster = Cluster("a")
    entry = {"name": "c", "resourceClaimTemplateName": "t"}
    owner = {
        "apiVersion": "scheduling.k8s.io/v1alpha2",
        "kind": "PodGroup",
        "name": "g",
        "uid": "uid-of-g",
        "controller": True,
    }
    cluster.claim("made", owners=[owner])
    noted = [{"name": "c", "resourceClaimName": "made"}]
    cluster.group(entry, min_count=1, status={"resourceClaimStatuses": noted})
    spec = {"schedulingGroup": {"podGroupName": "g"}, "resourceClaims": [entry]}
    pod = make_pod("p", spec=spec, status={"resourceClaimStatuses": noted})
    cluster.api.put(PODS, pod.pod)

    await cluster.cycle()
    assert cluster.placed() == {"p": "a"}
    assert cluster.consumers("made") == [THE_GROUP]


async def test_with_the_gate_off_pods_of_a_group_do_not_differ_from_others() -> None:
    cluster = Cluster("a", gates=(*GANGS, "DRAWorkloadResourceClaims=false"))
    cluster.claim()
    cluster.group(SHARED, min_count=1)
    cluster.pods("p")

    await cluster.cycle()
    assert [name for _, _, name, _ in cluster.consumers()] == ["p"]


def _allocated(node: str, *users: dict[str, str]) -> dict[str, Any]:
    by_name = {"key": "metadata.name", "operator": "In", "values": [node]}
    result = {"request": "r", "driver": DRIVER, "pool": node, "device": "gpu-0"}
    return {
        "allocation": {
            "devices": {"results": [result]},
            "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [by_name]}]},
        },
        "reservedFor": list(users),
    }


USER = {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "g", "uid": "uid-of-g"}


async def test_a_claim_on_a_node_that_is_gone_is_released_and_allocated_anew() -> None:
    cluster = Cluster("a")
    cluster.claim(status=_allocated("gone", USER))
    cluster.group(SHARED, min_count=1)
    cluster.pods("p")

    await cluster.cycle()
    assert cluster.consumers() == []  # taken from the group
    assert cluster.message("p").endswith("ResourceClaim unreserved for PodGroup")
    cluster.advance(3)
    await cluster.cycle()
    assert cluster.claim_now().status.allocation is None  # taken back
    cluster.advance(3)
    await cluster.cycle()
    assert cluster.placed() == {"p": "a"}
    assert cluster.consumers() == [THE_GROUP]


async def test_a_group_that_has_a_pod_somewhere_keeps_its_claim() -> None:
    cluster = Cluster("a")
    cluster.claim(status=_allocated("gone", USER))
    cluster.group(SHARED, min_count=1)
    spec = {"schedulingGroup": {"podGroupName": "g"}}
    cluster.api.put(PODS, make_pod("running", spec=spec, node_name="a").pod)
    cluster.pods("p")

    await cluster.cycle()
    assert cluster.consumers() == [THE_GROUP]
    assert not cluster.message("p").endswith("ResourceClaim unreserved for PodGroup")


@pytest.mark.parametrize("known", [True, False])
async def test_a_pod_waits_for_its_group(cluster: Any, known: bool) -> None:
    devices = cluster("n1", gates=CLAIMS)
    devices.device_class()
    devices.slice("gpu-0")
    devices.claim()
    if known:
        meta = {"name": "g", "namespace": "default", "uid": "uid-of-g"}
        devices.handle.add({"kind": "PodGroup", "metadata": meta, "spec": {}})
    pod = devices.pod("claim", spec={"schedulingGroup": {"podGroupName": "g"}})
    expected = {} if known else {"": 'podgroup.scheduling.k8s.io "g" not found'}
    assert devices.filter(pod) == expected


# ---- PodGroupPostFilter of 1.37 ----------------------------------------------------------------

GATES_1_37 = ("GenericWorkload=true", "DRAWorkloadResourceClaims=true")
DONE = "deallocation and deletion of ResourceClaims completed"
DEALLOCATED = "deallocation of PodGroup ResourceClaim completed"


def _cluster(*nodes: str, gates: tuple[str, ...] = GATES_1_37, **more: Any) -> Cluster:
    """Return a cluster that records what DynamicResources returns in ``statuses``."""
    cluster = Cluster(*nodes, gates=gates, version=V1_37, **more)
    (profile,) = cluster.scheduler.profiles.values()
    (plugin,) = (p for p in profile.pod_group_post_filter if p.name == "DynamicResources")

    async def record(*args: Any) -> PodGroupPostFilterResult:
        result = await forward(*args)
        cluster.statuses.append(result.status)
        return result

    forward = plugin.pod_group_post_filter
    plugin.pod_group_post_filter = record  # type: ignore[method-assign]
    return cluster


async def test_a_claim_that_only_the_group_has_reserved_is_deallocated_at_once() -> None:
    cluster = _cluster("a")
    cluster.claim(status=_allocated("gone", USER))
    cluster.group(SHARED)
    cluster.pods("p", "q")

    await cluster.cycle()
    assert cluster.statuses == [Status.unschedulable(DEALLOCATED)]
    assert (cluster.claim_now().status.allocation, cluster.consumers()) == (None, [])
    cluster.advance(3)
    await cluster.cycle()
    assert cluster.placed() == {"p": "a", "q": "a"}
    assert cluster.consumers() == [THE_GROUP]


@pytest.mark.parametrize("gates", [GATES_1_37, GATES_1_37[:1]])
async def test_a_claim_that_nobody_has_reserved_is_deallocated_for_a_pod(
    gates: tuple[str, ...],
) -> None:
    cluster = _cluster("a", gates=gates)
    cluster.claim(status=_allocated("gone"))
    cluster.group(SHARED, min_count=1)
    cluster.pods("p")

    await cluster.cycle()
    assert cluster.statuses == [Status.unschedulable(DONE)]
    assert cluster.claim_now().status.allocation is None


@pytest.mark.parametrize("running", [True, False])
async def test_the_claim_of_a_group_stays_with_the_gate_off_or_a_pod_that_runs(
    running: bool,
) -> None:
    cluster = _cluster("a", gates=GATES_1_37 if running else GATES_1_37[:1])
    cluster.claim(status=_allocated("gone", USER, *([] if running else [{**USER, "uid": "x"}])))
    cluster.group(SHARED, min_count=1)
    if running:
        spec = {"schedulingGroup": {"podGroupName": "g"}}
        cluster.api.put(PODS, make_pod("running", spec=spec, node_name="a").pod)
    cluster.pods("p")

    await cluster.cycle()
    assert cluster.statuses == [Status.unschedulable(DONE)]
    assert cluster.placed().keys() <= {"running"}
    assert cluster.claim_now().status.allocation is not None
    assert THE_GROUP in cluster.consumers()


async def test_a_claim_that_only_the_dry_run_has_allocated_counts_and_is_not_written() -> None:
    """Each node has room for one of the pods, and the claim is on one node."""
    cluster = _cluster("a", "b", cpu="1500m")
    cluster.claim()
    cluster.group(SHARED)
    cluster.pods("p", "q")
    written = cluster.claim_now()

    await cluster.cycle()
    assert cluster.statuses == [Status.unschedulable(DEALLOCATED)]
    assert cluster.claim_now() is written
    assert cluster.placed() == {}


async def test_a_claim_that_cannot_be_released_is_passed_over() -> None:
    """The claims are available, but in use by another pod too, so that they are not deallocated."""
    cluster = _cluster("a", cpu="1")
    entries = [{"name": name, "resourceClaimName": name} for name in ("first", "second")]
    other = {"resource": "pods", "name": "x", "uid": "uid-of-x"}
    for name in ("first", "second"):
        cluster.claim(name, status=_allocated("a", USER, other))
    cluster.group(*entries, min_count=1)
    spec = {"schedulingGroup": {"podGroupName": "g"}, "resourceClaims": entries}
    cluster.api.put(PODS, make_pod("p", "2", spec=spec).pod)
    patched = []

    async def patch(resource: Any, namespace: str, name: str, *rest: Any, **more: Any) -> Any:
        if resource is RESOURCE_CLAIMS:
            patched.append(name)
            if name == "first":
                raise ApiError(500, "InternalError", "not today")
        return await forward(resource, namespace, name, *rest, **more)

    forward = cluster.api.patch
    cluster.api.patch = patch  # type: ignore[method-assign]
    await cluster.cycle()

    assert patched == ["first", "second"]
    assert cluster.consumers("second") == [("", "pods", "x", "uid-of-x")]
    assert cluster.statuses == [Status.unresolvable("ResourceClaim unreserved for PodGroup")]
