"""The OpenAPI document of the dry-run API: ``openapi.yaml`` and the Structs of ``api``."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import yaml

from proreus.insight.dry_run.api import API_VERSION, DryRunReview

PATH = f"/apis/{API_VERSION}/dryrunreviews"
DOCUMENT_PATH = f"/openapi/v3/apis/{API_VERSION}"


# Without additionalProperties generators for typed languages make objects without fields.
_OBJECT = {"type": "object", "additionalProperties": True}


def openapi_document() -> dict[str, Any]:
    """Return the document (OpenAPI 3.1, with schemas in JSON Schema)."""
    document: dict[str, Any] = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text())
    template = "#/components/schemas/{name}"
    _, schemas = msgspec.json.schema_components((DryRunReview,), ref_template=template)
    # Kubernetes defines pods and nodes: their schemas are open.
    node_template = schemas["NodeTemplate"]["properties"]
    for opaque in (schemas["PodItem"]["properties"]["pod"], node_template["node"]):
        opaque.update(_OBJECT)
    node_template["pods"]["items"] = _OBJECT
    for schema in schemas.values():
        _describe_defaults(schema["properties"].values())
    document["components"]["schemas"] = schemas | document["components"]["schemas"]
    return document


def _describe_defaults(properties: Iterable[dict[str, Any]]) -> None:
    """Move defaults to the descriptions.

    Generators for TypeScript take a property with a default for one that is always there. Requests
    may leave it out, and responses do.
    """
    for one in properties:
        if default := one.pop("default", None):
            one["description"] += f" {default} by default."


def main() -> None:
    """Print the document, as docs/dry-run.openapi.json has it."""
    print(msgspec.json.format(msgspec.json.encode(openapi_document()), indent=1).decode())


if __name__ == "__main__":
    main()
