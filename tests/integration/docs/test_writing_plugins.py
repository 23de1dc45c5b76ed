"""docs/writing-plugins.md, executed: commands, files and output are those of the page."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from proreus.base.errors import ConfigError
from proreus.framework import FilterPlugin
from proreus.testing import Harness

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "writing-plugins.md"
SECONDS = 240
PORT = "8001"
AGREE = """
from proreus.testing.agreement import agree


def test_both_forms_agree() -> None:
    agree(FastGpuHeadroom, {"resource": "example.com/gpu"})
"""


class Fence(NamedTuple):
    """A fenced block: ``kind`` is its language, ``info`` what follows it."""

    kind: str
    info: str
    text: str


def fences(page: Path = PAGE) -> list[Fence]:
    found = re.findall(r"^```(\w+)[ ]?(.*)\n((?:.*\n)*?)```$", page.read_text(), re.MULTILINE)
    return [Fence(*one) for one in found]


class Reader:
    """Runs what the page says, in shells with a home directory of their own."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self.cwd = home
        self._kept = socket.socket()
        self._kept.bind(("127.0.0.1", 0))
        self._port = str(self._kept.getsockname()[1])
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        self._environ = {**os.environ, "HOME": str(home), "PATH": path, "NO_COLOR": "1"}
        self._environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
        self._running: list[subprocess.Popen[bytes]] = []
        self.said = ""

    def run(self, script: str) -> None:
        """Run commands; remember their working directory and their output."""
        where = self._home / ".where"
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", f"{self._own(script)}\npwd > {where}"],
            cwd=self.cwd,
            env=self._environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=SECONDS,
        )
        assert done.returncode == 0, f"{script}\n{done.stdout}\n{self._logs()}"
        self.cwd, self.said = Path(where.read_text().strip()), done.stdout

    def start(self, script: str, until: str) -> None:
        """Start commands in the background; return once their output has a given word."""
        if self._port in self._own(script):
            self._kept.close()  # kept until now so that no other process takes the port
        log = self._home / f"{len(self._running)}.log"
        with log.open("wb") as file:
            process = subprocess.Popen(
                ["bash", "-c", f"exec {self._own(script)}"],
                cwd=self.cwd,
                env=self._environ,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._running.append(process)
        deadline = time.monotonic() + SECONDS
        while until not in log.read_text():
            assert process.poll() is None, f"{script} ended\n{self._logs()}"
            assert time.monotonic() < deadline, f"{script} never said {until!r}\n{self._logs()}"
            time.sleep(0.05)

    def write(self, name: str, text: str) -> None:
        (self.cwd / name).write_text(text)

    def close(self) -> None:
        self._kept.close()
        for process in self._running:
            process.send_signal(signal.SIGTERM)
        for process in self._running:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _own(self, script: str) -> str:
        return script.replace(PORT, self._port)

    def _logs(self) -> str:
        return "\n".join(log.read_text() for log in sorted(self._home.glob("*.log")))


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    one = Reader(tmp_path)
    yield one
    one.close()


@pytest.mark.skipif(not shutil.which("curl"), reason="the page posts a pod with curl")
def test_from_nothing_to_a_pod_that_the_plugin_placed(reader: Reader) -> None:
    done = []
    for fence in fences():
        match fence.kind, fence.info.split(" until="):
            case "sh", ["setup"]:
                continue
            case "sh", [""]:
                reader.run(fence.text)
            case "sh", ["background", until]:
                reader.start(fence.text, until)
            case "text", ["output"]:
                assert reader.said.endswith(fence.text), reader.said
            case (("python" | "yaml"), [name]) if "." in name:
                reader.write(name, fence.text)
            case "python", ["over columns"]:
                reader.write("tests/test_over_columns.py", f"{fence.text}\n{AGREE}")
                reader.run("pytest -q tests/test_over_columns.py")
            case "python", ["arguments"]:
                continue
            case _:
                raise AssertionError(f"nobody knows what to do with {fence}")
        done.append(f"{fence.kind} {fence.info}")

    assert done.count("sh ") == 3
    assert done.count("text output") == 1


def test_the_setup_is_a_target_of_the_makefile() -> None:
    (setup,) = [fence for fence in fences() if fence.info == "setup"]
    target, activate = setup.text.splitlines()

    done = subprocess.run(
        [*target.split(), "--dry-run"], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert activate == ". .venv/bin/activate"


def test_the_arguments_are_checked_as_printed() -> None:
    (fence,) = [fence for fence in fences() if fence.info == "arguments"]
    namespace: dict[str, object] = {}
    exec(fence.text, namespace)
    filter_ = {"filter": lambda self, state, pod, node: None}
    plugin = type("Percent", (FilterPlugin,), {"Args": namespace["Args"], **filter_})

    Harness([plugin], args={"Percent": {"lowPercent": 1, "highPercent": 2}})
    with pytest.raises(ConfigError, match=r"lowPercent: Invalid value: 90: must be of 0\.\.100"):
        Harness([plugin], args={"Percent": {"lowPercent": 90}})
