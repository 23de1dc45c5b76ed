"""The explanations of a process, for those who may read them."""

import json

import pytest

from proreus.insight.explain import NodeExplanation, PodExplanation, QueueExplanation
from proreus.insight.explain.pages import add_explain_pages
from proreus.server.options import FORWARDED_AUTHORIZATION

READER = {"username": "reader"}


class FakeExplainer:
    def __init__(self):
        self.asked = []

    def pod(self, namespace, name, *, names, changes):
        self.asked.append((namespace, name, names, changes))
        return PodExplanation(pod=f"{namespace}/{name}", state="unknown", summary="no such pod")

    def node(self, name):
        return NodeExplanation(node=name, known=False, summary="no such node")

    def queue(self):
        return QueueExplanation(summary="empty", counts={"active": 0}, in_flight=0)


@pytest.fixture
async def pages(serve, FakeApi):
    paths = ("/explain/pod", "/explain/node", "/explain/queue")
    api = FakeApi(tokens={"t": READER}, allowed=[("reader", "get", path) for path in paths])
    client, server = await serve(api)
    explainer, standby = FakeExplainer(), [""]
    add_explain_pages(server, explainer, lambda: standby[0])

    async def get(path, **options):
        options.setdefault("headers", {"Authorization": "Bearer t"})
        answer, body = await client(path, **options)
        return answer.status, json.loads(body)

    get.explainer, get.standby = explainer, standby
    return get


async def test_each_page_answers_with_a_value(pages):
    status, body = await pages("/explain/pod?namespace=n&name=p&names=3&changes=false")
    assert status == 200
    assert body == {"pod": "n/p", "state": "unknown", "summary": "no such pod"}
    assert pages.explainer.asked == [("n", "p", 3, False)]
    assert (await pages("/explain/node?name=a"))[1]["node"] == "a"
    assert (await pages("/explain/queue"))[1]["counts"] == {"active": 0}


async def test_wrong_questions(pages):
    assert (await pages("/explain/pod"))[1]["message"] == "the parameter name is missing"
    status, body = await pages("/explain/pod?name=p&names=many")
    assert (status, body["reason"]) == (400, "BadRequest")
    # The right is one to get: nobody may post.
    assert (await pages("/explain/queue", method="POST"))[0] == 403


async def test_a_standby_says_that_it_does_not_lead(pages):
    pages.standby[0] = "ask proreus-1"
    status, body = await pages("/explain/queue")
    assert (status, body["reason"], body["message"]) == (503, "ServiceUnavailable", "ask proreus-1")


async def test_the_right_to_read_metrics_is_another_one(pages):
    assert (await pages("/metrics"))[0] == 403
    assert (await pages("/explain/queue", headers={}))[0] == 403


async def test_a_token_that_came_through_the_apiservers_proxy(pages):
    header = {FORWARDED_AUTHORIZATION: "Bearer t"}
    assert (await pages("/explain/queue", headers=header))[0] == 200
    assert (await pages("/explain/queue", headers={FORWARDED_AUTHORIZATION: "Bearer x"}))[0] == 401
    both = {**header, "Authorization": "Bearer wrong"}
    assert (await pages("/explain/queue", headers=both))[0] == 401
