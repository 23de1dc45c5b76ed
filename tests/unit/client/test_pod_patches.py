"""Patches of a pod's status: their order, and which are merged."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from proreus.base.errors import ApiError, NotFound
from proreus.client.http.responses import ResponseLost
from proreus.client.writing.pod_patches import (
    PodPatches,
    StillRefused,
    Target,
    merge_status_patches,
)

pytestmark = pytest.mark.looptime

POD = Target("p", "u")

Json = dict[str, Any]


class Apiserver:
    """Takes a second for a patch; ``fail``: those with these names are refused."""

    def __init__(self, *fail: str) -> None:
        self.sent: list[Json] = []
        self.fail = fail
        self.patches = PodPatches(self.send)

    async def send(self, path: str, patch: Json) -> None:
        self.sent.append(patch)
        await asyncio.sleep(1)
        if patch["status"].get("nominatedNodeName") in self.fail:
            raise NotFound(404, "NotFound", path)

    def request(self, patch: Json, path: str = "p") -> asyncio.Task[None]:
        return asyncio.ensure_future(self.patches.patch(Target(path, "u"), patch))


def nominate(name: str) -> Json:
    return {"status": {"nominatedNodeName": name}}


def report(message: str) -> Json:
    condition = {"type": "PodScheduled", "status": "False", "message": message}
    return {"status": {"conditions": [condition]}}


VICTIM = {"status": {"conditions": [{"type": "DisruptionTarget", "status": "True"}]}}


async def started() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


async def test_pods_do_not_wait_for_each_other() -> None:
    server, loop = Apiserver(), asyncio.get_running_loop()
    await asyncio.gather(*(server.request(nominate("n"), f"p{number}") for number in range(5)))
    assert loop.time() == 1
    assert not server.patches


async def test_only_what_waits_last_is_merged() -> None:
    server = Apiserver()
    claims = {"status": {"resourceClaimStatuses": [{"name": "c"}]}}
    patches = [nominate("a"), nominate("b"), claims, nominate("c"), nominate("d")]
    await asyncio.gather(*(server.request(patch) for patch in patches))
    assert server.sent == [nominate("a"), nominate("b"), claims, nominate("d")]


async def test_all_that_were_merged_learn_of_the_error() -> None:
    server = Apiserver("c")
    requests = [server.request(nominate(name)) for name in "abc"]
    ends = await asyncio.gather(*requests, return_exceptions=True)
    assert ends[0] is None
    assert [type(end) for end in ends[1:]] == [NotFound, NotFound]
    with pytest.raises(ApiError):
        await server.request(nominate("c"))


@pytest.mark.parametrize("when", [0.5, 1.5], ids=["before it is sent", "while it is sent"])
async def test_a_merged_patch_is_sent_although_one_caller_is_cancelled(when: float) -> None:
    server = Apiserver()
    first, second, third = (server.request(nominate(name)) for name in "abc")
    await asyncio.sleep(when)
    second.cancel()
    waited = asyncio.ensure_future(server.patches.wait(POD))
    await third
    assert second.cancelled()
    await first
    await asyncio.wait_for(waited, 0)
    assert server.sent[-1] == nominate("c")
    assert not server.patches


async def test_nothing_waits_for_patches_that_were_cancelled() -> None:
    server = Apiserver()
    requests = [server.request(nominate(name)) for name in "abc"]
    await started()
    for request in requests:
        request.cancel()
    await asyncio.wait(requests)
    await server.patches.wait(POD)
    assert not server.patches
    await server.request(nominate("d"))
    assert asyncio.get_running_loop().time() == 1


def test_conditions_are_merged_by_type() -> None:
    one = {"type": "PodScheduled", "status": "False", "message": "one", "observedGeneration": 1}
    another = {"type": "DisruptionTarget", "status": "True"}
    two = {"type": "PodScheduled", "status": "False", "message": "two", "lastProbeTime": None}
    earlier = {"status": {"conditions": [one, another], "nominatedNodeName": "n"}}
    merged = merge_status_patches(earlier, {"status": {"conditions": [two]}})
    assert merged == {"status": {"conditions": [one | two, another], "nominatedNodeName": "n"}}
    assert merge_status_patches(earlier, {"status": {"nominatedNodeName": None}}) == {
        "status": {"conditions": [one, another], "nominatedNodeName": None}
    }
    assert one["message"] == "one"


@pytest.mark.parametrize(
    "patch",
    [
        {"status": {"resourceClaimStatuses": None}},
        {"status": {"conditions": [{"type": "PodScheduled", "$patch": "delete"}]}},
        {"status": {}, "metadata": {}},
        {},
    ],
)
def test_other_patches_are_not_merged(patch: Json) -> None:
    assert merge_status_patches(nominate("a"), patch) is None
    assert merge_status_patches(patch, nominate("a")) is None


class RefusingApiserver:
    """Refuses patches with a code until ``code`` is 0."""

    def __init__(self, code: int) -> None:
        self.code = code
        self.bodies: list[Json] = []
        self.patches = PodPatches(self.send)

    @property
    def sent(self) -> int:
        return len(self.bodies)

    async def send(self, path: str, patch: Json) -> None:
        self.bodies.append(patch)
        if self.code:
            raise ApiError(self.code, "", "no")

    async def refuse(self, patch: Json, target: Target = POD) -> type[ApiError]:
        """Request a patch, and return the error."""
        with pytest.raises(ApiError) as raised:
            await self.patches.patch(target, patch)
        return raised.type

    async def attempts(self, seconds: int) -> list[type[ApiError] | None]:
        """Request a patch five times a second, and return the errors."""
        errors = []
        for _ in range(5 * seconds):
            try:
                await self.patches.patch(POD, nominate("n"))
            except ApiError as error:
                errors.append(type(error))
            else:
                errors.append(None)
            await asyncio.sleep(0.2)
        return errors


@pytest.mark.parametrize("code", [400, 403, 422])
async def test_a_refused_patch_is_sent_again_after_a_back_off(code: int) -> None:
    server = RefusingApiserver(code)
    errors = await server.attempts(20)
    assert server.sent == 5, "after 0, 1, 3, 7 and 15 seconds"
    assert errors == [ApiError] + 99 * [StillRefused], "so that it is reported once"
    server.code = 0
    assert (await server.attempts(12))[-1] is None
    server.code = code
    assert (await server.attempts(1))[0] is ApiError, "a new fault"


@pytest.mark.parametrize("code", [404, 409, 429, 500, 503, 504])
async def test_a_transient_error_is_no_refusal(code: int) -> None:
    server = RefusingApiserver(code)
    assert await server.attempts(1) == 5 * [ApiError]
    server.code = 0
    await server.patches.patch(POD, report("newer"))
    assert server.bodies[-1] == report("newer")


async def test_a_patch_requested_during_a_pause_is_sent_at_its_end() -> None:
    server = RefusingApiserver(403)
    await server.refuse(report("first"))
    server.code = 0
    for patch in (report("second"), nominate("n"), report("third")):
        assert await server.refuse(patch) is StillRefused
    await asyncio.sleep(0.9)
    assert server.sent == 1
    await asyncio.sleep(0.2)
    status = report("third")["status"] | nominate("n")["status"]
    assert server.bodies[1:] == [{"metadata": {"uid": "u"}, "status": status}], "not another pod"
    await server.patches.patch(POD, report("fourth"))
    assert server.bodies[2:] == [report("fourth")]


async def test_a_binding_drops_what_is_held() -> None:
    """Sent after it, the condition would say that the pod is not scheduled."""
    server = RefusingApiserver(403)
    await server.refuse(report("first"))
    await server.refuse(report("second"))
    await server.patches.wait(POD)
    await asyncio.sleep(2)
    assert server.bodies == [report("first")]


async def test_another_pod_of_the_name_does_not_pause() -> None:
    server = RefusingApiserver(403)
    await server.refuse(report("first"))
    assert await server.refuse(report("first"), Target("p", "another")) is ApiError
    assert server.sent == 2


@pytest.mark.parametrize("when", [0.0, 0.5], ids=["before the refusal", "after it"])
async def test_the_condition_of_a_victim_does_not_wait_for_reports(when: float) -> None:
    async def send(path: str, patch: Json) -> None:
        sent.append(patch)
        await asyncio.sleep(0.1)
        if patch != VICTIM:
            raise ApiError(403, "Forbidden", "no")

    sent: list[Json] = []
    patches = PodPatches(send)
    reports = [asyncio.ensure_future(patches.patch(POD, report(text))) for text in "ab"]
    await asyncio.sleep(when)
    await patches.patch(POD, VICTIM)
    assert asyncio.get_running_loop().time() < 0.8, "no pause"
    assert sent.count(VICTIM) == 1
    ends = await asyncio.gather(*reports, return_exceptions=True)
    assert [type(end) for end in ends] == [ApiError, StillRefused]


async def test_a_refused_condition_of_a_victim_does_not_hold_reports() -> None:
    server = RefusingApiserver(403)
    for _ in range(2):
        assert await server.refuse(VICTIM) is ApiError
    server.code = 0
    await server.patches.patch(POD, report("first"))
    assert server.bodies == [VICTIM, VICTIM, report("first")]


async def test_a_patch_without_an_answer_is_no_refusal() -> None:
    """The apiserver is down: nobody knows whether it would refuse."""
    lost = PodPatches(lost_answer := Lost())
    for _ in range(3):
        with pytest.raises(ResponseLost):
            await lost.patch(POD, nominate("n"))
    assert lost_answer.sent == 3


class Lost:
    sent = 0

    async def __call__(self, path: str, patch: Json) -> None:
        self.sent += 1
        raise ResponseLost("gone")
