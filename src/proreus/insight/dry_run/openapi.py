"""The OpenAPI document of the dry-run API: ``openapi.yaml`` and the Structs of ``api``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import yaml

from proreus.insight.dry_run.api import API_VERSION, DryRunReview

PATH = f"/apis/{API_VERSION}/dryrunreviews"
DOCUMENT_PATH = f"/openapi/v3/apis/{API_VERSION}"


def openapi_document() -> dict[str, Any]:
    """Return the document (OpenAPI 3.1, with schemas in JSON Schema)."""
    document: dict[str, Any] = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text())
    template = "#/components/schemas/{name}"
    _, schemas = msgspec.json.schema_components((DryRunReview,), ref_template=template)
    # Defined by Kubernetes: pods and nodes are passed on as they are.
    schemas["PodItem"]["properties"]["pod"] = {"type": "object", "description": "a v1 Pod"}
    node_template = schemas["NodeTemplate"]["properties"]
    node_template["node"] = {"type": "object", "description": "a v1 Node"}
    node_template["pods"]["items"] = {"type": "object", "description": "a v1 Pod"}
    document["components"]["schemas"] = schemas | document["components"]["schemas"]
    return document


def main() -> None:
    """Print the document, as docs/dry-run.openapi.json has it."""
    print(msgspec.json.format(msgspec.json.encode(openapi_document()), indent=1).decode())


if __name__ == "__main__":
    main()
