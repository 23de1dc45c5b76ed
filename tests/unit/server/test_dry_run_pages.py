"""The dry-run API over HTTPS: who may ask, what is refused, what is answered."""

import asyncio
import contextlib
import io
import json

import pytest

from proreus.insight.dry_run.api import DryRunStatus, PodOutcome
from proreus.insight.dry_run.objects import InvalidDryRun
from proreus.insight.dry_run.openapi import DOCUMENT_PATH, PATH
from proreus.insight.dry_run.pages import add_dry_run_pages
from proreus.insight.dry_run.replica import ClusterChanged
from proreus.insight.dry_run.service import Busy

CALLER = {"username": "autoscaler"}
QUESTION = {
    "apiVersion": "scheduling.proreus.dev/v1alpha1",
    "kind": "DryRunReview",
    "spec": {"pods": [{"pod": {"metadata": {"name": "p"}}, "count": 2}]},
}


class FakeService:
    def __init__(self):
        self.asked = []
        self.error = None
        self.under_way = 0

    @contextlib.contextmanager
    def admit(self):
        if self.under_way:
            raise Busy("1 dry runs are under way")
        self.under_way += 1
        try:
            yield
        finally:
            self.under_way -= 1

    async def answer(self, spec):
        self.asked.append(spec)
        await asyncio.sleep(0.01)
        if self.error is not None:
            raise self.error
        outcome = PodOutcome(item=0, pod="default/p", fits=True, node="a")
        return DryRunStatus(time="now", all_fit=True, cluster_nodes=1, pods=(outcome,))


@pytest.fixture
async def pages(serve, FakeApi):
    allowed = [("autoscaler", "post", PATH), ("autoscaler", "get", DOCUMENT_PATH)]
    allowed += [("autoscaler", "put", PATH), ("autoscaler", "put", DOCUMENT_PATH)]
    api = FakeApi(tokens={"t": CALLER}, allowed=allowed)
    client, server = await serve(api)
    service, standby = FakeService(), [""]
    add_dry_run_pages(server, service, lambda: standby[0], read_seconds=0.3)

    async def post(body, path=PATH, **options):
        options.setdefault("headers", {"Authorization": "Bearer t"})
        options.setdefault("method", "POST")
        data = json.dumps(body).encode() if isinstance(body, dict) else body
        answer, text = await client(path, data=data, **options)
        return answer, json.loads(text)

    post.service, post.standby = service, standby
    return post


async def test_an_answer(pages):
    answer, body = await pages(QUESTION)
    assert answer.status == 201
    assert body["spec"] == {**QUESTION["spec"]} | body["spec"]
    assert body["status"] == {
        "time": "now",
        "allFit": True,
        "clusterNodes": 1,
        "pods": [{"item": 0, "pod": "default/p", "fits": True, "node": "a"}],
    }
    (asked,) = pages.service.asked
    assert (asked.pods[0].count, asked.placement) == (2, "Sequential")


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"[1]",
        {**QUESTION, "apiVersion": "scheduling.proreus.dev/v2"},
        {**QUESTION, "spec": {"pods": []}},
        {**QUESTION, "spec": {**QUESTION["spec"], "ignoreNodes": ["a"]}},
        {**QUESTION, "spec": {**QUESTION["spec"], "timeoutSeconds": 3600}},
    ],
)
async def test_bodies_that_are_no_dry_run(pages, body):
    answer, text = await pages(body)
    assert (answer.status, text["reason"]) == (400, "BadRequest")
    assert pages.service.asked == []
    assert pages.service.under_way == 0


@pytest.mark.parametrize(
    ("error", "status", "reason"),
    [
        (InvalidDryRun("spec.pods: too many"), 422, "Invalid"),
        (ClusterChanged("ask again"), 409, "Conflict"),
        (TimeoutError(), 504, "Timeout"),
    ],
)
async def test_errors(pages, error, status, reason):
    pages.service.error = error
    answer, text = await pages(QUESTION)
    assert (answer.status, text["reason"]) == (status, reason)
    assert ("Retry-After" in answer.headers) is (status == 409)


async def test_too_many_are_refused_with_a_time_to_wait(pages):
    answers = await asyncio.gather(*(pages(QUESTION) for _ in range(3)))
    assert sorted(answer.status for answer, _ in answers) != [201, 201, 201]
    refused = [answer for answer, _ in answers if answer.status == 429]
    assert refused
    assert all(answer.headers["Retry-After"] == "1" for answer in refused)


async def test_only_who_leads_answers(pages):
    pages.standby[0] = "ask proreus-1"
    answer, body = await pages(QUESTION)
    assert (answer.status, body["message"]) == (503, "ask proreus-1")


async def test_large_bodies_are_refused(pages):
    answer, _ = await pages(io.BytesIO(b" " * (2**20 + 1)))
    assert answer.status == 413
    assert pages.service.under_way == 0


async def test_a_body_that_does_not_arrive(pages):
    async def slow():
        yield b"{"
        await asyncio.sleep(1)
        yield b"}"

    answer, _ = await pages(slow())
    assert answer.status == 504


async def test_the_right_to_post_is_needed(pages):
    answer, _ = await pages(None, method="GET")
    assert answer.status == 403
    answer, _ = await pages(QUESTION, headers={"Authorization": "Bearer other"})
    assert answer.status == 401


@pytest.mark.parametrize(("path", "method"), [(PATH, "POST"), (DOCUMENT_PATH, "GET")])
async def test_another_method_is_answered_by_the_one_that_is_allowed(pages, path, method):
    answer, body = await pages(QUESTION, path=path, method="PUT")
    assert (answer.status, body["reason"]) == (405, "MethodNotAllowed")
    assert answer.headers["Allow"] == method


async def test_the_document_describes_the_answers(pages):
    answer, document = await pages(None, path=DOCUMENT_PATH, method="GET")
    assert answer.status == 200
    schemas = document["components"]["schemas"]
    _, body = await pages(QUESTION)
    assert body["status"].keys() <= schemas["DryRunStatus"]["properties"].keys()
    assert body["spec"].keys() <= schemas["DryRunSpec"]["properties"].keys()
    references = [
        text.partition('"')[0]
        for text in json.dumps(document).split('"$ref": "#/components/schemas/')[1:]
    ]
    assert references
    assert set(references) <= schemas.keys()
