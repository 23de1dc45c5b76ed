"""Stands in for DRA drivers and the resource claim controller: ResourceSlices and claims."""

from __future__ import annotations

import random
from collections.abc import Iterable
from fnmatch import fnmatchcase

from proreus.base.errors import ProreusError
from proreus.workbench.bench import objects
from proreus.workbench.bench.api import Api, for_each
from proreus.workbench.bench.operations import CreateResourceDriver
from proreus.workbench.bench.templates import JsonObject

SLICES = "/apis/resource.k8s.io/v1/resourceslices"
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/{}/resourceclaims"
ALL_CLAIMS = "/apis/resource.k8s.io/v1/resourceclaims"
CLAIM_TEMPLATES = "/apis/resource.k8s.io/v1/namespaces/{}/resourceclaimtemplates"


async def publish(api: Api, operation: CreateResourceDriver) -> None:
    """Publish a ResourceSlice for each node that has the driver."""
    names = [node["metadata"]["name"] for node in await api.list("/api/v1/nodes")]

    async def create(node: str) -> None:
        body = objects.resource_slice(operation.driver_name, node, operation.max_claims_per_node)
        await api.create(SLICES, body)

    await for_each([name for name in names if fnmatchcase(name, operation.nodes)], create)


ClaimNames = dict[tuple[str, str, str], str]
"""The ResourceClaims of PodGroups, by namespace, name of the group, and name of the claim in it."""


async def create_claims_of(
    api: Api, owner: JsonObject, path: str, templates: dict[str, JsonObject], of_groups: ClaimNames
) -> None:
    """Create the claims of a pod or PodGroup from their templates, and set them in its status.

    ``path``: of the owner's collection. Claims that a pod has from its group, by the same name and
    template, are those ``of_groups``; the claims of a group are added there.
    """
    namespace, owner_name = owner["metadata"]["namespace"], owner["metadata"]["name"]
    group = objects.group_of(owner)
    statuses = []
    for claim, template in objects.claims_of_templates(owner):
        name = of_groups.get((namespace, group, claim))
        if name is None:
            body = objects.claim_for(templates[template], owner, claim)
            await api.create(CLAIMS.format(namespace), body)
            name = body["metadata"]["name"]
        if owner["kind"] == "PodGroup":
            of_groups[namespace, owner_name, claim] = name
        statuses.append({"name": claim, "resourceClaimName": name})
    status = {"status": {"resourceClaimStatuses": statuses}}
    await api.patch(f"{path}/{owner_name}/status", status)


async def claim_templates_of(
    api: Api, owners: Iterable[JsonObject], namespace: str
) -> dict[str, JsonObject]:
    """Return the ResourceClaimTemplates that pods or PodGroups name, by name."""
    return {
        name: await api.get(f"{CLAIM_TEMPLATES.format(namespace)}/{name}")
        for owner in owners
        for _, name in objects.claims_of_templates(owner)
    }


async def delete_claims_of_pods(api: Api, namespace: str) -> None:
    """Delete the claims of a namespace that pods own, regardless of finalizers."""

    async def delete(claim: JsonObject) -> None:
        path = f"{CLAIMS.format(namespace)}/{claim['metadata']['name']}"
        await api.delete(path)
        if claim["metadata"].get("finalizers"):
            await api.patch(path, {"metadata": {"finalizers": None}})

    claims = await api.list(CLAIMS.format(namespace))
    await for_each([each for each in claims if objects.is_of_pod(each)], delete)


async def allocate(api: Api, namespace: str) -> None:
    """Allocate claims that request devices by count, each on a random node.

    Raises ``ProreusError`` when no node has enough free devices. ``namespace``: empty for all.
    """
    claims = await api.list(CLAIMS.format(namespace) if namespace else ALL_CLAIMS)
    free = _free_devices(await api.list(SLICES), claims)

    async def allocate_one(claim: JsonObject) -> None:
        metadata = claim["metadata"]
        path = f"{CLAIMS.format(metadata['namespace'])}/{metadata['name']}/status"
        await api.patch(path, {"status": {"allocation": _allocation(claim, free)}})

    open_ = [claim for claim in claims if not claim.get("status", {}).get("allocation")]
    await for_each(open_, allocate_one)


Free = dict[str, list[JsonObject]]
"""Node -> allocation results of its free devices, without the ``request``."""


def _free_devices(slices: list[JsonObject], claims: list[JsonObject]) -> Free:
    taken = {
        (result["driver"], result["pool"], result["device"])
        for claim in claims
        for result in claim.get("status", {})
        .get("allocation", {})
        .get("devices", {})
        .get("results", ())
    }
    free: Free = {}
    for each in slices:
        spec = each["spec"]
        for device in spec.get("devices", ()):
            identity = (spec["driver"], spec["pool"]["name"], device["name"])
            if identity not in taken and spec.get("nodeName"):
                result = dict(zip(("driver", "pool", "device"), identity, strict=True))
                free.setdefault(spec["nodeName"], []).append(result)
    return free


def _allocation(claim: JsonObject, free: Free) -> JsonObject:
    """Return an allocation of devices of one node, and remove them from ``free``.

    Selectors are ignored: all devices of the bench's drivers have the same attributes.
    """
    wanted = [
        request["name"]
        for request in claim["spec"]["devices"]["requests"]
        for _ in range((request.get("exactly") or {}).get("count") or 1)
    ]
    nodes = [node for node, devices in free.items() if len(devices) >= len(wanted)]
    if not nodes:
        raise ProreusError(
            f"no node has {len(wanted)} free devices for {claim['metadata']['name']}"
        )
    node = random.choice(nodes)
    results = [{"request": name, **free[node].pop()} for name in wanted]
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    return {
        "devices": {"results": results},
        "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [field]}]},
    }
