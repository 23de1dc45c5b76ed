"""``proreus explain`` asks a running process about its decisions, as the caller."""

import asyncio
import json
import sys
from datetime import datetime, timedelta

import pytest
import yaml


async def proreus(*arguments):
    """Run a command; return its exit code, standard output and error."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "proreus", *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={"COLUMNS": "160", "PYTHONPATH": ":".join(sys.path), "PATH": ""},
    )
    out, err = await asyncio.wait_for(process.communicate(), 60)
    return process.returncode, out.decode(), err.decode()


@pytest.fixture
async def cluster(start, kubeconfig, live, sandbox):
    """A scheduler with a placed pod and one that waits for cpu; returns the options to ask it."""
    port = live.port()
    await start(
        *("--leader-elect=false", f"--kubeconfig={kubeconfig}"),
        *("--bind-address=127.0.0.1", f"--secure-port={port}"),
        *(f"--authentication-kubeconfig={kubeconfig}", f"--authorization-kubeconfig={kubeconfig}"),
    )
    await live.Pages(port, sandbox.token).ready()
    sandbox.store.create("pods", live.pod("small"))
    large = live.pod("large")
    large["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "999"
    sandbox.store.create("pods", large)

    def status_of(name):
        return sandbox.store.get("pods", name, "default").object()

    await live.until(lambda: status_of("small")["spec"].get("nodeName"))
    await live.until(lambda: status_of("large")["status"].get("conditions"))
    scheduler = f"--scheduler=https://127.0.0.1:{port}"
    return f"--kubeconfig={kubeconfig}", scheduler, "--insecure-skip-tls-verify"


async def test_a_placed_and_a_waiting_pod(cluster, sandbox, live):
    code, out, err = await proreus("explain", "pod", "default/small", *cluster)
    assert (code, err) == (0, "")
    assert "Bound to node-" in out
    assert "NodeResourcesFit" in out
    assert "Bound: 20" in out
    code, out, _ = await proreus("explain", "pod", "default/small", "-o", "json", *cluster)
    attempt = json.loads(out)["attempt"]
    at, bound_at = (datetime.fromisoformat(attempt[name]) for name in ("at", "boundAt"))
    assert at <= bound_at < at + timedelta(seconds=20)

    code, out, err = await proreus("why", "large", *cluster)
    assert (code, err) == (0, "")
    assert "Insufficient cpu" in out
    assert "less cpu" in out
    assert "NodeAdd" in out

    code, out, _ = await proreus("why", "large", "-o", "json", *cluster)
    explained = json.loads(out)
    assert explained["waiting"]["rejectedBy"] == ["NodeResourcesFit"]
    (change,) = explained["help"]["nodes"][0]["changes"]
    assert change["minimal"]
    code, out, _ = await proreus("why", "large", "-o", "yaml", *cluster)
    assert yaml.safe_load(out)["help"]["nodes"] == explained["help"]["nodes"]

    # Made as proposed, the change lets the pod run.
    sandbox.store.delete("pods", "large", "default")
    smaller = live.pod("smaller")
    smaller["spec"]["containers"][0]["resources"]["requests"]["cpu"] = change["after"]
    sandbox.store.create("pods", smaller)

    def placed():
        return sandbox.store.get("pods", "smaller", "default").object()["spec"].get("nodeName")

    await live.until(placed)
    assert placed() in [
        one["node"] for one in explained["help"]["nodes"] if change in one["changes"]
    ]


async def test_nodes_and_the_queue(cluster):
    code, out, err = await proreus("explain", "node", "node-0", *cluster)
    assert (code, err) == (0, "")
    assert "Insufficient cpu" in out
    code, out, err = await proreus("explain", "queue", *cluster)
    assert (code, err) == (0, "")
    assert "default/large" in out


async def test_callers_without_the_right_are_refused(cluster, sandbox, live, tmp_path):
    port = cluster[1].rpartition(":")[2]
    pages = live.Pages(port, sandbox.token)
    status, body = await pages.get("/explain/queue", anonymous=True)
    assert status == 403
    assert "/explain/queue" in body
    status, body = await pages.get("/explain/pod")
    assert (status, json.loads(body)["message"]) == (400, "the parameter name is missing")
    data = yaml.safe_load((tmp_path / "kubeconfig").read_text())
    data["users"][0]["user"] = {"token": "wrong"}
    bad = tmp_path / "bad"
    bad.write_text(yaml.safe_dump(data))
    code, _, err = await proreus("explain", "queue", f"--kubeconfig={bad}", *cluster[1:])
    assert code == 1
    assert "Unauthorized" in err
