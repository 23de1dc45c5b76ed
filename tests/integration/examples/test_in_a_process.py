"""Every example as its README has it: proreus as a process, on the embedded cluster."""

from __future__ import annotations

import asyncio
import shutil
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web

from proreus.workbench.sandbox import Sandbox

HERE = Path(__file__).resolve().parents[3] / "examples"
NOWHERE = frozenset({""})

EXPECTED: dict[str, dict[str, set[str] | frozenset[str]]] = {
    "avoid-gpu-nodes": {"web": {"plain"}, "train": {"gpu-0", "large"}},
    "low-cpu": {"web-0": {"calm"}, "web-1": {"calm"}},
    "gpu-idle": {"train": {"gpu-1"}},
    "business-weight": {"checkout": {"gold-0"}, "monthly": {"bronze-0"}},
    "partition": {"notebook": {"node-1"}, "simulation": {"node-2", "node-3"}, "misspelt": NOWHERE},
    "delay-scheduling": {"analysis": {"data"}, "hopeful": {"other"}},
    "job-barrier": {
        **{name: {"a", "b"} for name in ("train-master", "train-0", "train-1")},
        "lonely-master": NOWHERE,
    },
    "approval": {"plain": {"node-1"}, "approved": {"node-1"}, "asking": NOWHERE},
    "at-most": {"web-0": {"a-1", "a-2", "a-3", "b-1"}},
    "energy": {"web-0": {"old-awake"}, "web-1": {"old-awake"}, "web-2": {"new-asleep"}},
    "reserve-and-notify": {"plain": {"workstation"}},
}

MORE_PATIENCE = {"delay-scheduling": {"opportunities": 6}}
"""Arguments for machines on which a pod may end a few seconds late."""


def test_every_example_is_tried() -> None:
    folders = {path.parent.name for path in HERE.glob("*/plugins")}
    assert folders == EXPECTED.keys()
    for folder in folders:
        assert {path.name for path in (HERE / folder).iterdir()} >= {"README.md", "config.yaml"}


@pytest.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    async with Sandbox() as made:
        yield made


class Running:
    """A scheduler process with one example's plugin."""

    def __init__(self, example: str, sandbox: Sandbox, folder: Path) -> None:
        self.example = HERE / example
        self.sandbox = sandbox
        self.log = ""
        self._folder = folder
        self.args: dict[str, Any] = {}
        self.plugin = f"--plugin-dir={self.example / 'plugins'}"

    async def __aenter__(self) -> Running:
        config = yaml.safe_load((self.example / "config.yaml").read_text())
        kubeconfig = self.sandbox.write_kubeconfig(self._folder / "sandbox.kubeconfig")
        config["clientConnection"]["kubeconfig"] = str(kubeconfig)
        config["profiles"][0]["pluginConfig"][-1]["args"] |= self.args
        file = self._folder / "config.yaml"
        file.write_text(yaml.safe_dump(config))
        cluster = list(yaml.safe_load_all((self.example / "cluster.yaml").read_text()))
        for node in (obj for obj in cluster if obj["kind"] == "Node"):
            self.sandbox.store.create("nodes", node)
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "proreus", "run", f"--config={file}", "--secure-port=0"),
            self.plugin,
            stderr=asyncio.subprocess.PIPE,
        )
        self._reading = asyncio.ensure_future(self._read())
        await self.until(lambda: "Caches are synced" in self.log)
        for pod in (obj for obj in cluster if obj["kind"] == "Pod"):
            self.sandbox.store.create("pods", pod, "default")
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._process.returncode is None:
            self._process.terminate()
        await asyncio.wait_for(self._process.wait(), 30)
        await self._reading

    async def _read(self) -> None:
        assert self._process.stderr is not None
        async for line in self._process.stderr:
            self.log += line.decode()

    async def until(self, condition: Any) -> None:
        """Poll until a condition holds: another process is at work."""
        for _ in range(1500):
            if condition():
                return
            assert self._process.returncode is None, self.log
            await asyncio.sleep(0.02)
        raise AssertionError(f"it did not happen; nodes: {self.nodes()}\n{self.log}")

    def nodes(self) -> dict[str, str]:
        pods = self.sandbox.store.list("pods", "default")
        return {pod.name: pod.object()["spec"].get("nodeName", "") for pod in pods}


