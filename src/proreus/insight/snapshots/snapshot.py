"""Takes a snapshot: every object that a scheduler reads, as one List, from an apiserver.

Objects are listed with the rights that a scheduler has, and written as the Structs that it reads:
what these do not have (env, commands, data of Secrets, status texts of nodes) never comes into the
process, and so is not in the file. What they have and no decision depends on is left out here.
"""

from __future__ import annotations

import gzip
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, BinaryIO

import msgspec

from proreus.base.clock import rfc3339
from proreus.base.errors import Forbidden, NotFound
from proreus.base.kubernetes_version import DEFAULT_VERSION, SUPPORTED_VERSIONS, KubernetesVersion
from proreus.client.http.session import ApiClient
from proreus.client.watching.informer_factory import NON_TERMINAL_PODS
from proreus.client.watching.list_watch import ListWatch
from proreus.client.watching.pager import list_all_pages
from proreus.client.watching.watch import ListDecoder
from proreus.insight.snapshots.cluster_objects import (
    READ_KINDS,
    ClusterObjects,
    ResourceClaimTemplate,
)
from proreus.insight.snapshots.object_files import SnapshotInfo
from proreus.objects.devices import DeviceClass
from proreus.objects.kinds import NODES, PODS
from proreus.objects.meta import Resource
from proreus.objects.pod import Pod, Volume
from proreus.objects.resource_claims import EXTENDED_RESOURCE_CLAIM_ANNOTATION, ResourceClaim
from proreus.objects.storage import (
    BIND_COMPLETED_ANNOTATION,
    BOUND_BY_CONTROLLER_ANNOTATION,
    MIGRATED_PLUGINS_ANNOTATION,
    SELECTED_NODE_ANNOTATION,
    STORAGE_CLASS_ANNOTATION,
)

MIRROR_POD_ANNOTATION = "kubernetes.io/config.mirror"
KEPT_ANNOTATIONS = frozenset(
    {
        BIND_COMPLETED_ANNOTATION,
        BOUND_BY_CONTROLLER_ANNOTATION,
        EXTENDED_RESOURCE_CLAIM_ANNOTATION,
        MIGRATED_PLUGINS_ANNOTATION,
        MIRROR_POD_ANNOTATION,
        SELECTED_NODE_ANNOTATION,
        STORAGE_CLASS_ANNOTATION,
    }
)
"""The annotations that decisions depend on; any other may hold a whole manifest, env included."""

_PAGE_SIZE = 2000
_LIST_SECONDS = 60.0
_ESSENTIAL = (PODS.kind, NODES.kind)
_LEVEL = 5

Progress = Callable[[str], None]


async def take_snapshot(
    client: ApiClient,
    keep_annotations: frozenset[str] = frozenset(),
    progress: Progress = lambda kind: None,
) -> tuple[ClusterObjects, SnapshotInfo]:
    """List all kinds and return their objects; raises ``ApiError`` if pods or nodes are refused.

    ``keep_annotations``: annotations to keep besides those that in-tree plugins read.
    """
    version = await _served_version(client)
    objects, unavailable = ClusterObjects(version), []
    kept = KEPT_ANNOTATIONS | keep_annotations
    for kind, resource in READ_KINDS.items():
        progress(kind)
        try:
            found = await _list(client, resource.as_of(version))
        except (Forbidden, NotFound):
            if kind in _ESSENTIAL:
                raise
            unavailable.append(kind)
            continue
        for obj in found:
            objects.put(resource, without_secrets(obj, kept))
    taken_at = rfc3339(time.time())
    return objects, SnapshotInfo(
        kubernetes_version=str(version), taken_at=taken_at, unavailable=tuple(unavailable)
    )


async def _served_version(client: ApiClient) -> KubernetesVersion:
    """Return the apiserver's version, the nearest one that can be emulated."""
    with suppress(Forbidden, ValueError, msgspec.DecodeError):
        body = msgspec.json.decode(await client.request("GET", "/version"))
        served = KubernetesVersion.parse(str(body.get("gitVersion")))
        return min(max(served, SUPPORTED_VERSIONS[0]), DEFAULT_VERSION)
    return DEFAULT_VERSION


