"""Runs README's commands in a copy of the repository that has no virtual environment yet."""

import tempfile
from pathlib import Path

from readme.commands import README, TAKES_LONG, blocks, clone, run

with tempfile.TemporaryDirectory(prefix="readme-") as folder:
    copy = clone(Path(folder))
    for block in blocks(README.read_text()):
        for one in block:
            print(one, flush=True)
        run([one for one in block if one not in TAKES_LONG], copy)
