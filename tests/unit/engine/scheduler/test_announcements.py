"""Events that plugins announce themselves, and their background work."""

from __future__ import annotations

import asyncio

from proreus.framework.events import plugin_event
from proreus.framework.plugin import BackgroundPlugin, FilterPlugin
from proreus.framework.status import Status

CLOSED = Status.unschedulable("closed")


class Door(FilterPlugin, BackgroundPlugin):
    """Lets pods in once it is open; who is named ``deaf`` does not hear of it."""

    doors: list[Door] = []

    def __init__(self, args, handle) -> None:
        super().__init__(args, handle)
        self.open = self.working = False
        self.doors.append(self)

    def events_to_register(self):
        return (plugin_event("door", lambda pod, old, new: pod.name != "deaf" and new == "open"),)

    def filter(self, state, pod, node):
        return None if self.open else CLOSED

    async def run_in_background(self) -> None:
        self.working = True
        try:
            await asyncio.Event().wait()
        finally:
            self.working = False


async def test_an_announced_event_wakes_the_pods_that_wait_for_it(kit) -> None:
    world = kit.World(Door)
    world.add_node("n0")
    for name in ("p", "deaf"):
        world.add_pod(name)
    assert [await world.attempt(), await world.attempt()] == ["", ""]
    door = Door.doors.pop()
    door.handle.announce(plugin_event("door"), None, "shut")
    assert world.places() == {"unschedulable": ["p", "deaf"]}
    door.open = True
    door.handle.announce(plugin_event("door"), None, "open")
    assert world.places() == {"backoff": ["p"], "unschedulable": ["deaf"]}
    door.handle.announce(plugin_event("window"), None, "open")
    assert world.places() == {"backoff": ["p"], "unschedulable": ["deaf"]}


async def test_an_announced_event_that_nobody_registered_is_logged_once(kit, caplog) -> None:
    world = kit.World(Door)
    door = Door.doors.pop()
    for name in ("door", "window", "window"):
        door.handle.announce(plugin_event(name))
    warnings = [record.msg for record in caplog.records]
    assert warnings == ["A plugin announces an event that none registers: it wakes no pod"]
    assert world.places() == {}


async def test_background_work_begins_with_the_loop_and_ends_when_the_scheduler_is_closed(
    kit,
) -> None:
    world = kit.World(Door)
    door = Door.doors.pop()
    running = asyncio.ensure_future(world.scheduler.run())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert door.working
    world.scheduler.stop()
    await running
    assert door.working, "bindings may still need what it does"
    await world.scheduler.close()
    assert not door.working
