"""Printed output of commands is what they print, for the cluster that the page names."""

from __future__ import annotations

import asyncio
import io
import re
from pathlib import Path

import pytest
import yaml

from proreus.process.cli.console import new_console
from proreus.process.cli.explain.tables import tables_of
from proreus.workbench.sandbox.cluster import make_nodes
from unit.insight.explain.conftest import World

ROOT = Path(__file__).resolve().parents[3]
WIDTH = 110


@pytest.fixture(scope="module")
def output() -> list[str]:
    """The lines of ``proreus explain pod train``, as docs/explain.md tries it."""
    pods = list(yaml.safe_load_all((ROOT / "examples" / "explain" / "pods.yaml").read_text()))
    for pod in pods:
        pod["spec"]["schedulerName"] = "default-scheduler"  # the apiserver's default
    with asyncio.Runner() as runner:
        world = World(runner)
        world.add(*make_nodes(10))
        world.schedule(*pods)
        explained = world.explain("train")
    console = new_console(file=io.StringIO(), width=WIDTH)
    for part in tables_of(explained):
        console.print(part)
    assert isinstance(console.file, io.StringIO)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


@pytest.mark.parametrize("page", ["README.md", "README.zh.md"])
def test_the_sample_of_the_readme_is_what_explain_prints(page: str, output: list[str]) -> None:
    text = (ROOT / page).read_text()
    [sample] = re.findall(r"^```\n\$ proreus explain pod train.*?\n(.*?)^```$", text, re.M | re.S)
    left = iter(output)
    for line in sample.splitlines():
        # A line of three dots stands for those that are left out.
        assert line in ("", "…") or line in left, line
