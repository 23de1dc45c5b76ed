"""The condition of a PodGroup, in whatever order its writes end."""

from __future__ import annotations

import asyncio

import pytest

from proreus.base.clock import FakeClock
from proreus.base.errors import ApiError
from proreus.engine.cache.pod_group_states import PodGroupStates
from proreus.engine.groups.status import PodGroupStatusWriter
from proreus.framework.status import Status
from proreus.objects.meta import ObjectMeta
from proreus.objects.scheduling import (
    POD_GROUP_SCHEDULED,
    POD_GROUPS,
    Condition,
    PodGroup,
    PodGroupStatus,
)
from proreus.testing import make_pod

KEY = "default/g"


def group(version: int, scheduled: str = "", uid: str = "u") -> PodGroup:
    conditions = (Condition(POD_GROUP_SCHEDULED, scheduled),) if scheduled else ()
    meta = ObjectMeta(name="g", namespace="default", uid=uid, resource_version=str(version))
    return PodGroup(metadata=meta, status=PodGroupStatus(conditions))


class World:
    """One group, what was written to it, and a watch (``groups``) that is as late as a test says.

    Writes make the versions 11, 12, …; each waits for ``free``.
    """

    def __init__(self) -> None:
        self.groups = {KEY: group(10)}
        self.written: list[str] = []
        self.reasons: list[str] = []
        self.free = asyncio.Event()
        self.free.set()
        self.tasks: list[asyncio.Future[None]] = []
        self.clock = FakeClock(0.0)
        self.refused = 0
        self.code = 0
        self.writer = PodGroupStatusWriter(
            self.groups, self, self.clock, self._spawn, POD_GROUP_SCHEDULED, POD_GROUPS
        )

    def _spawn(self, work) -> None:
        self.tasks.append(asyncio.ensure_future(work))

    async def patch_status(self, resource, namespace, name, patch):
        await self.free.wait()
        if self.code:
            self.refused += 1
            raise ApiError(self.code, "", "no")
        [condition] = patch["status"]["conditions"]
        self.written.append(condition["status"])
        self.reasons.append(condition["reason"])
        return {"metadata": {"resourceVersion": str(10 + len(self.written))}}

    async def write(self, status: Status | None) -> None:
        self.writer.write(KEY, status)
        await asyncio.gather(*self.tasks)


@pytest.fixture
async def world() -> World:
    return World()


async def test_a_good_end_is_not_forgotten_for_a_bad_one_after_it(world) -> None:
    world.free.clear()
    world.writer.write(KEY, Status.unschedulable("too few"))
    await asyncio.sleep(0)
    world.writer.write(KEY, None)
    world.writer.write(KEY, Status.unschedulable("one is left over"))
    world.free.set()
    await asyncio.gather(*world.tasks)
    assert world.written == ["False", "True"]


@pytest.mark.parametrize(
    ("invalid", "reason"), [(False, "SchedulerError"), (True, "PodGroupError")]
)
async def test_an_error_is_the_schedulers_or_the_groups(world, invalid, reason) -> None:
    world.writer.write(KEY, Status.error("no"), invalid=invalid)
    await asyncio.gather(*world.tasks)
    assert world.reasons == [reason]


async def test_a_group_is_reported_as_scheduled_once_while_its_pods_are_known(world) -> None:
    world.writer.states = states = PodGroupStates()
    states.add(make_pod("p", spec={"schedulingGroup": {"podGroupName": "g"}}))
    await world.write(None)
    world.groups[KEY] = group(20)  # somebody has removed the condition
    await world.write(Status.unschedulable("one is left over"))
    await world.write(None)
    assert world.written == ["True"]
    world.groups[KEY] = group(21, uid="another")
    await world.write(Status.unschedulable("too few"))
    assert world.written == ["True", "False"]


async def test_what_was_written_holds_while_the_watch_is_late(world) -> None:
    await world.write(Status.unschedulable("too few"))
    await world.write(None)
    world.groups[KEY] = group(11, "False")  # the echo of the first write
    await world.write(Status.unschedulable("one is left over"))
    assert world.written == ["False", "True"]


@pytest.mark.parametrize("version", [11, 12])
async def test_what_the_watch_brings_counts_once_it_is_as_far(world, version) -> None:
    await world.write(None)
    world.groups[KEY] = group(version, "False")  # somebody else's doing
    await world.write(None)
    assert world.written == ["True", "True"]


async def test_another_group_of_the_same_name_knows_nothing_of_it(world) -> None:
    await world.write(None)
    world.groups[KEY] = group(5, uid="another")
    await world.write(Status.unschedulable("too few"))
    assert world.written == ["True", "False"]


async def test_a_refused_write_is_repeated_after_a_back_off_and_logged_once(world, caplog) -> None:
    world.code = 403
    for _ in range(100):
        await world.write(Status.unschedulable("too few"))
        world.clock.advance(0.2)
    assert world.refused == 5, "after 0, 1, 3, 7 and 15 seconds"
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    world.code = 0
    world.clock.advance(16)
    await world.write(Status.unschedulable("too few"))
    assert world.written == ["False"]


async def test_a_success_does_not_wait_for_the_end_of_a_pause(world) -> None:
    """No attempt of a group that is scheduled would ask for it again."""
    world.code = 403
    await world.write(Status.unschedulable("too few"))
    world.code = 0
    await world.write(None)
    assert world.written == ["True"]


async def test_another_group_of_the_same_name_does_not_pause(world) -> None:
    world.code = 403
    await world.write(Status.unschedulable("too few"))
    world.code = 0
    world.groups[KEY] = group(11, uid="another")
    await world.write(Status.unschedulable("too few"))
    assert world.written == ["False"]


@pytest.mark.parametrize("code", [0, 404, 409, 429, 503])
async def test_what_may_pass_by_itself_is_no_refusal(world, code) -> None:
    """0: there was no answer."""
    answers = [ApiError(code, "", "no")]
    patch_status = world.patch_status

    async def fail_once(*patch):
        if answers:
            raise answers.pop()
        return await patch_status(*patch)

    world.patch_status = fail_once
    await world.write(Status.unschedulable("too few"))
    await world.write(Status.unschedulable("too few"))
    assert world.written == ["False"]
