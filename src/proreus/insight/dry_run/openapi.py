"""The OpenAPI document of the dry-run API, made from the Structs of ``api``."""

from __future__ import annotations

from typing import Any

import msgspec

from proreus.insight.dry_run.api import API_VERSION, GROUP, VERSION, DryRunReview

PATH = f"/apis/{API_VERSION}/dryrunreviews"
DOCUMENT_PATH = f"/openapi/v3/apis/{API_VERSION}"

_ERRORS = {
    "400": "the body is no DryRunReview, or has a field that is not known",
    "401": "the credentials are not valid",
    "403": "the caller must not post to this path (nonResourceURLs)",
    "409": "the cluster changes faster than it can be copied: ask again",
    "413": "the body is larger than 1 MiB",
    "422": "a pod, node or weight of it is not valid, or too much is asked",
    "429": "too many dry runs are under way: ask again after Retry-After",
    "503": "this instance does not lead, and knows nothing of assumed pods",
    "504": "spec.timeoutSeconds are over",
}


def openapi_document() -> dict[str, Any]:
    """Return the document (OpenAPI 3.1, with schemas in JSON Schema)."""
    template = "#/components/schemas/{name}"
    (reference,), schemas = msgspec.json.schema_components((DryRunReview,), ref_template=template)
    # Defined by Kubernetes: pods and nodes are passed on as they are.
    schemas["PodItem"]["properties"]["pod"] = {"type": "object", "description": "a v1 Pod"}
    node_template = schemas["NodeTemplate"]["properties"]
    node_template["node"] = {"type": "object", "description": "a v1 Node"}
    node_template["pods"]["items"] = {"type": "object", "description": "a v1 Pod"}
    schemas["Status"] = {
        "type": "object",
        "description": "metav1.Status",
        "properties": {
            "kind": {"const": "Status"},
            "apiVersion": {"const": "v1"},
            "status": {"const": "Failure"},
            "reason": {"type": "string"},
            "message": {"type": "string"},
            "code": {"type": "integer"},
        },
    }
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "proreus dry runs",
            "version": VERSION,
            "description": f"Where {GROUP} would place pods, without placing them.",
        },
        "paths": {
            PATH: {
                "post": {
                    "operationId": "createDryRunReview",
                    "summary": "Return where pods would be placed, and why not",
                    "requestBody": {"required": True, "content": _json(reference)},
                    "responses": {
                        "201": {"description": "answered", "content": _json(reference)},
                        **{code: _error(code, text) for code, text in _ERRORS.items()},
                    },
                }
            }
        },
        "components": {"schemas": schemas},
    }


def main() -> None:
    """Print the document, as docs/dry-run.openapi.json has it."""
    print(msgspec.json.format(msgspec.json.encode(openapi_document()), indent=1).decode())


def _json(schema: dict[str, Any]) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}


def _error(code: str, text: str) -> dict[str, Any]:
    error: dict[str, Any] = {
        "description": text,
        "content": _json({"$ref": "#/components/schemas/Status"}),
    }
    if code in ("409", "429"):
        seconds = {"schema": {"type": "integer"}, "description": "seconds"}
        error["headers"] = {"Retry-After": seconds}
    return error


if __name__ == "__main__":
    main()
