"""Every configuration in the pages starts as it is printed, on the embedded cluster."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from proreus.workbench.sandbox import Sandbox

ROOT = Path(__file__).resolve().parents[3]
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md")), *ROOT.glob("examples/**/*.md")]
BLOCK = re.compile(r"^```(python|yaml)([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ENOUGH_SECONDS = 60


class Printed(NamedTuple):
    """A configuration of a page, and the plugins that the same section prints."""

    place: str
    text: str
    plugins: dict[str, str]


def printed(page: Path) -> Iterator[Printed]:
    for section in re.split(r"^(?=## )", page.read_text(), flags=re.MULTILINE):
        blocks = [(kind, name.strip(), text) for kind, name, text in BLOCK.findall(section)]
        plugins = {
            name: text
            for kind, name, text in blocks
            if kind == "python" and name and not name.startswith("test_")
        }
        for kind, _, text in blocks:
            if kind == "yaml" and "kind: KubeSchedulerConfiguration" in text:
                heading = section.partition("\n")[0].strip("# ")
                yield Printed(f"{page.relative_to(ROOT)}, {heading}", text, plugins)


CONFIGURATIONS = [one for page in PAGES for one in printed(page)]


@pytest.fixture
async def folder(tmp_path: Path) -> AsyncIterator[Path]:
    """A folder in which ``proreus sandbox`` runs."""
    async with Sandbox(nodes=3) as sandbox:
        sandbox.write_kubeconfig(tmp_path / "sandbox.kubeconfig")
        yield tmp_path


def test_the_pages_have_configurations() -> None:
    assert len(CONFIGURATIONS) > 25


@pytest.mark.parametrize("one", CONFIGURATIONS, ids=lambda one: one.place)
async def test_a_configuration_starts_as_it_is_printed(one: Printed, folder: Path) -> None:
    (folder / "config.yaml").write_text(one.text)
    for name, text in one.plugins.items():
        (folder / name).write_text(text)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "proreus", "run", "--config=config.yaml", "--secure-port=0"),
        *(("--plugin-dir=.",) if one.plugins else ()),
        cwd=folder,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr is not None
    log = []
    try:
        async with asyncio.timeout(ENOUGH_SECONDS):
            async for line in process.stderr:
                log.append(line.decode())
                if "Caches are synced" in log[-1]:
                    break
        process.terminate()
        _, rest = await process.communicate()
        log += rest.decode().splitlines(keepends=True)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0, "".join(log)
    assert any("Caches are synced" in line for line in log), "".join(log)
    assert [line for line in log if line.startswith("E")] == []
