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


_OPAQUE = (
    (DeviceClass, "spec.config"),
    (ResourceClaim, "spec.devices.config"),
    (ResourceClaim, "status.allocation.devices.config"),
    (ResourceClaimTemplate, "spec.spec.devices.config"),
)
"""Configuration that only drivers interpret."""


def without_secrets(obj: Any, kept_annotations: frozenset[str] = KEPT_ANNOTATIONS) -> Any:
    """Return an object without names of Secrets, foreign annotations and opaque parameters."""
    given = obj.metadata.annotations
    annotations = {key: value for key, value in given.items() if key in kept_annotations}
    if annotations != given:
        obj = _with(obj, "metadata.annotations", annotations)
    for type_, path in _OPAQUE:
        if isinstance(obj, type_):
            obj = _with(obj, path, ())
    if isinstance(obj, Pod):
        volumes = tuple(map(_without_contents, obj.spec.volumes))
        if volumes != obj.spec.volumes:
            obj = _with(obj, "spec.volumes", volumes)
    return obj


def _without_contents(volume: Volume) -> Volume:
    """Return a volume that still has its type, for plugins that only ask for that."""
    for path in ("secret", "config_map", "ephemeral.volume_claim_template"):
        if getattr(volume, path.partition(".")[0]) is not None:
            volume = _with(volume, path, {})
    return volume


def _with(obj: Any, path: str, value: Any) -> Any:
    """Return a struct with another value at a path, or unchanged if the path ends before."""
    name, dot, rest = path.partition(".")
    inner = getattr(obj, name)
    if dot and inner is None:
        return obj
    return msgspec.structs.replace(obj, **{name: _with(inner, rest, value) if dot else value})


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
