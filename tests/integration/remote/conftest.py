"""A remote plugin in a server of its own, as its author would write it, and a cluster with it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiohttp import web

from proreus.base.metrics import SchedulerMetrics
from proreus.remote.classes import plugin_class
from proreus.remote.descriptor import MOST_TIMEOUT_SECONDS
from proreus.remote.handshake import connect

from .. import networked_cluster
from ..networked_cluster import NetworkedCluster


def resync() -> web.Response:
    return web.json_response({"error": "resync"}, status=409)


@dataclass
class Served:
    """Keeps the nodes that it is sent; ``answers`` by the last part of the path decide the rest.

    An answer is a value, a Response, or a function of (self, question). Without one: {}.
    """

    descriptor: dict[str, Any]
    answers: dict[str, Any] = field(default_factory=dict)
    calls: list[tuple[str, Any]] = field(default_factory=list)
    health: dict[str, Any] = field(default_factory=dict)
    ill: bool = False
    address: str = ""
    snapshot: tuple[str, int] | None = None
    profiles: dict[str, Any] | None = None
    columns: dict[str, list[Any]] = field(default_factory=dict)

    def paths(self) -> list[str]:
        return [path for path, _ in self.calls]

    def asked(self, path: str) -> list[Any]:
        return [question for called, question in self.calls if called == path]

    def forget(self) -> None:
        """Be a process that was started anew."""
        self.snapshot, self.profiles = None, None
        self.columns.clear()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        path = request.path.removeprefix("/v1/")
        if request.method == "GET":
            if path == "descriptor":
                return web.json_response({"protocol": "v1", **self.descriptor})
            assert path == "health"
            return web.json_response(self.health, status=503 if self.ill else 200)
        question = await request.json()
        self.calls.append((path, question))
        answer = self.answers.get(path)
        if callable(answer):
            answer = answer(self, question)
            if asyncio.iscoroutine(answer):
                answer = await answer
        if answer is None:
            answer = self.by_the_book(path, question)
        return answer if isinstance(answer, web.StreamResponse) else web.json_response(answer)

    def by_the_book(self, path: str, question: Any) -> Any:
        if path == "profiles":
            if not question.get("check"):
                self.profiles = question["profiles"]
        elif path == "nodes":
            return self.take(question)
        elif path in ("filter", "score"):
            if self.snapshot != (question["snapshot"], question["version"]):
                return resync()
            rows = self.rows(question)
            return {} if path == "filter" else {"scores": [0] * len(rows)}
        return {}

    def take(self, news: Any) -> Any:
        size, rows = news["size"], news["rows"]
        if rows is None:
            self.columns = {name: [None] * size for name in news["columns"]}
            rows = range(size)
        elif self.snapshot != (news["snapshot"], news["base"]):
            return resync()
        for name, sent in news["columns"].items():
            if isinstance(sent, dict):
                values = sent["values"]
                sent = [values[code] if code >= 0 else None for code in sent["codes"]]
            column = self.columns[name]
            column[size:] = [None] * (size - len(column))
            for row, value in zip(rows, sent, strict=True):
                column[row] = value
        self.snapshot = (news["snapshot"], news["version"])
        return {}

    def rows(self, question: Any) -> list[int]:
        rows = question["rows"]
        return list(range(len(self.columns["name"]))) if rows is None else rows

    def names(self, question: Any) -> list[str]:
        return [self.columns["name"][row] for row in self.rows(question)]


async def serve(served: Served, path: str = "") -> web.AppRunner:
    runner, served.address = await networked_cluster.serve(served.handle, path)
    return runner


@pytest.fixture
async def start():
    """Return a function that starts a plugin: its points, answers by path, more of a descriptor.

    Unless a test is about time-outs, the longest is allowed: a busy machine is no fault.
    """
    runners = []

    async def begin(*points: str, path: str = "", **more: Any) -> Served:
        answers = {key: more.pop(key) for key in list(more) if key in ANSWERED.split()}
        named = {key.replace("_", "-"): value for key, value in answers.items()}
        descriptor = {
            "name": "Far",
            "points": points,
            "timeoutSeconds": MOST_TIMEOUT_SECONDS,
            **more,
        }
        served = Served(descriptor, named)
        served.runner = await serve(served, path)
        runners.append(served)
        return served

    yield begin
    for served in runners:
        await served.runner.cleanup()


ANSWERED = (
    "profiles nodes pre_filter filter score reserve unreserve permit waiting pre_bind post_bind"
)
"""What ``start`` takes for answers."""


class World(NetworkedCluster):
    """An offline cluster with the default plugins and one that is served."""

    def __init__(self, plugin: type, args: Any = None, config: str = ""):
        name = plugin.name
        profile: dict[str, Any] = {"plugins": {"multiPoint": {"enabled": [{"name": name}]}}}
        if args is not None:
            profile["pluginConfig"] = [{"name": name, "args": args}]
        super().__init__(config or {"profiles": [profile]}, (plugin,))
        self.endpoint = plugin.endpoint
        (self.plugin,) = (
            p for p in self.scheduler.profiles["default-scheduler"].plugins if p.name == name
        )


@pytest.fixture
async def make_cluster():
    """Return a function that makes a world around a served plugin, background work included."""
    made = []

    async def make(
        served: Served | str, *, nodes: int = 3, background: bool = False, **config: Any
    ) -> World:
        address = served if isinstance(served, str) else served.address
        endpoint = await connect(address, SchedulerMetrics(), 0.0)
        world = World(plugin_class(endpoint), **config)
        world.add_nodes(*(f"n{number}" for number in range(nodes)))
        task = None
        if background:
            task = asyncio.create_task(world.plugin.run_in_background())
        made.append((world, task))
        return world

    yield make
    for world, task in made:
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
        await world.endpoint.close()
        await world.scheduler.close()


async def until(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    """Wait until something is so."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - it has no event that could be waited for
            await asyncio.sleep(0.01)


HOT = {"statuses": [{"code": "Unschedulable", "reasons": ["node(s) are too hot"]}]}


def rejecting(*names, **more):
    """Reject the named nodes, all for the first reason."""
    return lambda served, question: {
        "rejected": [
            row
            for row, name in zip(served.rows(question), served.names(question), strict=True)
            if name in names
        ],
        **HOT,
        **more,
    }


def scoring(**scores):
    return lambda served, question: {
        "scores": [scores.get(name, 0) for name in served.names(question)]
    }
