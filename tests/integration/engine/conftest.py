"""A scripted extender on a real socket, and an offline cluster whose scheduler asks it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiohttp import web

from ..networked_cluster import NetworkedCluster, serve


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


@pytest.fixture
async def start_extender():
    """Return a function that starts one more extender."""
    runners = []

    async def start(tls=None, **answers: Any) -> ScriptedExtender:
        extender = ScriptedExtender(answers)
        runner, address = await serve(extender.handle, tls=tls)
        extender.url = f"{address}/scheduler"
        runners.append(runner)
        return extender

    yield start
    for runner in runners:
        await runner.cleanup()


@pytest.fixture
async def make_cluster():
    """Return a function that makes a world from the configurations of extenders."""
    worlds = []

    def make(
        *extenders: dict[str, Any], nodes: int = 3, features: tuple[str, ...] = (), **config: Any
    ) -> NetworkedCluster:
        config["extenders"] = list(extenders)
        world = NetworkedCluster(config, features=features, use_extenders=True)
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
