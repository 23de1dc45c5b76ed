"""What is checked of the list of packages that ``make sbom`` writes."""

from __future__ import annotations

import copy
import importlib.util
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
_spec = importlib.util.spec_from_file_location("sbom", ROOT / "tests" / "lint" / "sbom.py")
assert _spec is not None
assert _spec.loader is not None
sbom = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(sbom)

Bom = dict[str, Any]


@pytest.fixture
def complete() -> Bom:
    locked = re.findall(r"^(\S+)==([^\s;]+)", sbom.LOCK.read_text(), re.MULTILINE)
    return {
        "specVersion": "1.6",
        "metadata": {"component": {"name": "proreus", "version": "1"}},
        "components": [
            {"name": name.replace("-", "_"), "version": version, "licenses": ["MIT"]}
            for name, version in locked
        ],
    }


def checked(bom: Bom, folder: Path) -> int:
    (folder / "bom.json").write_text(json.dumps(bom))
    code: int = sbom.main(str(folder / "bom.json"))
    return code


def test_a_list_of_all_that_is_locked_passes(complete: Bom, tmp_path: Path) -> None:
    assert len(complete["components"]) > 20
    assert checked(complete, tmp_path) == 0


def test_names_missing_added_older_unlicensed_and_local_packages(
    complete: Bom, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    numpy = next(one for one in complete["components"] if one["name"] == "numpy")
    changes: dict[str, tuple[Callable[[Bom], object], str]] = {
        "missing": (lambda bom: bom["components"].pop(0), "is locked only"),
        "added": (
            lambda bom: bom["components"].append({**numpy, "name": "pip"}),
            f"pip=={numpy['version']} is listed only",
        ),
        "older": (
            lambda bom: bom["components"].__setitem__(0, {**bom["components"][0], "version": "0"}),
            "==0 is listed only",
        ),
        "unlicensed": (
            lambda bom: bom["components"][0].pop("licenses"),
            f"without a licence: {complete['components'][0]['name']}",
        ),
        "local": (
            lambda bom: bom["components"][0].update(url="file:///home/x.whl"),
            "file:///home/x.whl is a file of this machine",
        ),
    }
    for change, text in changes.values():
        bom = copy.deepcopy(complete)
        change(bom)
        assert checked(bom, tmp_path) == 1
        assert text in capsys.readouterr().out
