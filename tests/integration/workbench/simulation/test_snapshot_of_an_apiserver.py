"""``proreus snapshot`` on an embedded apiserver, with the rights of a scheduler and with fewer."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

from proreus.base.errors import Forbidden
from proreus.client.credentials.credential_loading import load
from proreus.client.http.session import ApiClient
from proreus.insight.snapshots.object_files import read_cluster
from proreus.insight.snapshots.snapshot import take_snapshot
from proreus.objects.kinds import NODES, PODS
from proreus.objects.priority_class import PRIORITY_CLASSES
from proreus.workbench.sandbox import Sandbox


def pod(number: int) -> dict[str, Any]:
    env = [{"name": "PASSWORD", "value": "hunter2"}]
    return {
        "metadata": {"name": f"web-{number}", "annotations": {"note": "hunter2"}},
        "spec": {"containers": [{"name": "app", "image": "app:1", "env": env}]},
    }


async def test_the_command_writes_what_the_apiserver_has(tmp_path: Path) -> None:
    async with Sandbox(nodes=3, kubelet=None) as sandbox:
        for number in range(5):
            sandbox.store.create("pods", pod(number))
        kubeconfig = sandbox.write_kubeconfig(tmp_path / "kubeconfig")
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "proreus", "snapshot", "--kubeconfig", str(kubeconfig)),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await process.communicate()
        assert process.returncode == 0, err.decode()
        assert b"3 nodes, 5 pods" in err
    path = tmp_path / "cluster.json.gz"
    path.write_bytes(out)
    objects = read_cluster([path])
    assert (len(objects.of(NODES)), len(objects.of(PODS))) == (3, 5)
    assert "system-node-critical" in objects.of(PRIORITY_CLASSES)
    import gzip

    assert b"hunter2" not in gzip.decompress(out)


class Refusing(ApiClient):
    """A client that may not list some resources."""

    refused: frozenset[str] = frozenset()

    async def request(self, method: str, path: str, *args: Any, **named: Any) -> bytes:
        if path.rpartition("/")[2] in self.refused:
            raise Forbidden(403, "Forbidden", f"cannot list {path}")
        return await super().request(method, path, *args, **named)


@pytest.mark.parametrize("refused", ["nodes", "pods", "priorityclasses"])
async def test_only_pods_and_nodes_are_indispensable(tmp_path: Path, refused: str) -> None:
    async with Sandbox(nodes=2, kubelet=None) as sandbox:
        credentials = await load(str(sandbox.write_kubeconfig(tmp_path / "kubeconfig")))
        async with Refusing(credentials) as client:
            client.refused = frozenset({refused})
            if refused != "priorityclasses":
                with pytest.raises(Forbidden):
                    await take_snapshot(client)
                return
            objects, info = await take_snapshot(client)
    assert "PriorityClass" in info.unavailable
    assert len(objects.of(NODES)) == 2


async def test_lists_come_in_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proreus.insight.snapshots.snapshot._PAGE_SIZE", 2)
    async with Sandbox(nodes=5, kubelet=None) as sandbox:
        credentials = await load(str(sandbox.write_kubeconfig(tmp_path / "kubeconfig")))
        async with ApiClient(credentials) as client:
            objects, _ = await take_snapshot(client)
    assert len(objects.of(NODES)) == 5
