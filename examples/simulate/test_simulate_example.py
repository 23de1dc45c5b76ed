"""The commands of this README, as a reader would type them."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
COMMANDS = re.findall(r"^proreus (.*)$", (HERE / "README.md").read_text(), flags=re.MULTILINE)
SAID = (
    "4 of 4 pods placed",
    "4 more pods like shop/checkout fit",
    "6 of 6 pods placed, 1 added nodes",
    "3 of 3 pods placed, 3 moved",
    "most-allocated",
)


@pytest.mark.parametrize(("command", "said"), list(zip(COMMANDS, SAID, strict=True)))
def test_a_command_of_the_readme(command: str, said: str) -> None:
    arguments = [sys.executable, "-m", "proreus", *shlex.split(command)]
    done = subprocess.run(arguments, capture_output=True, text=True, cwd=HERE.parents[1])
    assert done.returncode == 0, done.stderr
    assert said in done.stdout
