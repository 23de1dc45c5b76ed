"""Metadata of API objects, and API resources.

Structs are frozen, since informers share their objects with all readers. They are not tracked by
the cyclic garbage collector (``gc=False``): they are trees and cannot be part of a cycle.
"""

import re
from datetime import datetime
from typing import Any, Generic, Protocol, Self, TypeVar
from urllib.parse import quote

import msgspec
from msgspec.structs import replace

from proreus.base.kubernetes_version import KubernetesVersion


class ApiStruct(
    msgspec.Struct, kw_only=True, frozen=True, gc=False, rename="camel", omit_defaults=True
):
    """Part of an API object: snake_case here, camelCase in JSON; unknown fields are ignored."""


class OwnerReference(ApiStruct, frozen=True):
    """An owner of an object; ``controller``: it is the managing controller."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None


class ObjectMeta(ApiStruct, frozen=True):
    """metav1.ObjectMeta, as far as a scheduler reads it."""

    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    deletion_grace_period_seconds: int | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: tuple[OwnerReference, ...] = ()
    finalizers: tuple[str, ...] = ()


class UnownedObjectMeta(ObjectMeta, frozen=True):
    """metav1.ObjectMeta without owners: nobody reads those of the kind, so ``owner_references`` is
    always ().

    An object may have tens of thousands of owners, which would take eight megabytes.
    """

    # Under a name that no object has, so that the owners of objects are not decoded.
    owner_references: tuple[OwnerReference, ...] = msgspec.field(default=(), name="-")


class ListMeta(ApiStruct, frozen=True):
    """metav1.ListMeta: the resourceVersion of a list, and the token of its next page."""

    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")
    remaining_item_count: int | None = None


class ApiObject(Protocol):
    """Any object with metadata."""

    @property
    def metadata(self) -> ObjectMeta:
        """Name, labels, versions."""
        ...


def key_of(obj: ApiObject) -> str:
    """Return ``namespace/name``, or ``name`` for an object without namespace."""
    meta = obj.metadata
    return f"{meta.namespace}/{meta.name}" if meta.namespace else meta.name


def version_of(obj: ApiObject) -> tuple[str, str]:
    """Return uid and resourceVersion: equal for two readings of the same version only."""
    return obj.metadata.uid, obj.metadata.resource_version


def controller_of(meta: ObjectMeta) -> OwnerReference | None:
    """Return the managing controller of an object, or None."""
    for owner in meta.owner_references:
        if owner.controller:
            return owner
    return None


T = TypeVar("T")


class Resource(msgspec.Struct, Generic[T], frozen=True):
    """An API resource: its path, and the Struct of its objects.

    ``group`` ("" for the core), ``version``, ``plural`` (in URLs), ``kind``, ``namespaced``;
    ``type``: an ``ApiStruct`` with the fields that are to be read, or ``Untyped``. ``custom``: set
    it for a kind that a CustomResourceDefinition defines, since another group may have one of that
    name; or to read fields that proreus' own type lacks, by a watch of their own.
    """

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool
    type: type[T]
    until: tuple[KubernetesVersion, str] | None = None
    """The last Kubernetes version that serves the kind in an older API version, and that one."""
    custom: bool = False

    @property
    def id(self) -> str:
        """The identity of the resource: its kind, or ``plural.version.group`` of a custom one,
        which is also its name in a ``ClusterEvent``.
        """
        return f"{self.plural}.{self.version}.{self.group}" if self.custom else self.kind

    def as_of(self, version: KubernetesVersion) -> Self:
        """Return the resource as a Kubernetes version serves it."""
        if self.until is None or version > self.until[0]:
            return self
        return replace(self, version=self.until[1], until=None)

    @property
    def api_version(self) -> str:
        """The ``apiVersion`` of its objects."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(
        self, namespace: str | None = None, name: str | None = None, subresource: str | None = None
    ) -> str:
        """Return the URL path of a collection, an object or a subresource.

        Names are percent-encoded, so that each is one segment of the path, whoever wrote it.
        """
        parts = [f"/apis/{self.group}" if self.group else "/api", self.version]
        if namespace and self.namespaced:
            parts += ["namespaces", _segment(namespace)]
        parts.append(self.plural)
        if name:
            parts.append(_segment(name))
        if subresource:
            parts.append(subresource)
        return "/".join(parts)


def _segment(name: str) -> str:
    if _PLAIN_SEGMENT.fullmatch(name):
        return name
    # Dots are never encoded by `quote`, and alone they would lead to another folder.
    if name in (".", ".."):
        return "%2E" * len(name)
    return quote(name, safe=":", errors="replace")


_PLAIN_SEGMENT = re.compile(r"[A-Za-z0-9-][A-Za-z0-9.:_-]*")


class Untyped(ApiStruct, frozen=True):
    """An object of which only the fact of a change matters."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()


JsonObject = dict[str, Any]
