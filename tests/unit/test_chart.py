"""deploy/chart without Helm: versions, values, add-ons. Helm renders it in tests/controlplane."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from unit.addons.test_crds import FILES

Json = dict[str, Any]

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
CHART = DEPLOY / "chart"
SCHEMA: Json = json.loads((CHART / "values.schema.json").read_text())
ADD_ONS: Json = yaml.safe_load((CHART / "add-ons.yaml").read_text())
PROJECT: Json = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_its_version_is_that_of_the_package() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == PROJECT["version"]


def test_templates_read_files_of_the_kustomizations() -> None:
    text = "".join(path.read_text() for path in (CHART / "templates").iterdir())
    paths = re.findall(r'"([a-z-]+/[a-z-]+\.yaml)"', text)
    assert len(paths) > 10
    for path in paths:
        assert (DEPLOY / path).is_file()
        assert (CHART / "kustomizations" / path).samefile(DEPLOY / path)


def test_every_link_is_used() -> None:
    text = "".join(path.read_text() for path in (CHART / "templates").iterdir())
    for link in (CHART / "kustomizations").iterdir():
        assert link.is_symlink()
        assert re.search(rf"[\"/]{link.name}/", text), link.name


def keys(values: Json, where: str = "") -> Iterator[str]:
    for key, value in values.items():
        if isinstance(value, dict) and value:
            yield from keys(value, f"{where}.{key}")
        else:
            yield f"{where}.{key}"


def schema_keys(schema: Json, where: str = "") -> Iterator[str]:
    if "$ref" in schema:
        schema = SCHEMA["definitions"][schema["$ref"].rpartition("/")[2]]
    closed = schema.get("additionalProperties") is False and where not in LEAVES
    if not closed:
        yield where
        return
    for key, inner in schema["properties"].items():
        yield from schema_keys(inner, f"{where}.{key}")


LEAVES = {".resources", ".controller.resources"}
"""Objects of Kubernetes: empty in values.yaml."""


def test_the_schema_has_every_value_and_no_other() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    assert set(schema_keys(SCHEMA)) - {".global"} == set(keys(values))


def test_the_schema_names_every_definition() -> None:
    assert SCHEMA["properties"]["crds"]["properties"]["names"]["items"]["enum"] == sorted(FILES)


def test_add_ons_of_the_chart_are_those_whose_page_has_further_rights() -> None:
    registered = PROJECT["entry-points"]["proreus.plugins"]
    for name, entry in registered.items():
        rights = further_rights(entry)
        assert (name in ADD_ONS) == (not rights.startswith("none")), f"{name}: {rights}"


def further_rights(entry: str) -> str:
    """Return the row of an add-on's page; the page has the name of its module, mostly."""
    module = entry.partition(":")[0].removeprefix("proreus.addons.").partition(".")[0]
    page = ROOT / "docs" / "addons" / f"{module.replace('_', '-')}.md"
    [row] = re.findall(r"^\| further rights \| (.+) \|$", page.read_text(), re.M)
    return str(row)


@pytest.mark.parametrize("name", ADD_ONS)
def test_an_add_on_may_read_the_objects_of_its_definitions(name: str) -> None:
    rules = ADD_ONS[name]["rules"]
    for definition in ADD_ONS[name]["crds"]:
        resource = FILES[definition]
        assert any(
            resource.group in rule["apiGroups"]
            and resource.plural in rule["resources"]
            and rule["verbs"] == ["get", "list", "watch"]
            for rule in rules
        ), definition


def test_every_definition_can_be_read_by_an_add_on() -> None:
    granted = {
        (group, resource)
        for add_on in ADD_ONS.values()
        for rule in add_on["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    assert {(each.group, each.plural) for each in FILES.values()} <= granted
