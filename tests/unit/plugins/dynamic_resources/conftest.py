"""Clusters with devices in a few lines, and the plugin called as the runtime calls it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import pytest

from proreus.base.errors import Conflict
from proreus.framework.cycle_state import CycleState
from proreus.framework.pod_info import PodInfo
from proreus.framework.status import Code, Status
from proreus.framework.verdicts import Verdicts
from proreus.objects.codec import decoder_for
from proreus.objects.meta import Resource
from proreus.objects.resource_claims import RESOURCE_CLAIMS, ResourceClaim
from proreus.offline.api import InMemoryApi
from proreus.plugins.dynamic_resources import DynamicResources
from proreus.testing import FakeHandle, make_node, make_plugin, make_pod

DRIVER = "gpu.example.com"
Object = dict[str, Any]


class StrictApi(InMemoryApi):
    """Refuses patches with an old resourceVersion, and records all others in ``patches``.

    ``before_patch`` is called once, before the next patch.
    """

    def __init__(self) -> None:
        super().__init__(hide_finished=False)
        self.patches: list[tuple[str, str, Object]] = []
        self.before_patch: Callable[[], None] | None = None

    async def patch(
        self,
        resource: Resource[Any],
        namespace: str,
        name: str,
        patch: Object,
        subresource: str = "",
    ) -> Object:
        interfere, self.before_patch = self.before_patch, None
        if interfere is not None:
            interfere()
        live = self.store(resource)[f"{namespace}/{name}"]
        version = patch.get("metadata", {}).get("resourceVersion")
        if version not in (None, live.metadata.resource_version):
            raise Conflict(409, "Conflict", f"{name} was changed")
        self.patches.append((name, subresource, patch))
        return await super().patch(resource, namespace, name, patch, subresource)


def request(name: str = "r", cls: str = "gpu", count: int = 1, **more: Any) -> Object:
    """Return a request for ``count`` devices; ``cel``: a selector."""
    return {"name": name, "exactly": wanted(cls, count, **more)}


def first_available(name: str, *subrequests: Object) -> Object:
    return {"name": name, "firstAvailable": list(subrequests)}


def sub(name: str, cls: str = "gpu", count: int = 1, **more: Any) -> Object:
    return {"name": name, **wanted(cls, count, **more)}


def wanted(cls: str, count: int, cel: str = "", all_devices: bool = False, **more: Any) -> Object:
    exactly: Object = {"deviceClassName": cls, **more}
    exactly |= (
        {"allocationMode": "All"}
        if all_devices
        else {"allocationMode": "ExactCount", "count": count}
    )
    if cel:
        exactly["selectors"] = [{"cel": {"expression": cel}}]
    return exactly


def device(name: str, *, capacity: Mapping[str, Any] | None = None, **more: Any) -> Object:
    """Return a device; other keyword arguments than its fields are attributes."""
    fields = {"taints", "consumesCounters", "bindingConditions", "bindingFailureConditions"}
    fields |= {"allowMultipleAllocations", "nodeName", "allNodes", "nodeSelector", "bindsToNode"}
    attributes = {}
    for key in [key for key in more if key not in fields]:
        value = more.pop(key)
        kind = {bool: "bool", int: "int", str: "string"}[type(value)]
        attributes[key] = {kind: value}
    amounts = {
        key: value if isinstance(value, dict) else {"value": value}
        for key, value in (capacity or {}).items()
    }
    return {"name": name, "attributes": attributes, "capacity": amounts, **more}


def pod_with(*claims: str, name: str = "pod", **more: Any) -> PodInfo:
    entries = [{"name": claim, "resourceClaimName": claim} for claim in claims]
    return make_pod(name, spec={"resourceClaims": entries, **more.pop("spec", {})}, **more)


def allocated(*devices: str, node: str = "n1", reserved: Sequence[str] = ("other",)) -> Object:
    """Return the status of a claim that has devices of a node's own pool."""
    by_name = {"key": "metadata.name", "operator": "In", "values": [node]}
    return {
        "allocation": {
            "devices": {
                "results": [
                    {"request": "r", "driver": DRIVER, "pool": node, "device": name}
                    for name in devices
                ]
            },
            "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [by_name]}]},
        },
        "reservedFor": [{"resource": "pods", "name": n, "uid": n} for n in reserved],
    }


def changed(claim: ResourceClaim, status: Object) -> ResourceClaim:
    """Return a claim with some fields of its status set."""
    merged = {**msgspec.to_builtins(claim.status), **status}
    new = decoder_for(type(claim.status)).convert(merged)
    return msgspec.structs.replace(claim, status=new)


