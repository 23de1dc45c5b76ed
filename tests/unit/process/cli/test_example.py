from __future__ import annotations

from pathlib import Path

import pytest

from proreus.process.cli import main
from proreus.process.cli.example import example_folders, summary

EXAMPLES = Path(__file__).resolve().parents[4] / "examples"


def run(*arguments: str) -> object:
    with pytest.raises(SystemExit) as ended:
        main(["example", *arguments])
    return ended.value.code


def test_lists_every_example_with_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert run() == 0
    lines = capsys.readouterr().out.splitlines()
    folders = {path.name for path in EXAMPLES.iterdir() if path.is_dir() and path.name[0] != "_"}
    assert {line.split()[0] for line in lines} == folders
    assert all(line[-1] in ".?:" for line in lines)


@pytest.mark.parametrize("name", example_folders())
def test_a_summary_has_no_markdown(name: str) -> None:
    assert not set("[]`") & set(summary(example_folders()[name]))


def test_writes_an_example_that_its_readme_finds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run("low-cpu") == 0
    written = {str(file) for file in Path().rglob("*") if file.is_file()}
    assert written == {
        "examples/low-cpu/README.md",
        "examples/low-cpu/cluster.yaml",
        "examples/low-cpu/config.yaml",
        "examples/low-cpu/plugins/low_cpu.py",
    }
    assert "--config examples/low-cpu/config.yaml" in Path("examples/low-cpu/README.md").read_text()
    assert "next: read examples/low-cpu/README.md" in capsys.readouterr().out


def test_does_not_write_into_a_folder_in_use(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("partition", "--dir", str(tmp_path)) == 0
    assert run("partition", "--dir", str(tmp_path)) == 1
    assert "exists and is not empty" in capsys.readouterr().err


def test_refuses_an_unknown_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("low_cpu") == 2
    said = capsys.readouterr().err
    assert "low_cpu: did you mean low-cpu? choose from " in said
    assert "avoid-gpu-nodes, " in said
