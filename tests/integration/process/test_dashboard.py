"""The dashboard of a running process: for those who may, and on loopback for everybody."""

import asyncio
import html
import json
import os
import re
import signal
import ssl
import sys

import aiohttp
import pytest

COOKIE = "__Secure-proreus-token"


@pytest.fixture
async def session():
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    connector = aiohttp.TCPConnector(ssl=context, force_close=True)
    async with aiohttp.ClientSession(
        connector=connector, cookie_jar=aiohttp.DummyCookieJar()
    ) as made:
        yield made


async def test_a_browser_signs_in_and_is_told_why_a_pod_waits(
    start, kubeconfig, live, sandbox, session
):
    port = live.port()
    process = await start(
        *("--dashboard", "--leader-elect=false", f"--kubeconfig={kubeconfig}"),
        *("--bind-address=127.0.0.1", f"--secure-port={port}"),
        *(f"--authentication-kubeconfig={kubeconfig}", f"--authorization-kubeconfig={kubeconfig}"),
    )
    await live.Pages(port, sandbox.token).ready()
    base = f"https://127.0.0.1:{port}/dashboard/"
    large = live.pod("large")
    large["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "999"
    sandbox.store.create("pods", large)
    await live.until(
        lambda: sandbox.store.get("pods", "large", "default").object()["status"].get("conditions")
    )

    browser = {"Accept": "text/html"}
    async with session.get(base, headers=browser) as answer:
        assert answer.status == 403
        assert "Sign in" in await answer.text()
    async with session.get(base) as answer:
        assert (answer.status, answer.content_type) == (403, "application/json")
    async with session.post(
        f"{base}sign-in", data={"token": sandbox.token}, allow_redirects=False
    ) as answer:
        cookie = answer.cookies[COOKIE].value
    signed_in = {**browser, "Cookie": f"{COOKIE}={cookie}"}
    async with session.get(f"{base}pod/default/large", headers=signed_in) as answer:
        assert answer.status == 200
        assert "Insufficient cpu" in await answer.text()
    async with session.get(base, headers={**browser, "Cookie": f"{COOKIE}=wrong"}) as answer:
        assert answer.status == 401
        assert "it has expired" in await answer.text()
    # The cookie is for these pages only.
    async with session.get(f"https://127.0.0.1:{port}/configz", headers=signed_in) as answer:
        assert answer.status == 403

    async with session.get(f"{base}events", headers=signed_in) as answer:
        assert (await answer.content.readline()) == b"event: history\n"
        # A page that is open does not hold up the end of the process.
        process.send_signal(signal.SIGTERM)
        await asyncio.wait_for(process.wait(), 8)


async def test_without_the_flag_there_is_none(start, kubeconfig, live, sandbox):
    port = live.port()
    await start(
        *("--leader-elect=false", f"--kubeconfig={kubeconfig}"),
        *("--bind-address=127.0.0.1", f"--secure-port={port}"),
        *(f"--authentication-kubeconfig={kubeconfig}", f"--authorization-kubeconfig={kubeconfig}"),
    )
    pages = live.Pages(port, sandbox.token)
    await pages.ready()
    assert (await pages.get("/dashboard/"))[0] == 404


async def test_an_address_of_the_network_is_refused(start, live):
    process = await start("--dashboard-insecure-local=0.0.0.0:10260")
    _, err = await asyncio.wait_for(process.communicate(), 30)
    assert process.returncode == 1
    assert b"is not a loopback address" in err


async def test_the_demo_serves_it_until_it_is_ended(session):
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "proreus", "demo", "--serve", "--nodes=6", "--pods=100"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        seen = ""
        async with asyncio.timeout(60):
            while "why do pods wait?" not in seen:
                line = (await process.stdout.readline()).decode()
                assert line, (await process.stderr.read()).decode()
                seen += line
        [base] = re.findall(r"the dashboard: (http://127\.0\.0\.1:\d+/dashboard/)", seen)
        async with session.get(f"{base}pods") as answer:
            page = await answer.text()
        assert answer.status == 200
        assert "too-large-0050" in page
        async with session.get(f"{base}node-cells") as answer:
            assert len(json.loads(await answer.read())["names"]) == 6
    finally:
        process.send_signal(signal.SIGINT)
        await asyncio.wait_for(process.communicate(), 30)
    assert process.returncode == 0


async def test_a_simulation_shows_its_result(tmp_path, session, live):
    cluster = {
        "apiVersion": "v1",
        "kind": "List",
        "items": [
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": "n"},
                "status": {"allocatable": {"cpu": "2", "memory": "4Gi", "pods": "10"}},
            },
            *(
                {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "metadata": {"name": name, "namespace": "default", "uid": name},
                    "spec": {
                        "schedulerName": "default-scheduler",
                        "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}],
                    },
                }
                for name, cpu in (("small", "1"), ("large", "16"))
            ),
        ],
    }
    (tmp_path / "cluster.json").write_text(json.dumps(cluster))
    opened = tmp_path / "opened"
    browser = tmp_path / "browser"
    browser.write_text(f"#!/bin/sh\necho $1 > {opened}\n")
    browser.chmod(0o755)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "proreus", "simulate", str(tmp_path / "cluster.json")),
        *("--open", "-o", "json"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "BROWSER": f"{browser} %s"},
    )
    try:
        async with asyncio.timeout(30):
            while not (line := (await process.stderr.readline()).decode()).startswith("the result"):
                assert line
        await live.until(lambda: opened.exists() and opened.read_text().endswith("/\n"))
        [base] = re.findall(r"http://\S+/dashboard/", line)
        assert opened.read_text().strip() == base
        for path, expected in (
            ("", "NodeResourcesFit"),
            ("pod/default/small", "Bound to n"),
            ("pod/default/large", "Insufficient cpu"),
            ("pod-state/default/large", "no smaller change helps"),
        ):
            async with session.get(base + path) as answer:
                page = await answer.text()
                assert (answer.status, expected in page) == (200, True), path
            assert "overview.js" not in page
        async with session.get(base + "what-if?pod=default/large") as answer:
            [pod] = re.findall(r"<textarea[^>]*>\n(.*?)</textarea>", await answer.text(), re.DOTALL)
        question = {"pod": html.unescape(pod), "base": "default/large", "cpu": "1"}
        same_origin = {"Sec-Fetch-Site": "same-origin"}
        async with session.post(base + "what-if", data=question, headers=same_origin) as answer:
            page = await answer.text()
        assert answer.status == 200
        text = " ".join(re.sub(r"<[^>]+>", " ", page).split())
        assert text.index("It does not fit") < text.index("It fits on 1 node")
    finally:
        process.send_signal(signal.SIGINT)
        out, _ = await asyncio.wait_for(process.communicate(), 30)
    assert process.returncode == 0
    assert json.loads(out)["result"]["unplaced"][0]["pod"] == "default/large"
