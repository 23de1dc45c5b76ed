"""The command of this README, as a reader would type it."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
(COMMAND,) = re.findall(r"^proreus ([^|\n]*)$", (HERE / "README.md").read_text(), re.MULTILINE)


def test_each_case_has_its_answer() -> None:
    command = [sys.executable, "-m", "proreus", *shlex.split(COMMAND)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=HERE.parents[1])
    assert (done.returncode, done.stderr) == (0, "")
    answers: dict[str, Any] = {}
    for line in done.stdout.splitlines():
        answer = json.loads(line)
        answers[answer["id"]] = answer["expect"]
    assert answers["fits"]["feasible"] == ["b"]
    assert answers["does-not-fit"]["message"].startswith("0/3 nodes are available: ")
    assert answers["bin-packing"]["total"]["b"] > answers["bin-packing"]["total"]["a"]
    assert "2 cores" in answers["a-typing-error"]["error"]