async def _list(client: ApiClient, resource: Resource[Any]) -> list[Any]:
    selector = NON_TERMINAL_PODS if resource.kind == PODS.kind else ""
    listing: ListWatch[Any] = ListWatch(client, resource, selector)
    decoder: ListDecoder[Any] = ListDecoder(resource.type)
    page = await list_all_pages(listing, decoder, _PAGE_SIZE, _LIST_SECONDS)
    return page.items


def without_secrets(obj: Any, kept_annotations: frozenset[str] = KEPT_ANNOTATIONS) -> Any:
    """Return an object without names of Secrets, foreign annotations and opaque parameters."""
    meta = obj.metadata
    annotations = {key: value for key, value in meta.annotations.items() if key in kept_annotations}
    if annotations != meta.annotations:
        meta = msgspec.structs.replace(meta, annotations=annotations)
        obj = msgspec.structs.replace(obj, metadata=meta)
    if isinstance(obj, Pod) and obj.spec.volumes:
        volumes = tuple(map(_without_contents, obj.spec.volumes))
        if volumes != obj.spec.volumes:
            spec = msgspec.structs.replace(obj.spec, volumes=volumes)
            obj = msgspec.structs.replace(obj, spec=spec)
    elif isinstance(obj, DeviceClass):
        class_spec = msgspec.structs.replace(obj.spec, config=())
        obj = msgspec.structs.replace(obj, spec=class_spec)
    elif isinstance(obj, ResourceClaim):
        obj = _without_parameters(obj)
    elif isinstance(obj, ResourceClaimTemplate):
        made = _without_parameters(ResourceClaim(spec=obj.spec.spec))
        template_spec = msgspec.structs.replace(obj.spec, spec=made.spec)
        obj = msgspec.structs.replace(obj, spec=template_spec)
    return obj


def _without_parameters(claim: ResourceClaim) -> ResourceClaim:
    """Return a claim without the configuration that only drivers interpret."""
    replace = msgspec.structs.replace
    devices = replace(claim.spec.devices, config=())
    claim = replace(claim, spec=replace(claim.spec, devices=devices))
    allocation = claim.status.allocation
    if allocation is None:
        return claim
    allocation = replace(allocation, devices=replace(allocation.devices, config=()))
    return replace(claim, status=replace(claim.status, allocation=allocation))


def _without_contents(volume: Volume) -> Volume:
    """Return a volume that still has its type, for plugins that only ask for that."""
    if volume.secret is None and volume.config_map is None and volume.ephemeral is None:
        return volume
    changes: dict[str, Any] = {}
    if volume.secret is not None:
        changes["secret"] = {}
    if volume.config_map is not None:
        changes["config_map"] = {}
    if volume.ephemeral is not None:
        changes["ephemeral"] = msgspec.structs.replace(volume.ephemeral, volume_claim_template={})
    return msgspec.structs.replace(volume, **changes)


def write_snapshot(objects: ClusterObjects, info: SnapshotInfo, file: BinaryIO) -> None:
    """Write objects as a gzipped List, which kubectl can read too; equal ones as equal bytes."""
    with gzip.GzipFile("", "wb", _LEVEL, file, mtime=0) as out:
        out.write(b'{"apiVersion":"v1","kind":"List","snapshot":')
        out.write(msgspec.json.encode(info) + b',"items":[')
        separator = b"\n"
        for resource, obj in objects:
            out.write(separator + encoded(resource, obj))
            separator = b",\n"
        out.write(b"\n]}\n")


def encoded(resource: Resource[Any], obj: Any) -> bytes:
    """Return an object as JSON with its apiVersion and kind."""
    head = b'{"apiVersion":"%b","kind":"%b",' % (
        resource.api_version.encode(),
        resource.kind.encode(),
    )
    return head + msgspec.json.encode(obj)[1:]
