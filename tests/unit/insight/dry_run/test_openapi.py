"""The committed OpenAPI document."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from proreus.insight.dry_run.openapi import main, openapi_document

DOCUMENT = Path(__file__).parents[4] / "docs" / "dry-run.openapi.json"


def test_the_committed_document_is_current(capsys: pytest.CaptureFixture[str]) -> None:
    main()
    again = "python -m proreus.insight.dry_run.openapi > docs/dry-run.openapi.json"
    assert capsys.readouterr().out == DOCUMENT.read_text(), again


SCHEMAS: dict[str, Any] = openapi_document()["components"]["schemas"]


def test_pods_and_nodes_may_have_any_fields() -> None:
    """Without this a generated TypeScript client takes empty objects alone."""
    template = SCHEMAS["NodeTemplate"]["properties"]
    pod = SCHEMAS["PodItem"]["properties"]["pod"]
    for schema in (pod, template["node"], template["pods"]["items"]):
        assert schema["type"] == "object"
        assert schema["additionalProperties"] is True


def test_a_property_that_may_be_left_out_has_no_default_in_the_document() -> None:
    """Generators for TypeScript would take it for one that is always there."""
    properties = [one for schema in SCHEMAS.values() for one in schema["properties"].values()]
    assert not [one for one in properties if "default" in one]
    timeout = SCHEMAS["DryRunSpec"]["properties"]["timeoutSeconds"]
    assert timeout["description"].endswith("10 by default.")


def test_it_says_where_and_as_whom_to_ask_and_under_which_licence() -> None:
    document = openapi_document()
    assert document["info"]["license"]["identifier"] == "Apache-2.0"
    assert document["servers"]
    schemes = document["components"]["securitySchemes"]
    assert {name for one in document["security"] for name in one} == set(schemes)
