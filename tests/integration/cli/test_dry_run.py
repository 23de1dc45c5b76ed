"""``proreus run --enable-dry-run``, asked by the client of examples/dry-run."""

import asyncio
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[3] / "examples" / "dry-run"


@pytest.fixture
async def port(start, kubeconfig, live, sandbox):
    """A scheduler that answers dry runs."""
    port = live.port()
    await start(
        *("--leader-elect=false", f"--kubeconfig={kubeconfig}", "--enable-dry-run"),
        *("--bind-address=127.0.0.1", f"--secure-port={port}"),
        *(f"--authentication-kubeconfig={kubeconfig}", f"--authorization-kubeconfig={kubeconfig}"),
    )
    await live.Pages(port, sandbox.token).ready()
    return port


async def test_the_question_of_an_autoscaler(port, sandbox, tmp_path):
    token = tmp_path / "token"
    token.write_text(sandbox.token)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, str(EXAMPLE / "scale_up.py"), f"--token-file={token}"),
        *(f"--scheduler=https://127.0.0.1:{port}", "--insecure-skip-tls-verify"),
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
