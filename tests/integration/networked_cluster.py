"""An offline cluster whose scheduler asks others over the network, and how to serve those others.

For HTTP extenders (``scheduler``) and for plugins in processes of their own (``remote``).
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from proreus.base.feature_gates import FeatureGates
from proreus.config.load import load
from proreus.engine.runtime.registry import Registry
from proreus.objects.kinds import NODES, PODS
from proreus.objects.pod import condition_of
from proreus.offline.cluster import OfflineCluster, OfflineOptions
from proreus.plugins import IN_TREE_PLUGINS
from proreus.testing.builders import make_node, make_pod


class NetworkedCluster(OfflineCluster):
    """The default plugins and ``plugins``; ``config`` are fields of the configuration, or its file.

    Preemption is awaited, so that an attempt ends with all that comes of it.
    """

    def __init__(
        self,
        config: dict[str, Any] | str,
        plugins: tuple[type, ...] = (),
        features: tuple[str, ...] = (),
        *,
        use_extenders: bool = False,
    ) -> None:
        gates = FeatureGates.from_list(["SchedulerAsyncPreemption=false", *features])
        registry = Registry((*IN_TREE_PLUGINS, *plugins))
        if isinstance(config, dict):
            kind = "KubeSchedulerConfiguration"
            config = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": kind, **config}
        loaded = load(config, registry, gates)
        super().__init__(loaded, registry, gates, OfflineOptions(use_extenders=use_extenders))

    def add_nodes(self, *names: str, **fields: Any) -> None:
        for name in names:
            self.api.put(NODES, make_node(name, **fields))

    def add_pod(self, name: str = "p", **fields: Any) -> None:
        self.api.put(PODS, make_pod(name, **fields).pod)

    def pod(self, name: str = "p"):
        return self.api.store(PODS)[f"default/{name}"]

    def condition(self, name: str = "p"):
        return condition_of(self.pod(name), "PodScheduled")

    def queued(self, name: str = "p"):
        return self.scheduler.queue.get(f"default/{name}")

    async def attempt(self) -> str:
        """Schedule the next pod, until its binding has ended; return the chosen node's name."""
        outcome = await self.schedule_next()
        assert outcome is not None, "no pod is ready to be scheduled"
        async with asyncio.timeout(60):
            await self.tasks.ended()
        await self.settle()
        self.scheduler.cache.validate()
        self.scheduler.queue.validate()
        return outcome[1]

    async def place(self, name: str = "p", **fields: Any) -> str:
        """Add a pod and schedule it."""
        self.add_pod(name, **fields)
        return await self.attempt()


class StandingStill:
    """A world that can be paused: changes wait, as informers have them wait."""

    def __init__(self):
        self.depth = 0
        self.held = []

    @contextlib.contextmanager
    def paused(self):
        self.depth += 1
        yield
        self.depth -= 1
        if not self.depth:
            for change in self.held:
                change()
            self.held.clear()

    def change(self, what):
        self.held.append(what) if self.depth else what()


def advance_loop_time(seconds: float) -> None:
    """Let the running loop take it to be later: time-outs are over, however long they are."""
    loop = asyncio.get_running_loop()
    now = loop.time
    loop.time = lambda: now() + seconds


Handle = Callable[[web.Request], Awaitable[web.StreamResponse]]


async def serve(
    handle: Handle, path: str = "", tls: ssl.SSLContext | None = None
) -> tuple[web.AppRunner, str]:
    """Serve all paths on a Unix socket, or a free port of the loopback; return runner and URL."""
    app = web.Application(client_max_size=2**26)
    app.router.add_route("*", "/{path:.*}", handle)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    if path:
        await web.UnixSite(runner, path).start()
        return runner, f"unix://{path}"
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
    return runner, f"{'https' if tls else 'http'}://127.0.0.1:{runner.addresses[0][1]}"