@pytest.mark.parametrize("example", sorted(EXPECTED.keys() - {"reserve-and-notify"}))
async def test_its_pods_go_where_its_readme_says(example, sandbox, tmp_path) -> None:
    running = Running(example, sandbox, tmp_path)
    running.args = MORE_PATIENCE.get(example, {})
    async with running:
        wanted = {name: nodes for name, nodes in EXPECTED[example].items() if nodes != NOWHERE}
        await running.until(lambda: all(running.nodes()[name] for name in wanted))
        nodes = running.nodes()
    assert {name: nodes[name] in allowed for name, allowed in EXPECTED[example].items()} == (
        dict.fromkeys(EXPECTED[example], True)
    ), nodes
    assert "Traceback" not in running.log


# ---- plugins in processes of their own ---------------------------------------------------------


@pytest.fixture
async def serve() -> AsyncIterator[Any]:
    """Return a function that starts a plugin's program; it returns process and address."""
    started: list[asyncio.subprocess.Process] = []

    async def begin(*program: Any) -> tuple[asyncio.subprocess.Process, str]:
        arguments = [str(part) for part in (*program, 0)]
        process = await asyncio.create_subprocess_exec(*arguments, stdout=asyncio.subprocess.PIPE)
        started.append(process)
        assert process.stdout is not None
        return process, (await process.stdout.readline()).decode().split()[-1]

    yield begin
    for process in started:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def test_python_keeps_off_hot_racks_until_it_ends(serve, sandbox, tmp_path):
    example = "out-of-process-python"
    process, address = await serve(sys.executable, HERE / example / "plugin.py")
    running = Running(example, sandbox, tmp_path)
    running.plugin = f"--plugin-endpoint={address}"
    async with running:
        await running.until(lambda: running.nodes()["web"] and events_of(sandbox, "large"))
        assert (running.nodes()["web"], running.nodes()["large"]) == ("cool", "")
        notes = events_of(sandbox, "large")
        assert "1 node(s) are in a hot rack, 2 Insufficient cpu" in notes[0]
        process.kill()
        await running.until(lambda: running.nodes()["large"])
    assert running.nodes()["large"] == "hot"
    assert "Traceback" not in running.log


async def test_node_keeps_quiet_zones_quiet(serve, sandbox, tmp_path):
    example, node = "out-of-process-node", shutil.which("node")
    if node is None:
        pytest.skip("Node.js is not installed: the example in JavaScript is not tested")
    _, address = await serve(node, HERE / example / "plugin.js")
    running = Running(example, sandbox, tmp_path)
    running.plugin = f"--plugin-endpoint={address}"
    async with running:
        await running.until(lambda: all(running.nodes().values()))
        nodes = sorted(running.nodes().values())
    assert nodes == ["a"] * 4 + ["b"] * 2
    assert "Traceback" not in running.log


def events_of(sandbox: Sandbox, pod: str) -> list[str]:
    events = [event.object() for event in sandbox.store.list("events", "default")]
    return [event["note"] for event in events if event["regarding"]["name"] == pod]


# ---- an external service ----------------------------------------------------------------------


@pytest.fixture
async def licences() -> AsyncIterator[Any]:
    """The licence server of reserve-and-notify, with its ``url``."""
    code: dict[str, Any] = {"__name__": "licence_server"}
    exec((HERE / "reserve-and-notify" / "licence_server.py").read_text(), code)
    server = code["LicenceServer"]({"cad": 2})
    runner = web.AppRunner(server.app(), shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    server.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield server
    await runner.cleanup()


async def test_two_seats_are_enough_for_two_pods(licences, sandbox, tmp_path) -> None:
    def bound() -> set[str]:
        return {name for name, node in running.nodes().items() if node}

    running = Running("reserve-and-notify", sandbox, tmp_path)
    running.args = {"url": licences.url}
    async with running:
        await running.until(lambda: len(bound()) == 3 and len(licences.notified) == 2)
        assert "plain" in bound()
        first = next(name for name in sorted(bound()) if name != "plain")
        sandbox.store.delete("pods", first, "default", grace_seconds=0)
        await running.until(lambda: len(bound()) == 3 and len(licences.notified) == 3)
    assert "Traceback" not in running.log
