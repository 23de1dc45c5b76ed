"""``proreus run`` and its Lease while its event loop is blocked, or a cycle is stuck."""

import asyncio
import json
import shutil
import signal

import pytest
import yaml

from proreus.workbench.sandbox.reviews import Users

PLUGINS = """\
import asyncio
import os
import time

from proreus.framework.plugin import FilterPlugin, PermitPlugin, PostFilterPlugin, PreBindPlugin
from proreus.framework.status import Status


class Computes(PermitPlugin):
    def permit(self, state, pod, node_name):
        ends = time.monotonic() + 7
        while time.monotonic() < ends:
            pass


class Stuck(PermitPlugin):
    def permit(self, state, pod, node_name):
        while True:
            time.sleep(1)


class Waits(FilterPlugin, PostFilterPlugin):
    def filter(self, state, pod, node):
        return Status.unschedulable("no")

    async def post_filter(self, state, pod, verdicts):
        await asyncio.Event().wait()


class Hangs(PreBindPlugin):
    async def pre_bind(self, state, pod, node_name):
        await asyncio.sleep(45)


class Stops(PreBindPlugin):
    async def pre_bind(self, state, pod, node_name):
        os.kill(os.getpid(), 19)
"""
LEASE = {
    "leaderElect": True,
    "leaseDuration": "4s",
    "renewDeadline": "2s",
    "retryPeriod": "500ms",
    "resourceName": "mine",
}


@pytest.fixture
def flags(tmp_path, kubeconfig):
    """Return a function that writes a configuration with plugins, and returns all flags."""
    folder = tmp_path / "plugins"
    folder.mkdir()
    (folder / "a.py").write_text(PLUGINS)

    def configure(*enabled):
        path = tmp_path / f"{''.join(enabled) or 'none'}.yaml"
        multi_point = {"enabled": [{"name": name} for name in enabled]}
        document = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "clientConnection": {"kubeconfig": kubeconfig},
            "leaderElection": LEASE,
            "profiles": [{"plugins": {"multiPoint": multi_point}}],
        }
        path.write_text(yaml.safe_dump(document))
        return f"--config={path}", f"--plugin-dir={folder}", "--secure-port=0", "-v=2"

    return configure


def lease(sandbox):
    """Return the Lease's spec, {} before there is one."""
    leases = sandbox.store.list("leases.coordination.k8s.io", "kube-system")
    return next((version.object()["spec"] for version in leases), {})


def node_of(sandbox, name):
    return sandbox.store.get("pods", name, "default").object()["spec"].get("nodeName")


async def test_a_long_cycle_keeps_the_lease(start, sandbox, flags, live):
    first = await start(*flags("Computes"), "--plugin-blocked-exit-timeout=0s")
    await live.until(lambda: lease(sandbox).get("holderIdentity"))
    holder = lease(sandbox)["holderIdentity"]
    second = await start(*flags())
    async with asyncio.timeout(60):
        while b"Caches are synced" not in await second.stderr.readline():
            pass
    sandbox.store.create("pods", live.pod("a"))
    await live.until(lambda: node_of(sandbox, "a"))
    assert lease(sandbox)["holderIdentity"] == holder
    assert lease(sandbox)["leaseTransitions"] == 0
    second.send_signal(signal.SIGTERM)
    assert (await live.ended(second))[0] == 0
    first.send_signal(signal.SIGTERM)
    code, err = await live.ended(first)
    assert (code, "Traceback" in err) == (0, False)
    # Each request starts the plugin, and the release has three seconds in all.
    assert not lease(sandbox)["holderIdentity"] or "the Lease could not be released" in err


async def test_a_blocked_event_loop_releases_the_lease_and_ends_the_process(
    start, sandbox, flags, live
):
    limits = "--cycle-stuck-threshold=3s", "--plugin-blocked-exit-timeout=0s"
    first = await start(*flags("Stuck"), *limits)
    await live.until(lambda: lease(sandbox).get("holderIdentity"))
    holder = lease(sandbox)["holderIdentity"]
    sandbox.store.create("pods", live.pod("a"))
    await live.until(lambda: lease(sandbox)["holderIdentity"] != holder)
    second = await start(*flags())
    await live.until(lambda: node_of(sandbox, "a"))
    code, err = await live.ended(first)
    assert code == 1
    assert '"The process does not end and is killed"' in err
    second.send_signal(signal.SIGTERM)
    assert (await live.ended(second))[0] == 0


async def test_a_cycle_that_never_ends_fails_livez(start, sandbox, flags, live, kubeconfig):
    """The event loop is not blocked meanwhile, so that /livez can be served."""
    port = live.port()
    config, plugins, *_ = flags("Waits")
    process = await start(
        *(config, plugins, "--cycle-stuck-threshold=2s", "--leader-elect=false"),
        *("--bind-address=127.0.0.1", f"--secure-port={port}"),
        *(f"--authentication-kubeconfig={kubeconfig}", f"--authorization-kubeconfig={kubeconfig}"),
    )
    pages = live.Pages(port, sandbox.token)
    await pages.ready()
    assert (await pages.get("/livez"))[0] == 200
    sandbox.store.create("pods", live.pod("a"))
    async with asyncio.timeout(30):
        while (await pages.get("/livez"))[0] == 200:  # noqa: ASYNC110
            await asyncio.sleep(0.2)
    _, body = await pages.get("/livez?verbose")
    assert "[-]scheduling-cycle failed" in body
    _, body = await pages.get("/metrics")
    (line,) = [li for li in body.splitlines() if li.startswith("proreus_scheduling_cycle_age_")]
    assert float(line.split()[1]) > 2
    process.kill()


