"""How long a process waits for its informers."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from proreus.base.errors import ConfigError, Forbidden
from proreus.client.watching.informer import InformerGroup
from proreus.process.informer_sync import REFUSED_LIMIT_SECONDS, InformerSync

pytestmark = pytest.mark.looptime


class Stores:
    """Informers of which some cannot list."""

    def __init__(self, synced: tuple[str, ...], refused: tuple[str, ...]) -> None:
        self.group = InformerGroup()
        for kind in (*synced, *refused):
            informer: Any = SimpleNamespace(
                resource=SimpleNamespace(id=kind), synced=asyncio.Event()
            )
            self.group.add(informer)
            if kind in synced:
                informer.synced.set()


def informer_sync(stores: Any) -> InformerSync:
    return InformerSync(lambda _: stores)


def refusal(kind: str) -> tuple[Any, Forbidden]:
    resource = SimpleNamespace(id=kind, plural=kind.lower() + "s")
    return resource, Forbidden(403, "Forbidden", "no")


async def test_the_first_lists_are_waited_for() -> None:
    stores, loop = Stores(("Pod",), ("Node",)), asyncio.get_running_loop()
    loop.call_later(500, stores.group.by_kind["Node"].synced.set)
    await informer_sync(stores).wait_for_first_lists()
    assert loop.time() == 500


async def test_a_resource_that_stays_refused_ends_the_start() -> None:
    sync = informer_sync(Stores(("Pod",), ("Node",)))
    sync.on_error(*refusal("Node"))
    with pytest.raises(Forbidden, match="refuses the watch of nodes"):
        await sync.wait_for_first_lists()
    assert asyncio.get_running_loop().time() == pytest.approx(REFUSED_LIMIT_SECONDS, abs=2)


async def test_a_configuration_waits_for_the_kinds_that_it_needs_itself() -> None:
    """A kind that an earlier, refused configuration asked for has nothing to do with it."""
    loop = asyncio.get_running_loop()
    stores = Stores(("Pod", "Node"), ())
    sync = informer_sync(stores)
    await sync.wait_for_first_lists()
    for informer in Stores((), ("Quota", "Licence")).group.by_kind.values():
        stores.group.add(informer)
    await sync.wait_for_kinds({}, {"Pod"})
    assert loop.time() == 0
    with pytest.raises(ConfigError, match="plugins need Licence, which cannot be watched"):
        await sync.wait_for_kinds({}, {"Node", "Licence"})
    assert loop.time() == 30


async def test_before_the_first_lists_new_kinds_are_waited_for_with_all_others() -> None:
    await informer_sync(Stores((), ("Pod", "Quota"))).wait_for_kinds({}, {"Quota"})
    assert asyncio.get_running_loop().time() == 0


class Informers:
    """A group of informers of which one is not connected until ``connect``."""

    disconnected = ("Pod",)

    def __init__(self) -> None:
        self.connected = asyncio.Event()

    async def wait_until_connected(self) -> None:
        await self.connected.wait()


async def test_a_new_leader_waits_for_its_watches(caplog: pytest.LogCaptureFixture) -> None:
    informers, loop = Informers(), asyncio.get_running_loop()
    sync = informer_sync(SimpleNamespace(group=informers))
    loop.call_later(7, informers.connected.set)
    await sync.catch_up()
    assert 7 <= loop.time() < 8
    await sync.catch_up()
    assert loop.time() < 8
    assert not caplog.messages
    informers.connected.clear()
    await sync.catch_up()
    assert 37 <= loop.time() < 39
    assert caplog.messages == ["Leading, although some resources cannot be watched"]
