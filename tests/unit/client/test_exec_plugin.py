"""Exec credential plugins that are not what they should be (processes are real)."""

import asyncio
import json
import os
import signal
import time
from contextlib import suppress
from pathlib import Path

import pytest
import uvloop
from msgspec.structs import replace

from proreus.base.errors import ConfigError
from proreus.client.credentials import exec_plugin
from proreus.client.credentials.credential_loading import load
from proreus.client.credentials.exec_plugin import ExecPlugin

VERSION = "client.authentication.k8s.io/v1"


def printed(**status):
    return json.dumps({"apiVersion": VERSION, "kind": "ExecCredential", "status": status})


@pytest.fixture
def plugin(tmp_path):
    """Return a function that makes a plugin of a shell script."""

    def make(script):
        path = tmp_path / "plugin.sh"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        return ExecPlugin(str(path), VERSION)

    return make


async def ended(pid):
    """Wait until a process is gone, or a zombie that nobody reaps."""
    async with asyncio.timeout(20):
        while True:
            try:
                state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]  # noqa: ASYNC240
            except FileNotFoundError:
                return
            if state == "Z":
                return
            await asyncio.sleep(0.01)


async def test_endless_output_is_not_kept(plugin, tmp_path):
    started = time.monotonic()
    with pytest.raises(ConfigError, match="its output is too long for a credential"):
        await plugin(f"echo $$ > {tmp_path}/pid; exec yes").run()
    assert time.monotonic() - started < 10
    await ended((tmp_path / "pid").read_text().strip())


async def test_a_plugin_without_a_terminal_reads_nothing(plugin):
    nobody_writes, kept = os.pipe()
    standard_input = os.dup(0)
    os.dup2(nobody_writes, 0)
    try:
        async with asyncio.timeout(20):
            found = await plugin(f"cat; echo '{printed(token='a')}'").run()
        assert found.token == "a"
        always = replace(plugin("exit 0"), interactive_mode="Always")
        with pytest.raises(ConfigError, match="standard input is no terminal"):
            await always.run()
    finally:
        os.dup2(standard_input, 0)
        for descriptor in (nobody_writes, kept, standard_input):
            os.close(descriptor)


async def test_does_not_wait_for_processes_that_a_plugin_leaves_behind(plugin, tmp_path):
    script = f"sleep 60 & echo $! > {tmp_path}/pid; echo '{printed(token='a')}'"
    started = time.monotonic()
    found = await plugin(script).run()
    assert found.token == "a"
    assert time.monotonic() - started < 10
    os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)


async def test_errors_of_any_length_are_read(plugin):
    noise = "head -c 3000000 /dev/zero | tr '\\0' x >&2"
    assert (await plugin(f"{noise}; echo '{printed(token='a')}'").run()).token == "a"
    with pytest.raises(ConfigError, match=r"plugin\.sh ended with 3: x+$") as raised:
        await plugin(f"{noise}; exit 3").run()
    assert len(str(raised.value)) < 3000


async def test_a_run_that_is_cancelled_leaves_no_process(plugin, tmp_path):
    running = asyncio.create_task(plugin(f"sleep 60 & echo $! > {tmp_path}/pid; wait").run())
    pid = tmp_path / "pid"
    async with asyncio.timeout(20):
        while not (pid.exists() and pid.read_text().endswith("\n")):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await ended(pid.read_text().strip())


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_a_run_that_is_cancelled_while_it_starts_ends_at_once(plugin, tmp_path, run):
    made = plugin(f"echo $$ >> {tmp_path}/pids; sleep 60; true")

    async def cancelled_after(turns):
        running = asyncio.create_task(made.run())
        for _ in range(turns):
            await asyncio.sleep(0)
        running.cancel()
        await asyncio.wait((running,), timeout=10)
        assert running.cancelled()
        # Killed already, but on a busy machine a process is gone only once it has had its turn.
        for pid in await asyncio.to_thread(processes_of_groups, tmp_path / "pids"):
            await ended(pid)

    for turns in range(1, 8):
        run(cancelled_after(turns))


def processes_of_groups(pids):
    """Return the ids of the processes that are left of the groups that plugins led."""
    groups = pids.read_text().split() if pids.exists() else []
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended meanwhile
            _, _, group, *_ = path.read_text().rpartition(")")[2].split()
            if group in groups:
                found.append(path.parent.name)
    return found


@pytest.mark.parametrize(
    ("output", "named"),
    [
        ("hello", "cannot be decoded"),
        ("", "cannot be decoded"),
        ("\\0377", "cannot be decoded"),
        (printed(token=None), "neither token nor certificate"),
        (printed(token=5), "Expected `str | null`, got `int`"),
        (printed(token="a", expirationTimestamp="tomorrow"), "RFC3339"),
        (printed(token="a", expirationTimestamp="2030-01-01T00:00:00"), "timezone"),
        (printed(clientCertificateData="a"), "without the other"),
        (json.dumps({"kind": "ExecCredential", "apiVersion": "v0"}), "ExecCredential of v0, not"),
        (json.dumps({"kind": "ExecCredential", "apiVersion": VERSION}), "neither token"),
        (json.dumps({"kind": "ExecCredential", "status": ["token"]}), "got `array`"),
        ("[" * 5000, "cannot be decoded"),
    ],
)
async def test_an_invalid_credential_is_an_error_with_its_reason(plugin, tmp_path, output, named):
    (tmp_path / "output").write_text(output)
    with pytest.raises(ConfigError, match=r"the credential plugin failed: .*") as raised:
        await plugin(f'printf "%b" "$(cat {tmp_path}/output)"').run()
    assert named in str(raised.value)


async def test_a_program_that_is_not_there(tmp_path):
    with pytest.raises(ConfigError, match=r"nope cannot be run: .*No such file"):
        await ExecPlugin(str(tmp_path / "nope"), VERSION).run()
    with pytest.raises(ConfigError, match=r"exec: .*missing required field `apiVersion`"):
        ExecPlugin.of({"command": "a"}, "/")


def test_a_path_is_one_from_the_kubeconfig():
    for command, found in (("a", "a"), ("./a", "/k/./a"), ("b/a", "/k/b/a"), ("/a", "/a")):
        assert ExecPlugin.of({"command": command, "apiVersion": VERSION}, "/k").command == found


async def test_the_first_run_has_a_time_limit(plugin, tmp_path, monkeypatch):
    """Before it there was none: the start waited for ever, without a word."""
    made = plugin("sleep 60")
    path = tmp_path / "kubeconfig"
    user = {"exec": {"apiVersion": VERSION, "command": made.command}}
    path.write_text(
        json.dumps(
            {
                "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
                "users": [{"name": "u", "user": user}],
                "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
                "current-context": "x",
            }
        )
    )
    monkeypatch.setattr("proreus.client.credentials.credential_loading._FIRST_FETCH_SECONDS", 0.2)
    with pytest.raises(ConfigError, match=r"could not be fetched within 0\.2 s"):
        await load(str(path), environ={})


def test_a_credential_is_renewed_before_it_expires():
    decode = exec_plugin.msgspec.convert
    for expiry, soon in (
        ("0001-01-01T00:00:00Z", True),
        ("2020-01-01T00:00:00Z", True),
        ("2999-01-01T00:00:00Z", False),
    ):
        found = decode({"expirationTimestamp": expiry}, exec_plugin.ExecCredentialStatus)
        assert found.expires_soon is soon
    assert not exec_plugin.ExecCredentialStatus().expires_soon
