"""``proreus run --enable-dry-run``, asked by the client of examples/dry-run."""

import asyncio
import ssl
import sys
from pathlib import Path

import aiohttp

EXAMPLE = Path(__file__).parents[3] / "examples" / "dry-run"


async def test_the_question_of_an_autoscaler(dry_run_port, sandbox, tmp_path):
    token = tmp_path / "token"
    token.write_text(sandbox.token)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, str(EXAMPLE / "scale_up.py"), f"--token-file={token}"),
        *(f"--scheduler=https://127.0.0.1:{dry_run_port}", "--insecure-skip-tls-verify"),
        *(str(EXAMPLE / "pods.yaml"), str(EXAMPLE / "node-groups.yaml")),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={"PYTHONPATH": ":".join(sys.path), "PATH": ""},
    )
    out, err = await asyncio.wait_for(process.communicate(), 60)
    assert (process.returncode, err.decode()) == (0, "")
    lines = out.decode().splitlines()
    assert lines[0] == "0 pods fit as it is"
    assert "3 x general: 6 more pods fit" in lines
    assert "2 x gpu: 2 more pods fit" in lines
    # Nothing of it has happened.
    assert len(sandbox.store.collection("pods")) == 0
    assert len(sandbox.store.collection("nodes")) == 3


async def test_many_at_once_are_answered_or_refused(dry_run_port, sandbox):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    pod = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c"}]}}
    review = {
        "apiVersion": "scheduling.proreus.dev/v1alpha1",
        "kind": "DryRunReview",
        "spec": {"pods": [{"pod": pod, "count": 20}]},
    }
    url = f"https://127.0.0.1:{dry_run_port}/apis/scheduling.proreus.dev/v1alpha1/dryrunreviews"
    # Fewer than the server admits from one address.
    connector = aiohttp.TCPConnector(ssl=context, limit=28)
    headers = {"Authorization": f"Bearer {sandbox.token}"}
    async with aiohttp.ClientSession(connector=connector, headers=headers) as session:

        async def ask():
            refused = 0
            while True:
                async with session.post(url, json=review) as answer:
                    body = await answer.json()
                    if answer.status == 201:
                        return refused, body["status"]
                    assert answer.status == 429, body
                    refused += 1
                await asyncio.sleep(0.1 * int(answer.headers["Retry-After"]))

        answers = await asyncio.gather(*(ask() for _ in range(200)))
    assert all(status["allFit"] for _, status in answers)
    assert {status["clusterNodes"] for _, status in answers} == {3}


async def test_it_is_off_unless_asked_for(start, kubeconfig, live, sandbox):
    port = live.port()
    await start(
        *("--leader-elect=false", f"--kubeconfig={kubeconfig}"),
        *("--bind-address=127.0.0.1", f"--secure-port={port}"),
        *(f"--authentication-kubeconfig={kubeconfig}", f"--authorization-kubeconfig={kubeconfig}"),
    )
    pages = live.Pages(port, sandbox.token)
    await pages.ready()
    status, _ = await pages.get("/openapi/v3/apis/scheduling.proreus.dev/v1alpha1")
    assert status == 404
