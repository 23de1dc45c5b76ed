"""The example plugins as processes, started and configured as in their READMEs."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[3] / "examples"
PYTHON, NODE = EXAMPLES / "out-of-process-python", EXAMPLES / "out-of-process-node"
ZONE = "topology.kubernetes.io/zone"


@pytest.fixture
def run() -> Iterator:
    """Return a function that starts a program and returns the address that it prints."""
    started: list[subprocess.Popen[str]] = []

    def begin(*command: str | Path) -> str:
        arguments = [str(part) for part in command]
        started.append(subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True))
        return started[-1].stdout.readline().split()[-1]

    begin.started = started
    yield begin
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
def node() -> str:
    found = shutil.which("node")
    if found is None:
        pytest.skip("Node.js is not installed: the example in JavaScript is not tested")
    return found


def rack(name):
    return {"example.com/rack": name}


async def test_python_leaves_hot_racks_alone_and_prefers_free_cpu(run, make_cluster):
    address = run(sys.executable, PYTHON / "plugin.py", "0")
    config = (PYTHON / "config.yaml").read_text()
    world = await make_cluster(address, nodes=0, config=config)
    world.add_nodes("hot", cpu="64", labels=rack("r1"))
    world.add_nodes("busy", "free", labels=rack("r3"))
    world.add_pod("there", cpu="3", node_name="busy")
    assert await world.place("web", cpu="1") == "free"
    assert await world.place("big", cpu="8") == ""
    assert world.condition("big").message.startswith(
        "0/3 nodes are available: 1 node(s) are in a hot rack, 2 Insufficient cpu."
    )


async def test_python_gets_a_whole_snapshot_after_a_restart(run, make_cluster, tmp_path):
    program = sys.executable, PYTHON / "plugin.py", tmp_path / "plugin.sock"
    config = (PYTHON / "config.yaml").read_text()
    world = await make_cluster(run(*program), nodes=0, config=config)
    world.add_nodes("hot", labels=rack("r2"))
    world.add_nodes("cool", labels=rack("r3"))
    assert await world.place("a") == "cool"
    run.started[0].kill()
    run.started[0].wait()
    assert run(*program) == f"unix://{tmp_path}/plugin.sock"
    assert await world.place("b", cpu="100m") == "cool"
    assert not world.endpoint.is_open


async def test_node_keeps_quiet_zones_quiet(run, make_cluster, node):
    address = run(node, NODE / "plugin.js", "0")
    config = (NODE / "config.yaml").read_text()
    world = await make_cluster(address, nodes=0, config=config)
    world.add_nodes("a", labels={ZONE: "zone-a"})
    world.add_nodes("b", labels={ZONE: "zone-b"})
    placed = [await world.place(f"p{number}", cpu="10m") for number in range(6)]
    assert (placed.count("a"), placed.count("b")) == (4, 2)
    assert await world.place("picky", node_selector={ZONE: "zone-b"}) == ""
    assert "1 node(s) are quiet enough only as they are" in world.condition("picky").message


async def test_node_gets_a_whole_snapshot_after_a_restart(run, make_cluster, node, tmp_path):
    program = node, NODE / "plugin.js", tmp_path / "plugin.sock"
    world = await make_cluster(run(*program), config=(NODE / "config.yaml").read_text())
    assert await world.place("a") != ""
    run.started[0].kill()
    run.started[0].wait()
    assert run(*program) == f"unix://{tmp_path}/plugin.sock"
    assert await world.place("b") != ""
    assert not world.endpoint.is_open


@pytest.mark.parametrize(("folder", "name"), [(PYTHON, "CoolRacks"), (NODE, "QuietZones")])
def test_proreus_plugins_lists_them(folder, name, run, request):
    if folder == PYTHON:
        address = run(sys.executable, PYTHON / "plugin.py", "0")
    else:
        address = run(request.getfixturevalue("node"), NODE / "plugin.js", "0")
    command = [sys.executable, "-m", "proreus", "plugins", "--plugin-endpoint", address]
    done = subprocess.run([*command, "-o", "json"], capture_output=True, text=True, check=True)
    (listed,) = (one for one in json.loads(done.stdout)["plugins"] if one["name"] == name)
    assert listed["points"] == ["filter", "score"]
    assert listed["origin"]["kind"] == "endpoint"
    assert listed["origin"]["file"] == address
