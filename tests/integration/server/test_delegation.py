"""The server's delegated reviews against an apiserver, with the scheduler's own client."""

import socket
import ssl

import aiohttp
import pytest

from proreus.base.metrics import SchedulerMetrics
from proreus.client.credentials import credential_loading
from proreus.client.http.session import ApiClient
from proreus.process.clients import Delegation
from proreus.server.options import ServingOptions
from proreus.server.server import EndpointSources, Server
from proreus.workbench.sandbox import Sandbox


@pytest.fixture
async def sandbox():
    async with Sandbox() as made:
        yield made


@pytest.fixture
async def url(sandbox, tmp_path):
    path = sandbox.write_kubeconfig(tmp_path / "kubeconfig")
    async with ApiClient(await credential_loading.load(str(path))) as client:
        api = Delegation(client)
        server = Server(
            ServingOptions(),
            EndpointSources(metrics=SchedulerMetrics()),
            authentication_api=api,
            authorization_api=api,
        )
        listener = socket.socket()
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        listener.setblocking(False)
        await server.start(listener)
        yield f"https://127.0.0.1:{server.port}"
        await server.stop()


async def status(url, token=None):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with (
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context)) as session,
        session.get(url, headers=headers) as answer,
    ):
        return answer.status


async def test_the_apiserver_decides(url, sandbox):
    assert await status(f"{url}/metrics", sandbox.token) == 200
    assert await status(f"{url}/metrics", "forged") == 401
    assert await status(f"{url}/metrics") == 403
    assert await status(f"{url}/healthz") == 200
