"""The bare client: binds each pending pod to the next node, and does nothing else.

    python -m proreus.workbench.bench.bare KUBECONFIG [LEASE]

It starts when the Lease, if one is named, has no holder, and takes it. It neither checks whether a
pod fits nor writes Events or conditions: it measures how fast the apiserver takes Bindings from a
Python client under the same workload.
"""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from pathlib import Path

import msgspec
import uvloop

from proreus.base.errors import ApiError
from proreus.client.watching.informer import Informer
from proreus.objects.kinds import NODES
from proreus.objects.meta import ApiStruct, ObjectMeta, Resource, Untyped
from proreus.workbench.bench.api import Api, connected, encode

CONCURRENCY = 64


class _Spec(ApiStruct, frozen=True):
    node_name: str = ""
    scheduling_gates: tuple[ApiStruct, ...] = ()


class PendingPod(ApiStruct, frozen=True):
    """The fields of a pod that are needed to bind it."""

    metadata: ObjectMeta = ObjectMeta()
    spec: _Spec = _Spec()


PODS = Resource("", "v1", "pods", "Pod", True, PendingPod)


class Binder:
    """Binds all pending pods, in turn to each node."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._waiting: deque[PendingPod] = deque()
        self._available = asyncio.Semaphore(0)
        nodes = msgspec.structs.replace(NODES, type=Untyped)
        self._nodes = Informer(api.client, nodes)
        self._pods = Informer(api.client, PODS, field_selector="spec.nodeName=")
        self._pods.add_handler(self)
        self._nodes.add_batch_hook(self._on_nodes)
        self._names: list[str] = []
        self._number = 0

    def on_add(self, pod: PendingPod) -> None:
        """Enqueue a pod, unless it is gated or being deleted."""
        if not pod.spec.scheduling_gates and pod.metadata.deletion_timestamp is None:
            self._waiting.append(pod)
            self._available.release()

    def on_update(self, old: PendingPod, new: PendingPod) -> None:
        """Enqueue a pod whose scheduling gates were removed."""
        if old.spec.scheduling_gates:
            self.on_add(new)

    def on_delete(self, pod: PendingPod, final_state_unknown: bool) -> None:
        """Ignore deletions: a bound pod leaves this watch, which selects unbound ones."""

    async def run(self, lease: str) -> None:
        """Bind until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._nodes.run())
            tasks.create_task(self._pods.run())
            await self._nodes.synced.wait()
            await self._wait_for(lease)
            for _ in range(CONCURRENCY):
                tasks.create_task(self._bind_all())

    async def _bind_all(self) -> None:
        while True:
            await self._available.acquire()
            pod = self._waiting.popleft()
            if nodes := self._names:
                self._number += 1
                await self._bind(pod, nodes[self._number % len(nodes)])
            else:
                await asyncio.sleep(0.1)
                self.on_add(pod)

    async def _wait_for(self, lease: str) -> None:
        """Wait until a Lease, given by its path, has no holder, and take it."""
        held = bool(lease)
        while held:
            held = bool((await self._api.get(lease))["spec"].get("holderIdentity"))
            await asyncio.sleep(0.2 * held)
        if lease:
            await self._api.patch(lease, {"spec": {"holderIdentity": "bare"}})

    def _on_nodes(self) -> None:
        self._names = list(self._nodes.store)

    async def _bind(self, pod: PendingPod, node: str) -> None:
        namespace, name = pod.metadata.namespace, pod.metadata.name
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": name, "namespace": namespace, "uid": pod.metadata.uid},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        path = f"/api/v1/namespaces/{namespace}/pods/{name}/binding"
        try:
            await self._api.request("POST", path, encode(body))
        except ApiError as error:
            if error.status not in (404, 409):
                print(f"{path}: {error}", file=sys.stderr)


async def main(kubeconfig: Path, lease: str = "") -> None:
    """Bind the pods of a cluster until the process is ended."""
    async with connected(kubeconfig, "bare") as api:
        await Binder(api).run(lease)


if __name__ == "__main__":
    uvloop.run(main(Path(sys.argv[1]), *sys.argv[2:]))
