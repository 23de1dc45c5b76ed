"""Which request is sent again to a process that did not respond."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from proreus.remote.snapshot import Snapshot
from proreus.remote.trial_requests import TrialRequests

pytestmark = pytest.mark.looptime


def body(pod: str, rows: list[int] | None = None) -> dict[str, object]:
    return {"profile": "p", "pod": msgspec.Raw(b'"%s"' % pod.encode()), "rows": rows}


def paths_and_pods(trial_requests: TrialRequests):
    return [
        request and (request.path, request.pod.decode()) for request in trial_requests.candidates()
    ]


def test_nothing_was_asked() -> None:
    trial_requests = TrialRequests()
    trial_requests.add_pod("p", b'"a"')
    assert paths_and_pods(trial_requests) == [None, None]


def test_the_unanswered_one_comes_before_an_answered_one() -> None:
    trial_requests = TrialRequests()
    for pod in (b'"a"', b'"b"', b'"b"'):
        trial_requests.add_pod("p", pod)
    trial_requests.add_answered("/v1/pre-filter", body("b"))
    trial_requests.add_unanswered("/v1/filter", body("b"))
    assert paths_and_pods(trial_requests) == [("/v1/filter", '"b"'), ("/v1/filter", '"a"')]
    trial_requests.add_pod("p", b'"c"')
    assert paths_and_pods(trial_requests)[1] == ("/v1/filter", '"c"'), "it was refused meanwhile"
    trial_requests.forget()
    assert paths_and_pods(trial_requests) == [None, None]


@pytest.mark.parametrize("path", ["/v1/reserve", "/v1/permit", "/v1/pre-bind", "/v1/unreserve"])
def test_requests_with_effects_for_a_pod_are_not_sent_again(path) -> None:
    trial_requests = TrialRequests()
    trial_requests.add_answered("/v1/score", body("a", [1, 2]))
    trial_requests.add_unanswered(path, body("a"))
    assert paths_and_pods(trial_requests) == [("/v1/score", '"a"'), None]


def test_rows_that_are_gone_are_left_out() -> None:
    trial_requests = TrialRequests()
    trial_requests.add_unanswered("/v1/score", body("a", [0, 7, 2]))
    request, _ = trial_requests.candidates()
    assert request is not None
    snapshot = Snapshot((), "json")
    snapshot.size = 3
    assert msgspec.json.decode(request.body(snapshot, "json")) == {
        "profile": "p",
        "pod": "a",
        "rows": [0, 2],
        "snapshot": snapshot.id,
        "version": snapshot.version,
    }


async def test_refused_for_a_time_or_until_another_epoch() -> None:
    trial_requests = TrialRequests()
    trial_requests.add_unanswered("/v1/filter", body("a"))
    request, _ = trial_requests.candidates()
    assert request is not None
    trial_requests.refuse(request, "e1", 300)
    assert trial_requests.is_refused("/v1/filter", body("a", [1]), "e1")
    assert not trial_requests.is_refused("/v1/filter", body("b"), "e1")
    assert not trial_requests.is_refused("/v1/score", body("a"), "e1")
    assert not trial_requests.is_refused("/v1/filter", body("a"), "e2")
    await asyncio.sleep(301)
    assert not trial_requests.is_refused("/v1/filter", body("a"), "e1")
