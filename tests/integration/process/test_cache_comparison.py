"""A process that has missed an event finds it out on SIGUSR2."""

import asyncio
import json
import signal


async def test_a_lost_deletion_is_found_and_made_up_for(start, sandbox, kubeconfig, live):
    process = await start(
        *(f"--kubeconfig={kubeconfig}", "--secure-port=0", "--leader-elect=false"),
        *("--logging-format=json", "--cache-compare-interval=0s"),
    )
    for name in ("kept", "lost"):
        sandbox.store.create("pods", live.pod(name))
        await live.until(
            lambda name=name: (
                sandbox.store.get("pods", name, "default").object()["status"].get("phase")
                == "Running"
            )
        )
    # No watch reports this.
    del sandbox.store.collection("pods")._objects["default"]["lost"]
    process.send_signal(signal.SIGUSR2)
    dump = []
    async with asyncio.timeout(60):
        while not any(entry.get("queue") == "in flight" for entry in dump):
            dump.append(json.loads(await process.stderr.readline()))
    (corrected,) = [entry for entry in dump if "was corrected" in entry["msg"]]
    assert corrected["structure"] == "store"
    assert corrected["objects"] == ["Pod default/lost does not exist any more"]
    pods = [entry["pods"] for entry in dump if entry["msg"] == "Dump of cached node"]
    assert sorted(pods) == [[], [], ["default/kept"]]
    process.send_signal(signal.SIGTERM)
    assert (await live.ended(process))[0] == 0
