"""A real Chromium, the demo with its dashboard, and a cluster whose pods wait for each other.

Debian's package or what PROREUS_CHROMIUM names; where there is none, or no playwright, these tests
are skipped and say so.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from proreus.insight.dashboard import Dashboard
from unit.insight.dashboard.shared_cluster import SharedCluster

NAMES = ("chromium", "chromium-browser", "google-chrome")


def chromium() -> str | None:
    """Return the path of a Chromium, None if there is none."""
    named = os.environ.get("PROREUS_CHROMIUM")
    return named or next(filter(None, map(shutil.which, NAMES)), None)


@pytest.fixture
def executable() -> str:
    """Return the browser to test in; skips the test aloud without one."""
    path = chromium()
    if path is None:
        pytest.skip(
            "NOT TESTED IN A BROWSER: there is no Chromium (apt install chromium, or name one by "
            "PROREUS_CHROMIUM)"
        )
    pytest.importorskip(
        "playwright.async_api", reason="NOT TESTED IN A BROWSER: playwright is not installed"
    )
    return path


@pytest.fixture
async def demo(executable: str) -> AsyncIterator[str]:
    """Run the demo, with a thousand pods of which ten wait; return where its dashboard is."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "proreus", "demo", "--serve", "--nodes=60"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    assert process.stdout is not None
    seen = ""
    try:
        async with asyncio.timeout(90):
            while "why do pods wait?" not in seen:
                line = (await process.stdout.readline()).decode()
                assert line, seen
                seen += line
        [base] = re.findall(r"the dashboard: (http://127\.0\.0\.1:\d+/dashboard/)", seen)
        yield base
    finally:
        process.send_signal(signal.SIGINT)
        await asyncio.wait_for(process.communicate(), 30)


class Watched:
    """A page, and what went wrong on it: errors, violations of the policy, foreign requests."""

    def __init__(self, page: Any, base: str) -> None:
        self.page = page
        self.base = base
        self.problems: list[str] = []
        page.on("console", self._console)
        page.on("pageerror", lambda error: self.problems.append(f"error: {error}"))
        page.on("request", self._request)

    async def open(self, path: str) -> None:
        await self.page.goto(self.base + path, wait_until="load")

    def _console(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.problems.append(f"{message.type}: {message.text}")

    def _request(self, request: Any) -> None:
        if not request.url.startswith(self.base):
            self.problems.append(f"request to {request.url}")


OpenBrowser = Callable[[str], Awaitable[Watched]]


@pytest.fixture
async def open_browser(executable: str) -> AsyncIterator[OpenBrowser]:
    """Return a function that opens a browser for an address; at the end nothing has gone wrong."""
    from playwright import async_api

    opened = []
    async with async_api.async_playwright() as playwright:
        # Its sandbox needs rights that containers and root do not have.
        browser = await playwright.chromium.launch(
            executable_path=executable, args=["--no-sandbox"]
        )
        context = await browser.new_context(viewport={"width": 1280, "height": 900})
        context.set_default_timeout(20_000)

        async def open_at(base: str) -> Watched:
            opened.append(Watched(await context.new_page(), base))
            return opened[-1]

        yield open_at
        await browser.close()
    assert [problem for one in opened for problem in one.problems] == []


@pytest.fixture
async def watched(open_browser: OpenBrowser, demo: str) -> AsyncIterator[Watched]:
    """Return a page of the demo's dashboard."""
    made = await open_browser(demo)
    yield made
    # Before the demo ends: a page that is live would find nobody.
    await made.page.close()


@pytest.fixture
async def shared_cluster() -> SharedCluster:
    """Return a cluster with ten waiting pods, gangs, quotas and a preemption."""
    cluster = SharedCluster()
    await cluster.fill()
    return cluster


@pytest.fixture
async def shared(
    open_browser: OpenBrowser, shared_cluster: SharedCluster
) -> AsyncIterator[Watched]:
    """Return a page of that cluster's dashboard."""
    dashboard = Dashboard(shared_cluster.sources, ("127.0.0.1", 0))
    await dashboard.start()
    made = await open_browser(dashboard.local_url)
    yield made
    await made.page.close()
    await dashboard.stop()
