"""The condition of a PodGroup is that of the latest attempt, whatever the network does."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from proreus.clock import FakeClock
from proreus.errors import ApiError
from proreus.framework.status import Status
from proreus.objects.meta import ObjectMeta
from proreus.objects.scheduling import PodGroup
from proreus.scheduler.pod_group_status import PodGroupStatusWriter

NO = Status.unschedulable("no")


class SlowApi:
    """Patches arrive when the test lets them."""

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.gate = asyncio.Event()
        self.fails = False

    async def patch_status(self, resource: Any, namespace: str, name: str, patch: Any) -> None:
        self.sent.append(patch["status"]["conditions"][0]["status"])
        await self.gate.wait()
        if self.fails:
            raise ApiError(500, "InternalError", "no")


class Told:
    def __init__(self) -> None:
        self.groups = {"default/g": PodGroup(metadata=ObjectMeta(name="g", namespace="default"))}
        self.api = SlowApi()
        self.tasks: list[asyncio.Task[None]] = []
        self.writer = PodGroupStatusWriter(
            self.groups,
            self.api,  # type: ignore[arg-type]
            FakeClock(1_700_000_000.0),
            lambda work: self.tasks.append(asyncio.ensure_future(work)),
        )

    async def rest(self) -> list[str]:
        self.api.gate.set()
        await asyncio.gather(*self.tasks)
        return self.api.sent


@pytest.fixture
async def told() -> Told:
    return Told()


async def test_a_later_condition_is_written_after_the_earlier_one(told: Told) -> None:
    told.writer.write("default/g", NO)
    await asyncio.sleep(0)
    told.writer.write("default/g", Status.unschedulable("never sent"))
    told.writer.write("default/g", None)
    await asyncio.sleep(0)
    assert told.api.sent == ["False"]

    assert await told.rest() == ["False", "True"]


async def test_what_was_written_counts_before_the_watch_tells_of_it(told: Told) -> None:
    told.writer.write("default/g", None)
    await told.rest()
    told.writer.write("default/g", NO)
    told.writer.write("default/g", None)
    assert await told.rest() == ["True"]

    told.groups["default/g"] = PodGroup(metadata=ObjectMeta(name="g", namespace="default"))
    told.writer.write("default/g", NO)
    assert await told.rest() == ["True", "False"]


async def test_what_could_not_be_written_is_written_again(told: Told) -> None:
    told.api.fails = True
    told.writer.write("default/g", NO)
    await told.rest()
    told.writer.write("default/g", NO)
    assert await told.rest() == ["False", "False"]


async def test_a_group_that_is_gone_is_left_alone(told: Told) -> None:
    told.writer.write("default/g", NO)
    told.groups.clear()
    told.writer.write("default/g", None)
    assert await told.rest() == []
