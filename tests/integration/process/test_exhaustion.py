"""``proreus run`` where the system has nothing left to give, and then has again."""

import asyncio
import os
import resource
import signal

PLUGIN = """\
from proreus.framework.plugin import FilterPlugin

class Own(FilterPlugin):
    def filter(self, state, pod, node):
        return None
"""
SETTLED_SECONDS = 3
"""For what a process opens in its first seconds."""
EXHAUSTED_SECONDS = 8
"""Longer than the time between two looks at the files."""


async def test_no_file_descriptor_is_left_for_a_while(start, sandbox, kubeconfig, live, tmp_path):
    port = live.port()
    folder = tmp_path / "plugins"
    folder.mkdir()
    (folder / "own.py").write_text(PLUGIN)
    process = await start(
        *(f"--kubeconfig={kubeconfig}", f"--secure-port={port}", "--bind-address=127.0.0.1"),
        *(f"--authentication-kubeconfig={kubeconfig}", f"--authorization-kubeconfig={kubeconfig}"),
        *("--leader-elect=false", f"--plugin-dir={folder}", "-v=2"),
    )
    pages = live.Pages(port, sandbox.token)
    await pages.ready()
    sandbox.store.create("pods", live.pod("before"))
    await live.until(lambda: node_of(sandbox, "before"))
    await asyncio.sleep(SETTLED_SECONDS)

    soft, hard = resource.prlimit(process.pid, resource.RLIMIT_NOFILE)
    used = max(map(int, os.listdir(f"/proc/{process.pid}/fd"))) + 1
    resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (used, hard))
    sandbox.store.create("pods", live.pod("meanwhile"))
    process.send_signal(signal.SIGHUP)
    await asyncio.sleep(EXHAUSTED_SECONDS)
    resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (soft, hard))

    await live.until(lambda: node_of(sandbox, "meanwhile"))
    assert (await pages.get("/healthz"))[0] == 200
    (folder / "own.py").write_text(f"{PLUGIN}\n# another version\n")
    process.send_signal(signal.SIGHUP)
    async with asyncio.timeout(30):
        while '"result":"success"' not in (await pages.get("/configz"))[1].replace(" ", ""):  # noqa: ASYNC110
            await asyncio.sleep(0.1)
    process.send_signal(signal.SIGTERM)
    code, err = await live.ended(process)
    assert code == 0, err
    assert "ExceptionGroup" not in err


def node_of(sandbox, name):
    return sandbox.store.get("pods", name, "default").object()["spec"].get("nodeName")
