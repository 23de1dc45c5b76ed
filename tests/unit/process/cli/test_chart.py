from __future__ import annotations

import os
from pathlib import Path

import pytest

from proreus.process.cli import main

CHART = Path(__file__).resolve().parents[4] / "deploy" / "chart"


def run(*arguments: str) -> object:
    with pytest.raises(SystemExit) as ended:
        main(["chart", *arguments])
    return ended.value.code


def names(folder: Path) -> set[str]:
    walk = os.walk(folder, followlinks=True)
    return {os.path.relpath(Path(at, name), folder) for at, _, found in walk for name in found}


def test_writes_the_chart_with_the_files_behind_links(tmp_path: Path) -> None:
    assert run("--dir", str(tmp_path / "chart")) == 0
    assert names(tmp_path / "chart") == names(CHART)
    assert not any(path.is_symlink() for path in (tmp_path / "chart").rglob("*"))


def test_does_not_write_into_a_folder_in_use(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    assert run("--dir", str(tmp_path)) == 1
    assert "exists and is not empty" in capsys.readouterr().err
