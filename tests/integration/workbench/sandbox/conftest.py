from collections.abc import AsyncIterator

import aiohttp
import pytest

from proreus.workbench.sandbox import ListenOptions, Sandbox


@pytest.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    options = ListenOptions(tls=False, bookmark_seconds=0.2)
    async with Sandbox(kubelet=None, listen=options) as sandbox:
        yield sandbox


@pytest.fixture
async def http(sandbox: Sandbox) -> AsyncIterator[aiohttp.ClientSession]:
    headers = {"Authorization": f"Bearer {sandbox.token}"}
    async with aiohttp.ClientSession(sandbox.url, headers=headers) as session:
        yield session
