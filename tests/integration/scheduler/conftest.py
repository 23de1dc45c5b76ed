"""A scripted extender on a real socket, and an offline cluster whose scheduler asks it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiohttp import web

from proreus.config.load import load
from proreus.feature_gates import FeatureGates
from proreus.objects.kinds import NODES, PODS
from proreus.objects.pod import condition_of
from proreus.offline.cluster import OfflineCluster
from proreus.plugins import IN_TREE
from proreus.runtime.registry import Registry
from proreus.testing.builders import make_node, make_pod


@dataclass
class Call:
    """One request."""

    verb: str
    body: bytes
    headers: dict[str, str]
    request: web.Request

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class ScriptedExtender:
    """Answers each verb with what ``answers`` holds: a value, a Response, or a function."""

    answers: dict[str, Any] = field(default_factory=dict)
    calls: list[Call] = field(default_factory=list)
    url: str = ""

    def verbs(self) -> list[str]:
        return [call.verb for call in self.calls]

    async def handle(self, request: web.Request) -> web.StreamResponse:
        verb = request.path.rpartition("/")[2]
        call = Call(verb, await request.read(), dict(request.headers), request)
        self.calls.append(call)
        assert request.method == "POST"
        answer = self.answers[verb]
        if callable(answer):
            answer = answer(call)
            if asyncio.iscoroutine(answer):
                answer = await answer
        if isinstance(answer, web.StreamResponse):
            return answer
        return web.json_response(answer)


async def serve(extender: ScriptedExtender, tls=None):
    """Serve on a free port of the loopback; return the runner and the base URL."""
    app = web.Application(client_max_size=2**26)
    app.router.add_route("*", "/{path:.*}", extender.handle)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
    await site.start()
    port = runner.addresses[0][1]
    extender.url = f"{'https' if tls else 'http'}://127.0.0.1:{port}/scheduler"
    return runner


@pytest.fixture
async def start_extender():
    """Return a function that starts one more extender."""
    runners = []

    async def start(tls=None, **answers: Any) -> ScriptedExtender:
        extender = ScriptedExtender(answers)
        runners.append(await serve(extender, tls))
        return extender

    yield start
    for runner in runners:
        await runner.cleanup()


class World(OfflineCluster):
    """An offline cluster with the default plugins, whose extenders are asked."""

    def __init__(self, *extenders: dict[str, Any], features: tuple[str, ...] = (), **config: Any):
        gates = FeatureGates.from_list(["SchedulerAsyncPreemption=false", *features])
        registry = Registry(IN_TREE)
        raw = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "extenders": list(extenders),
            **config,
        }
        super().__init__(load(raw, registry, gates), registry, gates, ask_extenders=True)

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
        async with asyncio.timeout(10):
            while self._tasks:
                await asyncio.wait(set(self._tasks))
        await self.settle()
        self.scheduler.cache.validate()
        self.scheduler.queue.validate()
        return outcome[1]


@pytest.fixture
async def make_world():
    """Return a function that makes a world from the configurations of extenders."""
    worlds = []

    def make(*extenders: dict[str, Any], nodes: int = 3, **config: Any) -> World:
        world = World(*extenders, **config)
        world.add_nodes(*(f"n{number}" for number in range(nodes)))
        worlds.append(world)
        return world

    yield make
    for world in worlds:
        await world.scheduler.close()


@pytest.fixture
def configured() -> Callable[..., dict[str, Any]]:
    """Return a function that writes the configuration of an extender, names in place of objects."""

    def configure(extender: ScriptedExtender | str, *verbs: str, **more: Any) -> dict[str, Any]:
        url = extender if isinstance(extender, str) else extender.url
        config = {"urlPrefix": url, "nodeCacheCapable": True, **{f"{v}Verb": v for v in verbs}}
        if "prioritize" in verbs:
            config["weight"] = 1
        return config | more

    return configure
