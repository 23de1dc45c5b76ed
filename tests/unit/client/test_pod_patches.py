"""Patches of a pod's status: their order, and which are merged."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from proreus.client.pod_patches import PodPatches, StillRefused, merge_status_patches
from proreus.client.responses import ResponseLost
from proreus.errors import ApiError, NotFound

pytestmark = pytest.mark.looptime

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
        return asyncio.ensure_future(self.patches.patch(path, patch))


def nominate(name: str) -> Json:
    return {"status": {"nominatedNodeName": name}}


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
    waited = asyncio.ensure_future(server.patches.wait("p"))
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
    await server.patches.wait("p")
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
        self.sent = 0
        self.patches = PodPatches(self.send)

    async def send(self, path: str, patch: Json) -> None:
        self.sent += 1
        if self.code:
            raise ApiError(self.code, "", "no")

    async def attempts(self, seconds: int) -> list[type[ApiError] | None]:
        """Request a patch five times a second, and return the errors."""
        errors = []
        for _ in range(5 * seconds):
            try:
                await self.patches.patch("p", nominate("n"))
            except ApiError as error:
                errors.append(type(error))
            else:
                errors.append(None)
            await asyncio.sleep(0.2)
        return errors


@pytest.mark.parametrize("code", [403, 422, 500])
async def test_what_is_refused_is_sent_after_a_back_off_only(code: int) -> None:
    server = RefusingApiserver(code)
    errors = await server.attempts(20)
    assert server.sent == 5, "after 0, 1, 3, 7 and 15 seconds"
    assert errors == [ApiError] + 99 * [StillRefused], "so that it is reported once"
    server.code = 0
    assert (await server.attempts(12))[-1] is None
    server.code = code
    assert (await server.attempts(1))[0] is ApiError, "a new fault"


async def test_a_patch_without_an_answer_is_no_refusal() -> None:
    """The apiserver is down: nobody knows whether it would refuse."""
    lost = PodPatches(lost_answer := Lost())
    for _ in range(3):
        with pytest.raises(ResponseLost):
            await lost.patch("p", nominate("n"))
    assert lost_answer.sent == 3


class Lost:
    sent = 0

    async def __call__(self, path: str, patch: Json) -> None:
        self.sent += 1
        raise ResponseLost("gone")