async def test_a_leader_stopped_for_longer_than_its_lease_binds_nothing(
    start, sandbox, flags, live
):
    """It is stopped between PreBind and Bind, and continued after its Lease has expired, with no
    other holder yet."""
    process = await start(*flags("Stops"))
    await live.until(lambda: lease(sandbox).get("holderIdentity"))
    sandbox.store.create("pods", live.pod("a"))
    await live.until(lambda: stopped(process.pid))
    await asyncio.sleep(5)
    process.send_signal(signal.SIGCONT)
    code, err = await live.ended(process)
    assert code == 1
    assert '"Leaderelection lost"' in err
    assert not node_of(sandbox, "a")


async def test_the_election_thread_has_its_own_exec_plugin(start, sandbox, tmp_path, live):
    """Two threads with different event loops start processes."""
    status = {"token": sandbox.token, "expirationTimestamp": "2020-01-01T00:00:00Z"}
    version = "client.authentication.k8s.io/v1"
    document = {"apiVersion": version, "kind": "ExecCredential", "status": status}
    (tmp_path / "plugin.json").write_text(json.dumps(document))
    content = sandbox.kubeconfig()
    command = {"command": "cat", "args": [str(tmp_path / "plugin.json")]}
    content["users"][0]["user"] = {"exec": {"apiVersion": version, **command}}
    path = tmp_path / "exec"
    path.write_text(yaml.safe_dump(content))
    process = await start(f"--kubeconfig={path}", "--secure-port=0")
    await live.until(lambda: lease(sandbox).get("holderIdentity"))
    process.send_signal(signal.SIGTERM)
    code, err = await live.ended(process)
    assert (code, "Traceback" in err) == (0, False)
    # Each request starts the plugin, and the release has three seconds in all.
    assert not lease(sandbox)["holderIdentity"] or "the Lease could not be released" in err


def stopped(pid):
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()[0] == "T"


async def test_a_binding_that_hangs_does_not_outlive_the_lease(start, sandbox, flags, live):
    first = await start(*flags("Hangs"))
    await live.until(lambda: lease(sandbox).get("holderIdentity"))
    holder = lease(sandbox)["holderIdentity"]
    sandbox.store.create("pods", live.pod("a"))
    await live.until(lambda: waits(sandbox))
    loop = asyncio.get_running_loop()
    signalled_at = loop.time()
    first.send_signal(signal.SIGTERM)
    await live.until(lambda: lease(sandbox)["holderIdentity"] != holder)
    assert not node_of(sandbox, "a")
    code, err = await live.ended(first)
    assert code == 0
    assert 19 < loop.time() - signalled_at < 30
    assert 'pods=["default/a"]' in err
    assert not node_of(sandbox, "a")


def waits(sandbox):
    """Return whether the pod is in PreBind: its nominatedNodeName is written before."""
    pod = sandbox.store.get("pods", "a", "default").object()
    return (pod.get("status") or {}).get("nominatedNodeName")


async def test_a_standby_that_is_refused_is_not_well_and_uses_renewed_credentials(
    start, sandbox, flags, live, kubeconfig, tmp_path, monkeypatch
):
    """Its kubeconfig is written anew, as by whoever rotates a certificate or a token."""
    leader = await start(*flags())
    await live.until(lambda: lease(sandbox).get("holderIdentity"))
    own = tmp_path / "own-kubeconfig"
    shutil.copy(kubeconfig, own)
    document = yaml.safe_load((tmp_path / "none.yaml").read_text())
    document["clientConnection"]["kubeconfig"] = str(own)
    (tmp_path / "standby.yaml").write_text(yaml.safe_dump(document))
    port = live.port()
    standby = await start(
        f"--config={tmp_path}/standby.yaml", "--bind-address=127.0.0.1", f"--secure-port={port}"
    )
    pages = live.Pages(port, "")
    await pages.ready()
    renewed = "the-renewed-token"
    monkeypatch.setattr(sandbox.api, "_users", Users({renewed: "the same user"}))
    async with asyncio.timeout(60):
        for path in ("/livez", "/readyz"):
            while (await pages.get(path, anonymous=True))[0] == 200:  # noqa: ASYNC110
                await asyncio.sleep(0.1)
    _, body = await pages.get("/livez?verbose", anonymous=True)
    assert "[-]authentication failed" in body
    code, err = await live.ended(leader)
    assert (code, "Leaderelection lost" in err) == (1, True)
    own.write_text(own.read_text().replace(sandbox.token, renewed))
    sandbox.store.create("pods", live.pod("a"))
    await live.until(lambda: node_of(sandbox, "a"))
    await pages.ready()
    assert (await pages.get("/livez", anonymous=True))[0] == 200
    standby.send_signal(signal.SIGTERM)
    code, err = await live.ended(standby)
    assert code == 0
    assert err.count("Unauthorized") < 30
