"""OpenAPI, as little of it as lets kubectl leave validation to the server.

kubectl looks whether PATCH of a kind knows the parameter ``fieldValidation``; if so it checks no
field itself. So the documents name paths and parameters, and no schemas.
"""

from typing import Any

from proreus.sandbox.api_errors import path_not_found
from proreus.sandbox.discovery import KUBERNETES_VERSION
from proreus.sandbox.resources import Resources, ServedResource

JsonObject = dict[str, Any]

_INFO = {"title": "Kubernetes", "version": KUBERNETES_VERSION}
_PARAMETERS = [
    {"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": True}}
    for name in ("dryRun", "fieldManager", "fieldValidation")
]


def swagger() -> JsonObject:
    """Return the (empty) document of version 2."""
    return {"swagger": "2.0", "info": _INFO, "paths": {}, "definitions": {}}


def document(resources: Resources, parts: list[str]) -> JsonObject:
    """Return a document of version 3, or the list of them; raises ``StatusError`` 404."""
    places = {_place(*key): served for key, served in resources.versions().items()}
    if not parts:
        return {"paths": {p: {"serverRelativeURL": f"/openapi/v3/{p}"} for p in places}}
    served = places.get("/".join(parts))
    if served is None:
        raise path_not_found()
    return {
        "openapi": "3.0.0",
        "info": _INFO,
        "paths": dict(_operations(resource) for resource in served if _is_kept(resource)),
        "components": {"schemas": {}},
    }


def _is_kept(served: ServedResource) -> bool:
    return not (served.create_only or served.read_only)


def _place(group: str, version: str) -> str:
    return f"apis/{group}/{version}" if group else f"api/{version}"


def _operations(served: ServedResource) -> tuple[str, JsonObject]:
    namespace = "/namespaces/{namespace}" if served.namespaced else ""
    path = f"/{_place(served.group, served.version)}{namespace}/{served.plural}/{{name}}"
    kind = {"group": served.group, "version": served.version, "kind": served.kind}
    patch = {"parameters": _PARAMETERS, "x-kubernetes-group-version-kind": kind, "responses": {}}
    return path, {"patch": patch}
