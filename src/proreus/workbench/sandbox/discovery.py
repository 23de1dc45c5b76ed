"""The discovery documents: versions, groups, resources, and a minimal OpenAPI.

OpenAPI has only what lets kubectl leave validation to the server: kubectl checks whether PATCH of a
kind has the parameter ``fieldValidation``, and if so validates no field itself. So the documents
list paths and parameters, and no schemas.
"""

from typing import Any

from proreus.objects.protobuf import BYTES, encode_message
from proreus.workbench.sandbox.api_errors import path_not_found
from proreus.workbench.sandbox.resources import Resources, ServedResource

JsonObject = dict[str, Any]

KUBERNETES_VERSION = "v1.37.1"

_KINDS = {"binding": "Binding", "eviction": "Eviction"}
"""Kinds that are created at a subresource of pods."""
_VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
_INFO = {"title": "Kubernetes", "version": KUBERNETES_VERSION}
_PARAMETERS = [
    {"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": True}}
    for name in ("dryRun", "fieldManager", "fieldValidation")
]


def describe(resources: Resources, parts: list[str]) -> JsonObject | None:
    """Return the discovery document at a path, given as its segments; None if there is none."""
    match parts:
        case [""]:
            return {"paths": ["/api", "/api/v1", "/apis", "/healthz", "/openapi/v3", "/version"]}
        case ["version"]:
            return version_info()
        case ["api"]:
            return {"kind": "APIVersions", "apiVersion": "v1", "versions": ["v1"]}
        case ["apis"]:
            groups = [_group(name, versions) for name, versions in _versions(resources).items()]
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
        case ["apis", name]:
            versions = _versions(resources).get(name)
            if versions is None:
                return None
            return {"kind": "APIGroup", "apiVersion": "v1"} | _group(name, versions)
        case ["api", version]:
            return _resource_list(resources, "", version)
        case ["apis", name, version]:
            return _resource_list(resources, name, version)
    return None


def version_info() -> JsonObject:
    """Return the body of ``/version``."""
    major, minor, _ = KUBERNETES_VERSION.removeprefix("v").split(".")
    return {
        "major": major,
        "minor": minor,
        "gitVersion": KUBERNETES_VERSION,
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": "",
        "platform": "",
    }


def _versions(resources: Resources) -> dict[str, list[str]]:
    """Return the versions of each named group."""
    found: dict[str, list[str]] = {}
    for group, version in resources.versions():
        if group:
            found.setdefault(group, []).append(version)
    return found


def _group(name: str, versions: list[str]) -> JsonObject:
    # kubectl uses the first version by default, so the most stable comes first.
    entries = [
        {"groupVersion": f"{name}/{version}", "version": version}
        for version in sorted(versions, key=lambda v: ("alpha" in v, "beta" in v, v))
    ]
    return {"name": name, "versions": entries, "preferredVersion": entries[0]}


def _resource_list(resources: Resources, group: str, version: str) -> JsonObject | None:
    served = resources.versions().get((group, version))
    if served is None:
        return None
    entries = [entry for resource in served for entry in _entries(resource)]
    group_version = f"{group}/{version}" if group else version
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": group_version,
        "resources": entries,
    }


def _entries(served: ServedResource) -> list[JsonObject]:
    entry: JsonObject = {
        "name": served.plural,
        "singularName": served.kind.lower(),
        "namespaced": served.namespaced,
        "kind": served.kind,
        "verbs": _verbs_of(served),
    }
    if served.short_names:
        entry["shortNames"] = list(served.short_names)
    if served.categories:
        entry["categories"] = list(served.categories)
    below = {"singularName": "", "namespaced": served.namespaced}
    entries = [entry]
    if served.status:
        names = {"name": f"{served.plural}/status", "kind": served.kind}
        entries.append(names | below | {"verbs": ["get", "patch", "update"]})
    for subresource in served.subresources:
        names = {"name": f"{served.plural}/{subresource}", "kind": _KINDS.get(subresource, "Pod")}
        posted = subresource in _KINDS
        entries.append(names | below | {"verbs": ["create"] if posted else ["patch", "update"]})
    return entries


def _verbs_of(served: ServedResource) -> list[str]:
    if served.create_only:
        return ["create"]
    return ["get", "list"] if served.read_only else _VERBS


def openapi_v2() -> JsonObject:
    """Return the OpenAPI v2 document, which is empty."""
    return {"swagger": "2.0", "info": _INFO, "paths": {}, "definitions": {}}


OPENAPI_V2_PROTOBUF = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
"""Read by kubectl to validate kinds without a v3 schema, such as List. It asks for the old name,
with an @, which Go cannot parse in an answer.
"""


def openapi_v2_protobuf() -> bytes:
    """Return the same in the wire format of gnostic's ``Document``."""
    info = encode_message(
        (number, BYTES, text.encode()) for number, text in enumerate(_INFO.values(), 1)
    )
    return encode_message([(1, BYTES, b"2.0"), (2, BYTES, info), (8, BYTES, b""), (9, BYTES, b"")])


def openapi_v3(resources: Resources, parts: list[str]) -> JsonObject:
    """Return the OpenAPI v3 document of a group version, or their index if ``parts`` is empty.

    Raises ``StatusError`` 404.
    """
    versions = resources.versions()
    served_by_path = {_group_version_path(*key): served for key, served in versions.items()}
    if not parts:
        return {"paths": {p: {"serverRelativeURL": f"/openapi/v3/{p}"} for p in served_by_path}}
    served = served_by_path.get("/".join(parts))
    if served is None:
        raise path_not_found()
    return {
        "openapi": "3.0.0",
        "info": _INFO,
        "paths": dict(_operations(resource) for resource in served if _is_stored(resource)),
        "components": {"schemas": {}},
    }


def _is_stored(served: ServedResource) -> bool:
    return not (served.create_only or served.read_only)


def _group_version_path(group: str, version: str) -> str:
    return f"apis/{group}/{version}" if group else f"api/{version}"


def _operations(served: ServedResource) -> tuple[str, JsonObject]:
    namespace = "/namespaces/{namespace}" if served.namespaced else ""
    prefix = _group_version_path(served.group, served.version)
    path = f"/{prefix}{namespace}/{served.plural}/{{name}}"
    kind = {"group": served.group, "version": served.version, "kind": served.kind}
    patch = {"parameters": _PARAMETERS, "x-kubernetes-group-version-kind": kind, "responses": {}}
    return path, {"patch": patch}
