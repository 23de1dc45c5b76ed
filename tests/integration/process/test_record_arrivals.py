"""``proreus run --record-arrivals`` as a process, and the replay of what it wrote."""

import asyncio
import json
import signal
import sys

import pytest

from proreus.insight.snapshots.recording import read_recording
from proreus.objects.kinds import NODES
from proreus.workbench.simulation.replay import Recording

REPLAY = (sys.executable, "-m", "proreus", "simulate", "-o", "json", "--replay")


async def replay(path):
    process = await asyncio.create_subprocess_exec(
        *REPLAY, str(path), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    (found,) = json.loads(out)["replays"]
    return found


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGKILL])
async def test_a_live_process_is_recorded_and_replayed(
    start, sandbox, kubeconfig, live, tmp_path, ending
):
    path = tmp_path / "recording.jsonl.gz"
    process = await start(
        *(f"--kubeconfig={kubeconfig}", "--secure-port=0", "--leader-elect=false"),
        f"--record-arrivals={path}",
    )
    await live.until(lambda: path.exists() and path.stat().st_size > 0)
    names = [f"p-{number}" for number in range(8)]
    for name in names:
        sandbox.store.create("pods", live.pod(name))
    bound = {
        name: lambda name=name: (
            sandbox.store.get("pods", name, "default").object()["spec"].get("nodeName")
        )
        for name in names
    }
    for is_bound in bound.values():
        await live.until(is_bound)
    nodes = {name: is_bound() for name, is_bound in bound.items()}
    sandbox.store.delete("pods", "p-0", "default", grace_seconds=0)

    def recorded():
        events = [event for _, event in read_recording(path)[1]]
        deleted = [one.key for one in events if one.type == "DELETED" and one.kind == "Pod"]
        return deleted == ["default/p-0"]

    await live.until(recorded)
    process.send_signal(ending)
    await live.ended(process)
    recording = Recording(path)
    assert len(recording.start.of(NODES)) == 3
    assert recording.node_of.keys() == recording.bound_at.keys()
    assert sorted(recording.node_of.values()) == sorted(nodes.values())
    found = await replay(path)
    assert (found["arrivals"], found["scheduled"]) == (8, 8)
    assert found["recorded"]["pods"] == 8


async def test_a_file_that_cannot_be_written_does_not_keep_it_from_scheduling(
    start, sandbox, kubeconfig, live
):
    process = await start(
        *(f"--kubeconfig={kubeconfig}", "--secure-port=0", "--leader-elect=false"),
        "--record-arrivals=/nowhere/recording",
    )
    sandbox.store.create("pods", live.pod("a"))
    await live.until(
        lambda: sandbox.store.get("pods", "a", "default").object()["spec"].get("nodeName")
    )
    process.send_signal(signal.SIGTERM)
    code, err = await live.ended(process)
    assert code == 0
    assert "Recording of arrivals ended" in err
