"""``proreus run`` as a process on an embedded cluster."""

import asyncio
import ssl
import sys
from contextlib import ExitStack
from types import SimpleNamespace

import aiohttp
import pytest

from proreus.workbench.sandbox import Sandbox

from ..reserved_ports import SHARE_PORT_FLAG, reserved_port


@pytest.fixture
async def sandbox():
    async with Sandbox(nodes=3) as made:
        yield made


@pytest.fixture
def kubeconfig(sandbox, tmp_path):
    return str(sandbox.write_kubeconfig(tmp_path / "kubeconfig"))


@pytest.fixture
async def start(tmp_path):
    """Return a function that starts ``proreus run``; processes left at the end are killed."""
    started = []
    # not where a plugin of another test may be recorded
    record = f"--blocked-plugins-file={tmp_path}/blocked-plugins.json"

    async def run(*flags):
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "proreus", "run", SHARE_PORT_FLAG, record, *flags),
            stderr=asyncio.subprocess.PIPE,
        )
        started.append(process)
        return process

    yield run
    for process in started:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def ended(process):
    """Return exit code and stderr."""
    _, err = await asyncio.wait_for(process.communicate(), 30)
    return process.returncode, err.decode()


class Pages:
    """The HTTPS endpoints of a process."""

    def __init__(self, port, token):
        self._base, self._token = f"https://127.0.0.1:{port}", token

    async def get(self, path, *, anonymous=False):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        headers = {} if anonymous else {"Authorization": f"Bearer {self._token}"}
        connector = aiohttp.TCPConnector(ssl=context, force_close=True)
        async with (
            aiohttp.ClientSession(connector=connector) as session,
            session.get(self._base + path, headers=headers) as answer,
        ):
            return answer.status, await answer.text()

    async def ready(self):
        """Wait until the process is ready (/readyz)."""
        async with asyncio.timeout(60):
            while True:
                try:
                    if (await self.get("/readyz", anonymous=True))[0] == 200:
                        return
                except aiohttp.ClientError:
                    pass
                await asyncio.sleep(0.05)


async def until(true):
    """Poll until ``true()``: the change is made by another process."""
    async with asyncio.timeout(60):
        while not true():  # noqa: ASYNC110
            await asyncio.sleep(0.02)


def pod(name):
    requests = {"cpu": "100m"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": requests}}]},
    }


@pytest.fixture
def live():
    """Helpers for tests of a live process; ``port()`` returns a port reserved for it."""
    with ExitStack() as kept:
        yield SimpleNamespace(
            Pages=Pages,
            ended=ended,
            port=lambda: kept.enter_context(reserved_port()),
            pod=pod,
            until=until,
        )


@pytest.fixture
async def dry_run_port(start, kubeconfig, live, sandbox):
    """Return the port of a scheduler that answers dry runs."""
    port = live.port()
    await start(
        *("--leader-elect=false", f"--kubeconfig={kubeconfig}", "--enable-dry-run"),
        *("--bind-address=127.0.0.1", f"--secure-port={port}"),
        *(f"--authentication-kubeconfig={kubeconfig}", f"--authorization-kubeconfig={kubeconfig}"),
    )
    await live.Pages(port, sandbox.token).ready()
    return port
