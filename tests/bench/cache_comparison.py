"""What a comparison of the cache with the apiserver costs: CPU, and the longest step.

    PYTHONPATH=tests python -m bench.cache_comparison [--nodes 5000] [--pods 50000]

The apiserver is a function that returns prepared pages. Steps are measured in CPU time of the
thread, so that other work of the machine does not count.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import random
import time
from typing import Any
from urllib.parse import parse_qs

import uvloop
from msgspec.structs import replace

from proreus.base.clock import RealClock
from proreus.base.metrics import SchedulerMetrics
from proreus.client.watching.informer import Informer
from proreus.client.watching.store_comparer import PAGE_SIZE, StoreComparer
from proreus.engine.cache.cache import Cache
from proreus.engine.debugger.cache_comparer import CacheComparer
from proreus.engine.debugger.debugger import CacheDebugger
from proreus.engine.event_handlers import NodeHandlers, PodHandlers
from proreus.engine.queue.scheduling_queue import SchedulingQueue
from proreus.engine.runtime.waiting_pods import WaitingPods
from proreus.framework.pod_label_groups import PodMatch, PodQuery
from proreus.objects.kinds import NODES, PODS
from proreus.objects.selectors import LabelSelector, parse_label_selector
from proreus.testing.builders import make_node, make_pod

_WORKLOADS = 200
_QUERIES = 30
_MANAGED_FIELDS = [{"manager": "m", "fieldsV1": {f"f:field-{number}": {} for number in range(60)}}]


class Apiserver:
    """Returns lists of metadata, page by page."""

    def __init__(self) -> None:
        self._pages: dict[str, dict[int, bytes]] = {}

    def serve(self, path: str, objects: list[Any]) -> None:
        """Prepare the pages of a list."""
        pages = self._pages[path] = {}
        for start in range(0, len(objects), PAGE_SIZE):
            end = start + PAGE_SIZE
            meta = {"resourceVersion": "9999999", "continue": str(end) * (end < len(objects))}
            items = [{"metadata": _metadata(obj)} for obj in objects[start:end]]
            pages[start] = json.dumps({"metadata": meta, "items": items}).encode()

    async def request(self, method: str, path: str, *, query: str = "", **_: object) -> bytes:
        """Return a page."""
        await asyncio.sleep(0.001)
        return self._pages[path][int(parse_qs(query).get("continue", ["0"])[0])]


def _metadata(obj: Any) -> dict[str, Any]:
    meta = obj.metadata
    return {
        "name": meta.name,
        "namespace": meta.namespace,
        "uid": meta.uid,
        "resourceVersion": meta.resource_version,
        "labels": meta.labels,
        "managedFields": _MANAGED_FIELDS,
    }


def _stamped(obj: Any, number: int) -> Any:
    meta = replace(obj.metadata, resource_version=str(1000 + number))
    return replace(obj, metadata=meta)


def _debugger(nodes: int, pods: int) -> CacheDebugger:
    """Return a debugger of a cluster; a fiftieth of the pods is pending."""
    apiserver = Apiserver()
    node_informer: Any = Informer(apiserver, NODES)  # type: ignore[arg-type]
    pod_informer: Any = Informer(apiserver, PODS)  # type: ignore[arg-type]
    metrics, clock = SchedulerMetrics(), RealClock()
    cache = Cache(clock)
    queue = SchedulingQueue(clock=clock, pod_lister=pod_informer.store.get, metrics=metrics)
    node_handlers = NodeHandlers(cache=cache, queue=queue, metrics=metrics)
    pod_handlers = PodHandlers(
        cache=cache,
        queue=queue,
        waiting_pods=WaitingPods(clock),
        scheduler_names={"default-scheduler"},
        metrics=metrics,
    )
    node_informer.add_handler(node_handlers)
    pod_informer.add_handler(pod_handlers)
    labels = {f"label-{number}": "value" for number in range(20)}
    images = {f"image-{number}": 1000 for number in range(20)}
    all_nodes = [make_node(f"n{number}", labels=labels, images=images) for number in range(nodes)]
    all_pods = [
        make_pod(
            f"p{number}",
            cpu="10m",
            memory="1Mi",
            labels={"app": f"a{number % _WORKLOADS}"},
            node_name=f"n{number % nodes}" if number % 50 else "",
        ).pod
        for number in range(pods)
    ]
    for informer, path, objects in (
        (node_informer, "/api/v1/nodes", all_nodes),
        (pod_informer, "/api/v1/pods", all_pods),
    ):
        stamped = [_stamped(obj, number) for number, obj in enumerate(objects)]
        informer.replace(stamped)
        apiserver.serve(path, stamped)
    for number in range(_QUERIES):
        selector = parse_label_selector(LabelSelector(match_labels={"app": f"a{number}"}))
        cache.table.count_pods(PodQuery((PodMatch(None, selector),)))
    return CacheDebugger(
        comparer=CacheComparer(
            cache=cache,
            queue=queue,
            nodes=node_informer.store,
            pods=pod_informer.store,
            is_under_way=lambda uid: False,
            node_handlers=node_handlers,
            pod_handlers=pod_handlers,
        ),
        stores=lambda: [StoreComparer(node_informer), StoreComparer(pod_informer)],
        cache=cache,
        queue=queue,
        between_cycles=lambda change: change(),
        metrics=metrics,
        stopwatch=time.perf_counter,
        rng=random.Random(1),
    )


async def _steps(found: list[float]) -> None:
    """Record how much CPU time passes between two turns of the event loop."""
    last = time.thread_time()
    while True:
        await asyncio.sleep(0)
        now = time.thread_time()
        found.append(now - last)
        last = now


async def _measure(nodes: int, pods: int, rounds: int) -> None:
    debugger = _debugger(nodes, pods)
    gc.freeze()
    gc.disable()
    for _ in range(rounds):
        before = time.thread_time()
        corrected = await debugger.compare()
        seconds = time.thread_time() - before
        steps: list[float] = []
        watching = asyncio.create_task(_steps(steps))
        await asyncio.sleep(0.01)
        steps.clear()
        await debugger.compare()
        watching.cancel()
        print(
            f"{nodes} nodes, {pods} pods: {seconds:.2f} s of CPU, longest step "
            f"{max(steps) * 1000:.1f} ms, corrected {len(corrected)}"
        )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--pods", type=int, default=50000)
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    uvloop.run(_measure(asked.nodes, asked.pods, asked.rounds))


if __name__ == "__main__":
    main()
