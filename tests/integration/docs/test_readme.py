"""README's commands work as they are printed, in their order."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2]))

from readme.commands import README, ROOT, TAKES_LONG, blocks, clone, run

BLOCKS = list(blocks(README.read_text()))


def test_blocks_with_other_programs_are_left_out() -> None:
    text = "```\nmake demo    # watch\n```\n```\nkubectl get pods\nproreus run\n```\n"
    text += "```yaml\na: b\n```\n```\nproreus run \\\n    --v 2\n```\n"
    assert list(blocks(text)) == [
        ["make demo"],
        ["proreus run --v 2"],
    ]


def test_the_first_commands_are_there() -> None:
    commands = [one for block in BLOCKS for one in block]
    assert commands[:2] == ["make demo", "make test"]
    assert len(commands) >= 8


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the repository with the virtual environment of this one."""
    folder = clone(tmp_path_factory.mktemp("proreus"))
    (folder / ".venv").symlink_to(ROOT / ".venv")
    return folder


@pytest.mark.skipif(not (ROOT / ".venv" / ".installed").exists(), reason="made by make")
@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block[0])
def test_the_commands_of_a_block_work(block: list[str], copy: Path) -> None:
    # Without the port: another test may use it.
    run([one for one in block if one not in TAKES_LONG], copy, "--secure-port=0")
