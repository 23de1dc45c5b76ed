"""The whole sandbox in real time: kubelets, TLS, kubectl."""

import asyncio
import base64
import os
import re
import shutil
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from proreus.workbench.sandbox import KubeletOptions, ListenOptions, Sandbox, make_nodes

QUICK = KubeletOptions(start_seconds=0.0, stop_seconds=0.0)
KUBECTL = os.environ.get("KUBECTL") or shutil.which("kubectl")


async def phase_becomes(sandbox: Sandbox, name: str, phase: str) -> None:
    changed = asyncio.Event()
    pods = sandbox.store.collection("pods")
    pods.listeners.append(lambda change: changed.set())
    async with asyncio.timeout(60):
        while (version := pods.get(name, "default")) is None or version.fields[3] != phase:
            changed.clear()
            await changed.wait()


async def test_a_bound_pod_runs_and_a_deleted_one_is_removed() -> None:
    async with Sandbox(nodes=3, kubelet=QUICK, listen=ListenOptions(tls=False)) as sandbox:
        headers = {"Authorization": f"Bearer {sandbox.token}"}
        async with aiohttp.ClientSession(sandbox.url, headers=headers) as http:
            pods = "/api/v1/namespaces/default/pods"
            pod = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c"}]}}
            await http.post(pods, json=pod)
            binding = {"metadata": {"name": "p"}, "target": {"name": "node-1"}}
            await http.post("/api/v1/namespaces/default/bindings", json=binding)
            await phase_becomes(sandbox, "p", "Running")
            query = {"watch": "1", "resourceVersion": str(sandbox.store.revision)}
            async with http.get(pods, params=query) as events:
                await http.delete(f"{pods}/p")
                lines = [await asyncio.wait_for(events.content.readline(), 5) for _ in range(2)]
            assert [line[:17] for line in lines] == [b'{"type":"MODIFIED', b'{"type":"DELETED"']


async def test_the_kubeconfig_trusts_the_server(tmp_path: Path) -> None:
    async with Sandbox(nodes=make_nodes(2), kubelet=None) as sandbox:
        path = sandbox.write_kubeconfig(tmp_path / "deep" / "kubeconfig")
        assert path.stat().st_mode & 0o077 == 0
        config = yaml.safe_load(path.read_text())
        cluster, token = config["clusters"][0]["cluster"], config["users"][0]["user"]["token"]
        trust = ssl.create_default_context(
            cadata=base64.b64decode(cluster["certificate-authority-data"]).decode()
        )
        headers = {"Authorization": f"Bearer {token}"}
        async with (
            aiohttp.ClientSession(headers=headers) as http,
            http.get(f"{cluster['server']}/api/v1/nodes", ssl=trust) as answer,
        ):
            assert len((await answer.json())["items"]) == 2


def kubectl_of(sandbox: Sandbox, folder: Path) -> Callable[..., Awaitable[str]]:
    """Return a function that runs kubectl on a sandbox and returns its output."""
    path = sandbox.write_kubeconfig(folder / "kubeconfig")

    async def kubectl(*arguments: str) -> str:
        assert KUBECTL is not None
        process = await asyncio.create_subprocess_exec(
            KUBECTL,
            *arguments,
            env={"KUBECONFIG": str(path), "HOME": str(folder)},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        output, _ = await asyncio.wait_for(process.communicate(), 30)
        assert process.returncode == 0, output.decode()
        return output.decode()

    return kubectl


@pytest.mark.skipif(KUBECTL is None, reason="there is no kubectl; name one by KUBECTL")
async def test_kubectl_works(tmp_path: Path) -> None:
    manifest = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web", "labels": {"app": "web"}},
        "spec": {"nodeName": "node-1", "containers": [{"name": "c", "image": "i"}]},
    }
    file = tmp_path / "pod.yaml"
    file.write_text(yaml.safe_dump(manifest))

    async with Sandbox(nodes=3, kubelet=QUICK) as sandbox:
        kubectl = kubectl_of(sandbox, tmp_path)
        assert "proreus sandbox" in await kubectl("get", "nodes", "-o", "wide")
        assert "pod/web created" in await kubectl("apply", "-f", str(file))
        assert "pod/web unchanged" in await kubectl("apply", "-f", str(file))
        await phase_becomes(sandbox, "web", "Running")
        manifest["metadata"] = {"name": "web", "labels": {"app": "other"}}
        file.write_text(yaml.safe_dump(manifest))
        assert "pod/web configured" in await kubectl("apply", "-f", str(file))
        assert "app=other" in await kubectl("describe", "pod", "web")
        assert "1/1     Running" in await kubectl("get", "pods", "-o", "wide")
        annotation = "proreus.dev/cpu-usage=2"
        assert "annotated" in await kubectl("annotate", "node", "node-1", annotation)
        assert re.search(r"node-1 +2000m +25%", await kubectl("top", "nodes"))
        assert "node/node-1 drained" in await kubectl("drain", "node-1", "--force")
        assert "SchedulingDisabled" in await kubectl("get", "nodes", "node-1")
        assert "pod/web created" in await kubectl("create", "-f", str(file))
        assert 'pod "web" deleted' in await kubectl("delete", "-f", str(file))


@pytest.mark.skipif(KUBECTL is None, reason="there is no kubectl; name one by KUBECTL")
async def test_kubectl_applies_a_list(tmp_path: Path) -> None:
    items: list[dict[str, Any]] = [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "web"},
            "spec": {"containers": [{"name": "c", "image": "i"}]},
        },
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": "high"},
            "value": 1000,
        },
    ]
    file = tmp_path / "list.yaml"
    file.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": items}))

    async with Sandbox(nodes=1, kubelet=QUICK) as sandbox:
        kubectl = kubectl_of(sandbox, tmp_path)
        output = await kubectl("apply", "-f", str(file))
        assert "pod/web created" in output
        assert "priorityclass.scheduling.k8s.io/high created" in output
        assert "pod/web unchanged" in await kubectl("apply", "-f", str(file))
        # What kubectl prints as a List can be applied as well.
        file.write_text(await kubectl("get", "pods", "-o", "yaml"))
        assert "pod/web" in await kubectl("apply", "-f", str(file))