class Devices:
    """Nodes, devices and claims, and one DynamicResources."""

    request = staticmethod(request)
    first_available = staticmethod(first_available)
    sub = staticmethod(sub)
    device = staticmethod(device)
    pod = staticmethod(pod_with)
    allocated = staticmethod(allocated)
    changed = staticmethod(changed)

    def __init__(
        self,
        *nodes: str,
        gates: Sequence[str] = (),
        labels: Mapping[str, Mapping[str, str]] | None = None,
        resources: Mapping[str, Mapping[str, int]] | None = None,
        args: Mapping[str, Any] | None = None,
        kubernetes_version: str = "1.36",
    ) -> None:
        self.handle = FakeHandle(
            [
                make_node(
                    name,
                    labels=(labels or {}).get(name),
                    resources=(resources or {}).get(name),
                )
                for name in nodes
            ],
            gates=gates,
            kubernetes_version=kubernetes_version,
        )
        self.api = self.handle.api = StrictApi()
        self.plugin = make_plugin(DynamicResources, self.handle, args)  # type: ignore[arg-type]
        self.state = CycleState()

    # ---- objects -------------------------------------------------------------------------------

    def device_class(self, name: str = "gpu", *selectors: str, **spec: Any) -> None:
        self.handle.add(
            {
                "kind": "DeviceClass",
                "metadata": {"name": name, **spec.pop("metadata", {})},
                "spec": {"selectors": [{"cel": {"expression": s}} for s in selectors], **spec},
            }
        )

    def slice(
        self,
        *devices: Object | str,
        node: str = "n1",
        name: str = "",
        pool: str = "",
        driver: str = DRIVER,
        generation: int = 1,
        count: int = 1,
        **spec: Any,
    ) -> None:
        where = {"nodeName": node} if node else {}
        self.handle.add(
            {
                "kind": "ResourceSlice",
                "metadata": {"name": name or f"slice-{node}"},
                "spec": {
                    "driver": driver,
                    "pool": {
                        "name": pool or node,
                        "generation": generation,
                        "resourceSliceCount": count,
                    },
                    "devices": [{"name": d} if isinstance(d, str) else d for d in devices],
                    **where,
                    **spec,
                },
            }
        )

    def claim(
        self, name: str = "claim", *requests: Object, status: Object | None = None, **spec: Any
    ) -> ResourceClaim:
        self.handle.add(
            {
                "kind": "ResourceClaim",
                "metadata": {
                    "name": name,
                    "namespace": "default",
                    "uid": f"uid-of-{name}",
                    **spec.pop("metadata", {}),
                },
                "spec": {"devices": {"requests": list(requests or (request(),)), **spec}},
                "status": status or {},
            }
        )
        return self.claim_now(name)

    def claim_now(self, name: str = "claim") -> ResourceClaim:
        return self.handle.store(RESOURCE_CLAIMS)[f"default/{name}"]

    # ---- questions -----------------------------------------------------------------------------

    def pre_filter(self, pod: PodInfo) -> Status | None:
        self.state = CycleState()
        return self.plugin.pre_filter(self.state, pod, self.handle.nodes)

    def filter(self, pod: PodInfo) -> dict[str, str]:
        """Return the reason for each rejected node; ``!`` marks errors."""
        status = self.pre_filter(pod)
        if status is not None:
            return {"": status.message if status.code != Code.SKIP else "skip"}
        return self.filter_again(pod)

    def filter_again(self, pod: PodInfo) -> dict[str, str]:
        self.verdicts = Verdicts(len(self.handle.nodes), self.plugin.name)
        self.plugin.filter_all(self.state, pod, self.handle.nodes, self.verdicts)
        reasons = {}
        for row, node in enumerate(self.handle.nodes):
            status = self.verdicts.status(row)
            if status is not None:
                assert status.code in (Code.UNRESOLVABLE, Code.ERROR)
                mark = "!" if status.code == Code.ERROR else ""
                reasons[node.name] = mark + status.message
        return reasons

    def scores(self, pod: PodInfo) -> dict[str, int]:
        scores = self.plugin.score_all(self.state, pod, self.handle.nodes)
        if isinstance(scores, int):
            scores = np.full(len(self.handle.nodes), scores)
        final = self.plugin.normalize(self.state, pod, scores).tolist()
        return {node.name: score for node, score in zip(self.handle.nodes, final, strict=True)}

    def reserve(self, pod: PodInfo, node: str = "n1") -> Status | None:
        """Run a cycle up to Reserve."""
        assert node not in self.filter(pod)
        return self.plugin.reserve(self.state, pod, node)

    async def bind(self, pod: PodInfo, node: str = "n1") -> Status | None:
        """Run a cycle up to PreBind."""
        assert self.reserve(pod, node) is None
        return await self.plugin.pre_bind(self.state, pod, node)

    async def post_filter(self, pod: PodInfo) -> Status | None:
        return (await self.plugin.post_filter(self.state, pod, self.verdicts)).status

    async def devices_given(self, pod: PodInfo, node: str = "n1") -> list[str]:
        """Bind, and return ``request=device`` for each device, claim by claim."""
        assert await self.bind(pod, node) is None
        found = []
        for entry in pod.pod.spec.resource_claims:
            allocation = self.claim_now(entry.resource_claim_name or "").status.allocation
            assert allocation is not None
            found += [f"{result.request}={result.device}" for result in allocation.devices.results]
        return found

    async def settle(self) -> None:
        for _ in range(10):
            await asyncio.sleep(0)


@pytest.fixture
def gpus() -> Devices:
    """Return two nodes with two devices each, of class ``gpu``."""
    devices = Devices("n1", "n2")
    devices.device_class()
    for node in ("n1", "n2"):
        devices.slice("gpu-0", "gpu-1", node=node)
    return devices


@pytest.fixture
def cluster() -> type[Devices]:
    """Return a factory of clusters: ``cluster("n1", "n2", gates=…)``."""
    return Devices
