"""Templates of objects: arithmetic, field names, and errors."""

from pathlib import Path

import pytest

from proreus.base.errors import ConfigError
from proreus.workbench.bench.templates import Template

OURS = sorted((Path(__file__).parents[3] / "bench" / "workloads" / "templates").glob("*.yaml"))

HEAD = "apiVersion: v1\nkind: Pod\nmetadata:\n"


def made(tmp_path: Path, text: str, index: int = 0, count: int = 1) -> dict:
    path = tmp_path / "template.yaml"
    path.write_text(text)
    return Template(path).object(index, count)


@pytest.mark.parametrize(
    ("action", "value"),
    [
        ("{{.Index}}", "7"),
        ("{{ .Count }}", "30"),
        ("{{DivideInt .Index 2}}", "3"),
        ("{{- Mod .Index 5 -}}", "2"),
        ("{{ AddInt .Index .Count 1 }}", "38"),
        ("{{MultiplyInt (SubtractInt .Count .Index) 2}}", "46"),
        ("{{DivideFloat .Index 2}}", "3.5"),
        ("{{DivideFloat .Count 2}}", "15"),
    ],
)
def test_arithmetic(tmp_path: Path, action: str, value: str) -> None:
    assert made(tmp_path, f"{HEAD}  name: a-{action}", 7, 30)["metadata"]["name"] == f"a-{value}"


@pytest.mark.parametrize(
    ("action", "words"),
    [
        ("{{.Name}}", "Name}} has no value; there are .Index, .Count"),
        ("{{Mod .Index}}", "Mod|lambda"),
        ("{{DivideInt .Index 0}}", "division by zero"),
        ("{{(AddInt 1 2}}", "a parenthesis is not closed"),
        ("{{.Index .Count}}", "ends too late, at .Count"),
    ],
)
def test_errors_name_the_file(tmp_path: Path, action: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        made(tmp_path, f"{HEAD}  name: a-{action}")
    assert "template.yaml: " in str(caught.value)


def test_parameters(tmp_path: Path) -> None:
    path = tmp_path / "template.yaml"
    path.write_text(HEAD + "  name: {{DivideInt .Index .size}}-{{.kind}}")
    template = Template(path)
    assert template.object(7, 9, {"size": 3, "kind": "x"})["metadata"]["name"] == "2-x"
    with pytest.raises(ConfigError, match="a parameter without value"):
        template.object(7, 9)


def test_field_names_are_lower_camel_case_and_free_form_keys_unchanged(tmp_path: Path) -> None:
    text = (
        HEAD + "  labels: {Team: red}\nspec:\n  NodeName: x\n  list:\n  - NodeTaintsPolicy: Honor"
    )
    pod = made(tmp_path, text)
    assert pod["metadata"]["labels"] == {"Team": "red"}
    assert pod["spec"] == {"nodeName": "x", "list": [{"nodeTaintsPolicy": "Honor"}]}


def test_an_object_needs_its_kind(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="must be an object with apiVersion and kind"):
        made(tmp_path, "metadata: {}")


@pytest.mark.parametrize("path", OURS, ids=lambda path: path.stem)
def test_each_bundled_template_makes_an_object(path: Path) -> None:
    assert Template(path).object(3, 10, {"podsPerGroup": 3})["kind"]
