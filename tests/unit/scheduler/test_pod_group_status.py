"""What a PodGroup is told, however the writes follow each other."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

from proreus.clock import FakeClock
from proreus.framework.status import Status
from proreus.objects.meta import ObjectMeta
from proreus.objects.scheduling import PodGroup
from proreus.scheduler.pod_group_status import PodGroupStatusWriter


async def test_a_good_end_is_not_forgotten_for_a_bad_one_after_it() -> None:
    told: list[str] = []
    free = asyncio.Event()

    async def patch_status(resource, namespace, name, patch) -> None:
        await free.wait()
        told.append(patch["status"]["conditions"][0]["status"])

    groups = {"default/g": PodGroup(metadata=ObjectMeta(name="g", namespace="default"))}
    api = SimpleNamespace(patch_status=patch_status)
    tasks = []

    def spawn(work) -> None:
        tasks.append(asyncio.ensure_future(work))

    writer = PodGroupStatusWriter(groups, api, FakeClock(0.0), spawn)
    writer.write("default/g", Status.unschedulable("too few"))
    await asyncio.sleep(0)
    writer.write("default/g", None)
    writer.write("default/g", Status.unschedulable("one is left over"))
    free.set()
    await asyncio.gather(*tasks)
    assert told == ["False", "True"]
