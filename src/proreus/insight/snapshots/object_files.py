"""Reads API objects from files: snapshots, and output of ``kubectl get -o json`` or ``-o yaml``.

A file is a List, one object, or several YAML documents; gzip is recognised by its first bytes. Each
error names the file, the object and the field.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import yaml

from proreus.base import compressed_files
from proreus.base.errors import ConfigError
from proreus.base.kubernetes_version import KubernetesVersion
from proreus.base.yaml_limits import LOADER, LimitExceeded, check
from proreus.config.reading import template_remedy
from proreus.insight.snapshots.cluster_objects import READ_KINDS, ClusterObjects
from proreus.objects.codec import (
    DecodeError,
    Decoder,
    decoder_for,
    describe,
    without_nulls,
)
from proreus.objects.kinds import NODES, PODS
from proreus.objects.meta import ApiStruct, ObjectMeta, Resource
from proreus.objects.quantity_validation import (
    validate_node_quantities,
    validate_pod_quantities,
)

JsonObject = dict[str, Any]


class SnapshotInfo(ApiStruct, frozen=True):
    """The facts that ``proreus snapshot`` writes into its List.

    ``unavailable``: kinds that the apiserver does not serve, or not to this user.
    """

    kubernetes_version: str = ""
    taken_at: str = ""
    redacted: bool = False
    unavailable: tuple[str, ...] = ()


class _TypeMeta(ApiStruct, frozen=True):
    api_version: str = ""
    kind: str = ""


class _File(ApiStruct, frozen=True):
    api_version: str = ""
    kind: str = ""
    items: list[msgspec.Raw] | None = None
    snapshot: SnapshotInfo | None = None


class _Item(NamedTuple):
    """One object of a file. ``place``: where it stands there; ``kind`` of its list, or ""."""

    place: str
    data: bytes | msgspec.Raw | JsonObject
    list_kind: str = ""
    list_version: str = ""


class _Loader(LOADER):  # type: ignore[misc]
    """YAML as the API reads it: times stay text."""

    yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith(":timestamp")]
        for first, resolvers in LOADER.yaml_implicit_resolvers.items()
    }


_TYPE_META: Decoder[_TypeMeta] = decoder_for(_TypeMeta)
_FILE: Decoder[_File] = decoder_for(_File)
_PLAIN: Decoder[JsonObject] = decoder_for(dict[str, Any])


def read_cluster(paths: Iterable[Path]) -> ClusterObjects:
    """Return the objects of files, ``-`` being standard input; raises ``ConfigError``.

    Objects of kinds that no scheduler reads are counted in ``ignored``.
    """
    objects = ClusterObjects()
    for path in paths:
        items, info = _items(path)
        if info is not None and info.kubernetes_version:
            objects.version = _version(path, info.kubernetes_version)
        for item in items:
            kind, version, data = _typed(path, item)
            resource = _resource(kind, version)
            if resource is None:
                objects.ignored[kind] += 1
                continue
            objects.put(resource, decode_checked(resource, data, f"{path}, {item.place}"))
    return objects


def read_documents(path: Path) -> list[tuple[str, JsonObject]]:
    """Return the objects of a file as plain data, each with its place in the file.

    Raises ``ConfigError`` also for an object without a kind.
    """
    items, _ = _items(path)
    found = []
    for item in items:
        kind, version, data = _typed(path, item)
        plain = data if isinstance(data, dict) else without_nulls(_PLAIN.decode(data))
        plain = {"apiVersion": version, **plain, "kind": kind}
        found.append((f"{path}, {item.place}", plain))
    return found


def resource_of(obj: JsonObject) -> Resource[Any] | None:
    """Return the resource of an object as plain data; None for a kind that is not read."""
    return _resource(str(obj.get("kind", "")), str(obj.get("apiVersion", "")))


def decode_object(content: bytes | msgspec.Raw, place: str) -> tuple[Resource[Any], Any]:
    """Return the resource and the object of a JSON text.

    Raises ``ConfigError`` that names the place.
    """
    try:
        plain = _PLAIN.decode(content)
    except DecodeError as error:
        raise ConfigError(f"{place}: object: {error}") from None
    resource = resource_of(plain)
    if resource is None:
        raise ConfigError(f"{place}: object: its kind is not known")
    return resource, decode_checked(resource, plain, place)


def decode_checked(resource: Resource[Any], data: Any, place: str) -> Any:
    """Return a typed object; raises ``ConfigError`` that names the place and the field."""
    decoder = decoder_for(resource.type)
    try:
        obj = decoder.convert(data) if isinstance(data, dict) else decoder.decode(data)
    except DecodeError as error:
        raise ConfigError(f"{place} ({_title(resource, data)}): {describe(error)}") from None
    meta: ObjectMeta = obj.metadata
    if not meta.name:
        raise ConfigError(f"{place} ({resource.kind}): metadata.name: a name is required")
    if resource.namespaced and not meta.namespace:
        meta = msgspec.structs.replace(meta, namespace="default")
        obj = msgspec.structs.replace(obj, metadata=meta)
    try:
        if resource is PODS:
            validate_pod_quantities(obj)
        elif resource is NODES:
            validate_node_quantities(obj)
    except ValueError as error:
        raise ConfigError(f"{place} ({_title(resource, data)}): {error}") from None
    return obj


# ---- files -------------------------------------------------------------------------------------


def _items(path: Path) -> tuple[list[_Item], SnapshotInfo | None]:
    content = _content(path)
    if content.lstrip()[:1] != b"{":
        return _yaml_items(path, content), None
    try:
        file = _FILE.decode(content)
    except DecodeError as error:
        remedy = template_remedy(content.decode(errors="replace"))
        raise ConfigError(f"{path}: {describe(error)}", remedy=remedy) from None
    if file.items is None:
        return [_Item("the object", content)], None
    kind = file.kind.removesuffix("List")
    items = [
        _Item(f"items[{number}]", item, kind, file.api_version)
        for number, item in enumerate(file.items)
    ]
    return items, file.snapshot


def _content(path: Path) -> bytes:
    content = compressed_files.read(path)
    if not content.strip():
        raise ConfigError(f"{path}: the file is empty")
    return content


def _yaml_items(path: Path, content: bytes) -> list[_Item]:
    items: list[_Item] = []
    try:
        check(content)
        for number, document in enumerate(yaml.load_all(content, Loader=_Loader), 1):
            if document is not None:
                items += _of_document(f"document {number}", document)
    except LimitExceeded as error:
        raise ConfigError(f"{path}, line {error.line}: {error.problem}") from None
    except (yaml.YAMLError, UnicodeDecodeError, ValueError, RecursionError) as error:
        remedy = template_remedy(content.decode(errors="replace"))
        text = f"{path}: neither JSON nor YAML: {describe(error)}"
        raise ConfigError(text, remedy=remedy) from None
    return items


def _of_document(place: str, document: Any) -> Iterator[_Item]:
    if not isinstance(document, dict):
        raise ValueError(f"{place} is not an object with fields")
    if "items" not in document:
        yield _Item(place, document)
        return
    kind = str(document.get("kind", "")).removesuffix("List")
    for number, item in enumerate(document.get("items") or ()):
        if not isinstance(item, dict):
            raise ValueError(f"{place}: items[{number}] is not an object with fields")
        yield _Item(f"items[{number}]", item, kind, str(document.get("apiVersion", "")))


def _version(path: Path, text: str) -> KubernetesVersion:
    try:
        return KubernetesVersion.parse(text)
    except ValueError as error:
        raise ConfigError(f"{path}: snapshot.kubernetesVersion: {error}") from None


# ---- objects -----------------------------------------------------------------------------------


def _typed(path: Path, item: _Item) -> tuple[str, str, Any]:
    """Return kind, apiVersion and data of an item; raises ``ConfigError``."""
    data = item.data
    try:
        if isinstance(data, dict):
            data = without_nulls(data)
            meta = msgspec.convert(
                {key: data[key] for key in ("kind", "apiVersion") if key in data}, _TypeMeta
            )
        else:
            meta = _TYPE_META.decode(data)
    except (DecodeError, msgspec.ValidationError) as error:
        raise ConfigError(f"{path}, {item.place}: {describe(error)}") from None
    # The items of a typed list (PodList) do not state their kind.
    kind = meta.kind or item.list_kind
    if not kind:
        raise ConfigError(f"{path}, {item.place}: kind: a kind is required")
    return kind, meta.api_version or item.list_version, data


def _resource(kind: str, api_version: str) -> Resource[Any] | None:
    """Return the resource that is read; None for other kinds, such as another group's Service."""
    resource = READ_KINDS.get(kind)
    group = api_version.rpartition("/")[0]
    return resource if resource is not None and resource.group == group else None


def _title(resource: Resource[Any], data: Any) -> str:
    """Return ``Pod shop/web`` for an error, as far as the object has a name."""
    try:
        plain = data if isinstance(data, dict) else msgspec.json.decode(data)
        meta = plain.get("metadata") or {}
        name = "/".join(filter(None, (meta.get("namespace"), meta.get("name"))))
    except (DecodeError, AttributeError, TypeError):
        name = ""
    return f"{resource.kind} {name}".strip()
