"""Reads the commands of README's blocks, and runs them in order, in a copy of the repository.

A block with other programs than proreus and make is left out: not every machine has a cluster, Go
or a container engine. ``proreus sandbox`` and ``proreus run`` go on until their block ends.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"

LASTING = {"proreus sandbox": "serving ", "proreus run": "Caches are synced"}
"""Commands that do not end, and what they print when they are ready."""
TAKES_LONG = frozenset({"make test"})
_RUN = re.compile(r"(proreus|make (demo|test))\b")
_BLOCK = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_ENOUGH_SECONDS = 120.0


def blocks(text: str) -> Iterator[list[str]]:
    """Yield the commands of each block that can be run with Python, make and git."""
    for language, block in _BLOCK.findall(text):
        if language not in ("", "bash", "sh"):
            continue
        lines = block.replace("\\\n", " ").splitlines()
        commands = [" ".join(line.partition(" #")[0].split()) for line in lines]
        commands = [one for one in commands if one and not one.startswith("#")]
        if commands and all(map(_RUN.match, commands)):
            yield commands


def clone(folder: Path) -> Path:
    """Copy what git tracks, as it is now, into a folder; return that."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True)
    for name in filter(None, listed.stdout.decode().split("\0")):
        source, target = ROOT / name, folder / name
        if source.is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(source.read_bytes())
            # As old as can be: a virtual environment that is there is newer.
            os.utime(target, (0, 0))
    return folder


def run(commands: list[str], folder: Path, run_flags: str = "") -> None:
    """Run the commands of a block; raises ``AssertionError`` for one that fails.

    ``run_flags``: further flags of ``proreus run``.
    """
    path = f"{folder / '.venv' / 'bin'}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path}
    environment.pop("KUBECONFIG", None)
    lasting: list[subprocess.Popen[bytes]] = []
    try:
        for number, command in enumerate(commands):
            ready = LASTING.get(" ".join(command.split()[:2]))
            if ready is None:
                done = subprocess.run(
                    ["bash", "-c", command],
                    cwd=folder,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    capture_output=True,
                    text=True,
                )
                assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
            else:
                if "run" in command.split()[:2]:
                    command = f"{command} {run_flags}"
                log = folder / f".command-{number}.log"
                lasting.append(_start(command, folder, environment, log))
                _wait_for(ready, lasting[-1], command, log)
    finally:
        for process in reversed(lasting):
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(30)


def _start(
    command: str, folder: Path, environment: Mapping[str, str], log: Path
) -> subprocess.Popen[bytes]:
    with log.open("wb") as output:
        return subprocess.Popen(
            ["bash", "-c", command],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )


def _wait_for(ready: str, process: subprocess.Popen[bytes], command: str, log: Path) -> None:
    deadline = time.monotonic() + _ENOUGH_SECONDS
    while ready not in log.read_text():
        running = process.poll() is None and time.monotonic() < deadline
        assert running, f"{command}\n{log.read_text()}"
        time.sleep(0.1)
