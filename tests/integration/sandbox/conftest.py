from collections.abc import AsyncIterator

import aiohttp
import pytest

from proreus.sandbox import Sandbox


@pytest.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    async with Sandbox(tls=False, kubelet=None, bookmark_seconds=0.2) as sandbox:
        yield sandbox


@pytest.fixture
async def http(sandbox: Sandbox) -> AsyncIterator[aiohttp.ClientSession]:
    headers = {"Authorization": f"Bearer {sandbox.token}"}
    async with aiohttp.ClientSession(sandbox.url, headers=headers) as session:
        yield session
