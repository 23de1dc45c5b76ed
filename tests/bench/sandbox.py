"""The speed of the embedded cluster: ``python tests/bench/sandbox.py [--nodes N] [--pods N]``.

Client and server share one process and one core, as in the demo; the figures hold both sides.
"""

import argparse
import asyncio
import json
import resource
import time
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import uvloop

from proreus.workbench.sandbox import ListenOptions, Sandbox

CONNECTIONS = 32
EVENT = {
    "metadata": {"generateName": "pod."},
    "reason": "Scheduled",
    "action": "Binding",
    "type": "Normal",
    "note": "Successfully assigned default/pod to node",
    "reportingController": "bench",
    "reportingInstance": "bench-1",
    "eventTime": "2026-01-01T00:00:00.000000Z",
    "regarding": {"kind": "Pod", "namespace": "default", "name": "pod"},
}


def make_pod(number: int) -> dict[str, Any]:
    resources = {"requests": {"cpu": "100m", "memory": "128Mi"}}
    return {
        "metadata": {"name": f"pod-{number}", "labels": {"app": f"app-{number % 50}"}},
        "spec": {"containers": [{"name": "main", "image": "image:1", "resources": resources}]},
    }


def say(what: str, count: int, seconds: float) -> None:
    print(f"{what:46} {count / seconds:10,.0f} /s   {seconds / count * 1e6:9.1f} µs each")


async def measure(what: str, count: int, act: Callable[[int], Awaitable[None]]) -> None:
    """Call ``act`` ``count`` times, concurrently over all connections."""

    async def worker(first: int) -> None:
        for number in range(first, count, CONNECTIONS):
            await act(number)

    begun = time.perf_counter()
    await asyncio.gather(*(worker(first) for first in range(CONNECTIONS)))
    say(what, count, time.perf_counter() - begun)


class Watcher:
    """Counts the events of a watch of all pods."""

    def __init__(self, http: aiohttp.ClientSession) -> None:
        self._http = http
        self.events = self.chunks = 0
        self._came = asyncio.Event()

    async def run(self, query: dict[str, str]) -> None:
        query = {"watch": "true", "allowWatchBookmarks": "true"} | query
        async with self._http.get("/api/v1/pods", params=query) as response:
            async for chunk in response.content.iter_any():
                self.chunks += 1
                self.events += chunk.count(b"\n")
                self._came.set()

    async def seen(self, events: int) -> None:
        while self.events < events:
            self._came.clear()
            await self._came.wait()


async def bench(nodes: int, pods: int, writes: int) -> None:
    begun = time.perf_counter()
    async with Sandbox(nodes, listen=ListenOptions(tls=False)) as sandbox:
        say("node created in process", nodes, time.perf_counter() - begun)
        begun = time.perf_counter()
        for number in range(pods):
            sandbox.store.create("pods", make_pod(number))
        say("pod created in process", pods, time.perf_counter() - begun)
        headers = {"Authorization": f"Bearer {sandbox.token}"}
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(
            sandbox.url, headers=headers, connector=connector, read_bufsize=1 << 20
        ) as http:
            await read(http, sandbox, pods)
            await write(http, sandbox, nodes, writes)
        await asyncio.sleep(0)
    megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{'largest size of the process':46} {megabytes:10,.0f} MiB")


async def read(http: aiohttp.ClientSession, sandbox: Sandbox, pods: int) -> None:
    begun = time.perf_counter()
    async with http.get("/api/v1/pods") as response:
        size = len(await response.read())
    say(f"pod listed ({size / 1e6:.0f} MB in one list)", pods, time.perf_counter() - begun)
    watcher = Watcher(http)
    begun = time.perf_counter()
    query = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
    task = asyncio.create_task(watcher.run(query))
    await watcher.seen(pods + 1)
    say("pod streamed (WatchList)", pods, time.perf_counter() - begun)
    task.cancel()


async def write(http: aiohttp.ClientSession, sandbox: Sandbox, nodes: int, writes: int) -> None:
    pods = "/api/v1/namespaces/default/pods"
    merge = {"Content-Type": "application/strategic-merge-patch+json"}

    async def send(method: str, path: str, body: Any, headers: dict[str, str] | None) -> None:
        async with http.request(method, path, data=json.dumps(body), headers=headers) as response:
            await response.read()
            assert response.status in (200, 201), await response.text()

    async def patch_status(number: int) -> None:
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
        body = {"status": {"conditions": [condition]}}
        await send("PATCH", f"{pods}/pod-{number}/status", body, merge)

    async def bind(number: int) -> None:
        target = {"kind": "Node", "name": f"node-{number % nodes:0{len(str(nodes - 1))}d}"}
        body = {"metadata": {"name": f"pod-{number}"}, "target": target}
        await send("POST", f"{pods}/pod-{number}/binding", body, None)

    async def post_event(number: int) -> None:
        await send("POST", "/apis/events.k8s.io/v1/namespaces/default/events", EVENT, None)

    watcher = Watcher(http)
    query = {"resourceVersion": str(sandbox.store.revision)}
    task = asyncio.create_task(watcher.run(query))
    await asyncio.sleep(0.05)
    await measure("PATCH of a pod's status, one watcher", writes, patch_status)
    await measure("POST of a binding, one watcher, kubelets", writes, bind)
    await measure("POST of an event", writes, post_event)
    begun = time.perf_counter()
    await watcher.seen(3 * writes)
    print(f"{'then until every pod runs':46} {time.perf_counter() - begun:10.2f} s")
    print(
        f"{'events in one write of a watch, on average':46} {watcher.events / watcher.chunks:10.1f}"
    )
    task.cancel()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--pods", type=int, default=50000)
    parser.add_argument("--writes", type=int, default=10000)
    options = parser.parse_args()
    uvloop.run(bench(options.nodes, options.pods, min(options.writes, options.pods)))


if __name__ == "__main__":
    main()
