from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from importlib.util import module_from_spec, spec_from_file_location
from typing import Any

import pytest
from aiohttp import web

from proreus.framework import ApiError, CycleState
from proreus.testing import FakeHandle, Harness, make_node, make_plugin, make_pod


@pytest.fixture
def server(request) -> Any:
    """Return the example's own server, with two seats, not started yet."""
    spec = spec_from_file_location("licence_server", request.path.parent / "licence_server.py")
    assert spec is not None
    module = sys.modules["licence_server"] = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.LicenceServer({"cad": 2})


@pytest.fixture
def start(plugin, server) -> Iterator[Callable[..., Harness]]:
    """Return a function that makes a cluster whose plugin uses the server."""
    running: list[tuple[Harness, web.AppRunner]] = []

    def make(app: web.Application | None = None, **args: Any) -> Harness:
        # A free port is known once the server listens, and it listens in the harness's loop.
        outer = Harness([plugin], [make_node("n")], args={plugin.name: {"url": "http://x", **args}})
        runner = web.AppRunner(app or server.app(), shutdown_timeout=0.1)
        running.append((outer, runner))

        async def listen() -> int:
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            return runner.addresses[0][1]

        made = outer.plugin(plugin)
        url = f"http://127.0.0.1:{outer.run(listen())}"
        made.args = made.args.model_copy(update={"url": url})
        return outer

    yield make
    for cluster, runner in running:
        cluster.run(runner.cleanup())
        cluster.close()


def licensed(name: str):
    return make_pod(name, cpu="100m", labels={"example.com/licence": "cad"})


def uid(name: str) -> str:
    return f"uid-of-default-{name}"


def settled(cluster: Harness, name: str, *wanted: str) -> None:
    cluster.schedule(licensed(name))
    cluster.wait_until(lambda: cluster.outcome(name).state in wanted)


def test_a_seat_is_granted_before_the_pod_is_bound_and_the_server_is_notified(
    start, server
) -> None:
    cluster = start()
    settled(cluster, "p", "bound")
    cluster.wait_until(lambda: server.notified)
    assert server.held == {"cad": {uid("p")}}
    assert server.notified == [{"pod": "default/p", "node": "n", "product": "cad"}]
    assert cluster.schedule(make_pod("plain")).bound
    assert len(server.notified) == 1


def test_without_a_free_seat_a_pod_waits_for_one_to_be_given_back(start, server) -> None:
    cluster = start()
    for name in ("p", "q"):
        settled(cluster, name, "bound")
    settled(cluster, "late", "unschedulable")
    assert "no licence for cad is free" in cluster.outcome("late").message
    again = cluster.schedule(licensed("later"))
    assert again.rejected_by == {"ReserveAndNotify"}, "rejected without a request"
    cluster.patch("Pod", "later", {"metadata": {"labels": {"example.com/licence": None}}})
    assert cluster.queue_of("later") != "unschedulable", "it needs no licence any more"
    cluster.remove("Pod", "p")
    cluster.wait_until(lambda: cluster.queue_of("late") != "unschedulable")
    cluster.advance(2)
    settled(cluster, "late", "bound")
    assert server.held == {"cad": {uid("q"), uid("late")}}


def test_a_pod_that_is_not_bound_gives_its_seat_back(start, server, monkeypatch) -> None:
    cluster = start()

    async def fail(*_: object) -> None:
        raise ApiError(500, "InternalError", "the apiserver is gone")

    with monkeypatch.context() as patch:
        patch.setattr(cluster.api, "bind", fail)
        settled(cluster, "p", "error")
    cluster.wait_until(lambda: server.held == {"cad": set()})
    cluster.advance(5)
    settled(cluster, "p", "bound")


def test_a_server_that_is_not_there_delays_the_pod_and_is_notified_later(
    start, server, caplog
) -> None:
    statuses = iter([503, 503])
    app = server.app()

    async def moody(request: web.Request, handler: Any) -> web.StreamResponse:
        status = next(statuses, 0)
        return web.Response(status=status) if status else await handler(request)

    app.middlewares.append(web.middleware(moody))
    cluster = start(app)
    settled(cluster, "p", "error")
    cluster.wait_until(lambda: "Licence server was not notified" in caplog.text)
    cluster.advance(5)
    settled(cluster, "p", "bound")
    assert server.held == {"cad": {uid("p")}}


def test_queued_notifications_are_sent_before_the_end(start, server, plugin) -> None:
    cluster = start()

    state = CycleState()
    state.write(plugin.name, "cad")
    cluster.plugin(plugin).post_bind(state, licensed("p"), "n")
    cluster.stop_background()
    assert [one["pod"] for one in server.notified] == ["default/p"]


@pytest.mark.parametrize("url", ["ftp://licences", "licences:80"])
def test_the_url_must_be_one(plugin, url) -> None:
    with pytest.raises(ValueError, match="url"):
        make_plugin(plugin, FakeHandle(), {"url": url})
