from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from proreus.process.cli import main
from proreus.process.cli.crds import definition_files

DEFINITIONS = Path(__file__).resolve().parents[4] / "deploy" / "crds"


def run(*arguments: str) -> object:
    with pytest.raises(SystemExit) as ended:
        main(["crds", *arguments])
    return ended.value.code


def test_lists_each_definition_of_deploy_with_kind_and_group(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run() == 0
    lines = capsys.readouterr().out.splitlines()
    resources = yaml.safe_load((DEFINITIONS / "kustomization.yaml").read_text())["resources"]
    assert {line.split()[0] for line in lines} == {Path(name).stem for name in resources}
    assert ["elasticquota", "ElasticQuota,", "scheduling.x-k8s.io"] in [
        line.split() for line in lines
    ]


def test_prints_the_named_definitions_as_one_stream(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("podgroup", "elasticquota") == 0
    documents = list(yaml.safe_load_all(capsys.readouterr().out))
    assert [one["spec"]["names"]["kind"] for one in documents] == ["PodGroup", "ElasticQuota"]


def test_prints_all_definitions(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--all") == 0
    documents = list(yaml.safe_load_all(capsys.readouterr().out))
    assert {one["kind"] for one in documents} == {"CustomResourceDefinition"}
    assert len(documents) == len(definition_files())


def test_writes_files_into_a_folder(tmp_path: Path) -> None:
    assert run("podgroup", "--dir", str(tmp_path / "one")) == 0
    assert run("--dir", str(tmp_path / "all")) == 0
    [only] = (tmp_path / "one").iterdir()
    assert only.read_bytes() == (DEFINITIONS / "podgroup.yaml").read_bytes()
    assert len(list((tmp_path / "all").iterdir())) == len(definition_files())


def test_refuses_an_unknown_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("podgroups") == 2
    assert (
        "podgroups: did you mean podgroup? choose from appgroup, device," in capsys.readouterr().err
    )
