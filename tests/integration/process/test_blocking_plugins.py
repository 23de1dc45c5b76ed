"""``proreus run`` with plugins that block its event loop."""

import asyncio
import json
import signal

import pytest
import yaml

COMMON = """\
import hashlib
import time

from proreus.framework.plugin import FilterPlugin, PostFilterPlugin, ScorePlugin
from proreus.framework.status import Status


def is_meant(pod):
    return pod.name.startswith("bad")

"""
LOOPS = """
class Blocks(FilterPlugin):
    def filter(self, state, pod, node):
        while is_meant(pod):
            try:
                pass
            except Exception:
                continue
"""
SLEEPS = """
class Blocks(FilterPlugin):
    def filter(self, state, pod, node):
        if is_meant(pod):
            time.sleep(1000)
"""
AWAITS = """
class Blocks(FilterPlugin, PostFilterPlugin):
    def filter(self, state, pod, node):
        return Status.unschedulable("no") if is_meant(pod) else None

    async def post_filter(self, state, pod, verdicts):
        time.sleep(1000)
"""
SLOW = """
class Blocks(ScorePlugin):
    def score(self, state, pod, node):
        if is_meant(pod):
            time.sleep(0.15)
        return 0
"""
COMPUTES_IN_C = """
class Blocks(FilterPlugin):
    def filter(self, state, pod, node):
        if is_meant(pod):
            hashlib.pbkdf2_hmac("sha256", b"", b"", 2**31 - 1)
"""
GOOD = """
class Blocks(FilterPlugin):
    def filter(self, state, pod, node):
        return None
"""


class Plugin:
    """A plugin file, and the flags of a process that uses it."""

    def __init__(self, folder, kubeconfig):
        self.record = folder / "state" / "blocked.json"
        self._kubeconfig = kubeconfig
        self._folder = folder / "plugins"
        self._folder.mkdir()
        self._config = folder / "config.yaml"
        multi_point = {"enabled": [{"name": "Blocks"}]}
        document = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "clientConnection": {"kubeconfig": kubeconfig},
            "leaderElection": {"leaderElect": False},
            "profiles": [{"plugins": {"multiPoint": multi_point}}],
        }
        self._config.write_text(yaml.safe_dump(document))

    def write(self, source):
        (self._folder / "blocks.py").write_text(COMMON + source)

    def flags(self, port=0):
        return (
            f"--config={self._config}",
            f"--plugin-dir={self._folder}",
            f"--blocked-plugins-file={self.record}",
            *("--bind-address=127.0.0.1", f"--secure-port={port}"),
            f"--authentication-kubeconfig={self._kubeconfig}",
            f"--authorization-kubeconfig={self._kubeconfig}",
        )


@pytest.fixture
def plugin(tmp_path, kubeconfig):
    return Plugin(tmp_path, kubeconfig)


def node_of(sandbox, name):
    return sandbox.store.get("pods", name, "default").object()["spec"].get("nodeName")


def lease_holder(sandbox):
    leases = sandbox.store.list("leases.coordination.k8s.io", "kube-system")
    return next((version.object()["spec"]["holderIdentity"] for version in leases), "")


def message_of(sandbox, name):
    conditions = sandbox.store.get("pods", name, "default").object()["status"].get("conditions", ())
    return next((one["message"] for one in conditions if one["type"] == "PodScheduled"), "")


async def test_a_plugin_that_is_slow_at_each_node_fails_its_pod_alone(start, sandbox, plugin, live):
    plugin.write(SLOW)
    process = await start(*plugin.flags())
    sandbox.store.create("pods", live.pod("bad"))
    await live.until(lambda: "it was not called for further nodes" in message_of(sandbox, "bad"))
    sandbox.store.create("pods", live.pod("good"))
    await live.until(lambda: node_of(sandbox, "good"))
    process.send_signal(signal.SIGTERM)
    code, _ = await live.ended(process)
    assert (code, plugin.record.exists()) == (0, False)


async def test_a_second_signal_ends_a_process_in_which_a_plugin_blocks(
    start, sandbox, plugin, live
):
    plugin.write(LOOPS)
    process = await start(*plugin.flags(), "--plugin-blocked-exit-timeout=0s")
    sandbox.store.create("pods", live.pod("bad"))
    await said(process, "A plugin blocks the event loop")
    while process.returncode is None:
        process.send_signal(signal.SIGTERM)
        await asyncio.sleep(0.1)
    assert process.returncode == 1


async def said(process, message):
    """Wait for a line of the log."""
    async with asyncio.timeout(60):
        while message.encode() not in await process.stderr.readline():
            pass


@pytest.mark.parametrize(
    ("source", "point"),
    [(LOOPS, "Filter"), (SLEEPS, "Filter"), (AWAITS, "PostFilter"), (COMPUTES_IN_C, "Filter")],
    ids=["loops", "sleeps", "sleeps where it may await", "computes in C"],
)
async def test_a_plugin_that_blocks_ends_the_process_and_is_left_out_by_the_next(
    start, sandbox, plugin, live, source, point
):
    plugin.write(source)
    limit = "--plugin-blocked-exit-timeout=1s"
    process = await start(*plugin.flags(), limit, "--leader-elect=true")
    await live.until(lambda: lease_holder(sandbox))
    sandbox.store.create("pods", live.pod("bad"))
    code, err = await live.ended(process)
    last = err.splitlines()[-1]
    assert code == 1
    assert lease_holder(sandbox) == ""
    assert "A plugin blocks the event loop; the process ends" in last
    assert f'plugin="Blocks" point="{point}"' in last
    assert "blocks.py:" in last
    [(name, entry)] = json.loads(plugin.record.read_text()).items()
    assert (name, entry["point"]) == ("Blocks", point)

    port = live.port()
    process = await start(*plugin.flags(port), "--plugin-failure-policy=skip")
    await live.until(lambda: node_of(sandbox, "bad"))
    pages = live.Pages(port, sandbox.token)
    await pages.ready()
    body = json.loads((await pages.get("/pluginz"))[1])
    (shown,) = body["plugins"]
    assert shown["skipped"]
    assert f"it blocked the event loop at {point}" in shown["skippedBecause"]
    assert body["blockedPlugins"] == {"file": str(plugin.record), "entries": {"Blocks": entry}}
    _, metrics = await pages.get("/metrics")
    assert 'proreus_plugin_skipped{plugin="Blocks",profile="default-scheduler"} 1' in metrics

    plugin.write(GOOD)
    async with asyncio.timeout(30):
        while json.loads((await pages.get("/pluginz"))[1])["plugins"][0]["skipped"]:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
    process.send_signal(signal.SIGTERM)
    assert (await live.ended(process))[0] == 0
