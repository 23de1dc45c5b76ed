"""The what-if page: who may ask, what is asked, and how answers and errors are said."""

import asyncio
import dataclasses
import re

import aiohttp
import msgspec
import pytest
import yaml

from proreus.insight.dashboard import Dashboard, what_if, what_if_form
from proreus.insight.dashboard.what_if_form import (
    BadField,
    changed_pod,
    form_of,
    read_form,
    read_pod,
    with_profile,
)
from proreus.insight.dry_run.replica import ClusterChanged
from proreus.objects.pod import Pod

EXAMPLE = what_if_form.example(["default-scheduler"])
OURS = {"Sec-Fetch-Site": "same-origin"}


async def send(browser, headers=OURS, **fields):
    fields.setdefault("pod", EXAMPLE)
    url = f"{browser.base}/dashboard/what-if"
    async with browser.session.post(url, data=fields, headers=headers) as answer:
        browser.html = await answer.text()
        browser.headers = answer.headers
        return answer.status


def part(browser, heading):
    """Return what is said below a heading, up to the next one."""
    text = browser.text.split("What the scheduler would decide")[1]
    return re.split("As it is|With the change|It begins with|A field that", text.split(heading)[1])[
        0
    ]


async def test_a_pod_that_does_not_fit_and_what_would_help(world, browser):
    await world.schedule(world.pod("large", "64"))
    await browser.get("/dashboard/pod/default/large")
    assert 'href="/dashboard/what-if?pod=default/large"' in browser.html
    assert await browser.get("/dashboard/what-if?pod=default/large") == 200
    text = re.search(r"<textarea[^>]*>\n(.*?)</textarea>", browser.html, re.DOTALL)[1]
    assert "name: large" in text
    assert "&#39;64&#39;" in text
    pod = text.replace("&#39;", "'")
    assert await send(browser, pod=pod, base="default/large", cpu="2") == 200
    assert "It does not fit" in part(browser, "As it is")
    assert "3 Insufficient cpu" in part(browser, "As it is")
    assert "It fits on 3 nodes" in part(browser, "With the change")
    assert 'value="2"' in browser.html
    assert world.node_of("large") == ""


async def test_replicas_selector_and_tolerations(world, browser):
    taint = {"key": "team", "value": "a", "effect": "NoSchedule"}
    world.cluster.api.add(world.node("tainted", disk="ssd") | {"spec": {"taints": [taint]}})
    assert await send(browser, selector="disk=ssd", replicas="6") == 200
    assert "None of 6 fits" in part(browser, "With the change")
    assert "untolerated taint" in part(browser, "With the change")
    asked = {"selector": "disk=ssd", "tolerations": "team=a:NoSchedule", "replicas": "6"}
    assert await send(browser, **asked) == 200
    assert "4 of 6 fit" in part(browser, "With the change")
    assert "tainted (4)" in re.sub(r" +", " ", part(browser, "With the change"))


async def test_a_weight_changes_the_scores(world, browser):
    await world.schedule(world.pod("filler", "3"))
    assert await send(browser, **{"weight/NodeResourcesFit": "7"}) == 200
    before, after = (
        int(re.search(r"n\d (\d+)", part(browser, heading))[1])
        for heading in ("As it is", "With the change")
    )
    assert after > before
    assert await send(browser) == 200
    assert "With the change" not in browser.text


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"cpu": "much"}, "Requested cpu: quantity 'much' is not a number"),
        ({"cpu": "-1"}, "Requested cpu: less than nothing"),
        ({"selector": "ssd"}, "Node selector: 'ssd' is not key=value"),
        ({"tolerations": "a:Never"}, "Tolerations: 'Never' is no effect"),
        ({"replicas": "101"}, "Replicas: '101' is no whole number from 1 to 100"),
        ({"weight/NodeAffinity": "-1"}, "Weight of NodeAffinity: '-1' is no whole number"),
        ({"weight/None": "1"}, "Weights[0].plugin: None scores no nodes"),
        ({"pod": "spec: ]"}, "Pod: line 1: "),
        ({"pod": "[1]"}, "Pod: it has to be an object"),
        ({"pod": "kind: Deployment"}, "Pod: this Deployment has no template of pods"),
        (
            {"pod": "spec: {schedulerName: other}"},
            "Pod: spec.schedulerName: no profile is named other; there are default-scheduler",
        ),
        ({"pod": "spec: 1"}, "Pod: spec has to be an object"),
        ({"pod": "spec: {}", "cpu": "1"}, "Pod: spec.containers[0] has to be a container"),
        ({"pod": "spec: {}"}, "Pod.spec.containers: a container is required"),
        ({"pod": "spec: {nodeSelector: 1, containers: [{}]}"}, "$.spec.nodeSelector"),
        ({"pod": "a: &a [1]\nspec: {b: [*a, *a]}"}, "Pod: aliases (*name) are not read"),
        ({"pod": "spec: " + "[" * 5000}, "Pod: "),
        ({"pod": "#" * 30_000}, "Pod: more than 24,576 characters"),
    ],
)
async def test_an_invalid_input_is_an_error_with_its_field(browser, fields, text):
    assert await send(browser, **fields) == 422
    assert text in browser.text.replace("&#39;", "'")
    assert "<textarea" in browser.html  # with what was typed, to be corrected


async def test_the_example_names_a_profile_that_is_there(browser):
    assert await browser.get("/dashboard/what-if") == 200
    assert "schedulerName: default-scheduler" in browser.html
    assert "schedulerName: spread-out" in what_if_form.example(["spread-out", "bin-packing"])
    assert await send(browser) == 200
    assert "It fits on 3 nodes" in part(browser, "As it is")


def test_a_pod_that_names_no_scheduler_gets_the_default_or_the_first_profile():
    pod = read_pod("spec: {containers: [{}]}")
    assert with_profile(pod, ["other", "default-scheduler"]) == (pod, "")
    chosen, note = with_profile(pod, ["spread-out", "bin-packing"])
    assert chosen["spec"]["schedulerName"] == "spread-out"
    assert note == "The pod names no scheduler. The answer is for the profile spread-out."


@pytest.mark.parametrize(
    ("kind", "spec"),
    [
        ("Deployment", "{template: TEMPLATE}"),
        ("StatefulSet", "{replicas: 3, template: TEMPLATE}"),
        ("Job", "{parallelism: 3, template: TEMPLATE}"),
        ("CronJob", "{jobTemplate: {spec: {template: TEMPLATE}}}"),
    ],
)
def test_a_workload_is_taken_for_its_template(kind, spec):
    template = "{metadata: {labels: {app: web}}, spec: {containers: [{name: c}]}}"
    text = f"kind: {kind}\nmetadata: {{name: web, namespace: shop}}\nspec: {spec}\n"
    assert read_pod(text.replace("TEMPLATE", template)) == {
        "metadata": {"name": "web", "namespace": "shop", "labels": {"app": "web"}},
        "spec": {"containers": [{"name": "c"}]},
    }


async def test_only_a_form_of_this_page_may_ask(browser):
    origin = browser.base
    for headers, status in (
        ({}, 403),
        ({"Sec-Fetch-Site": "cross-site", "Origin": origin}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://127.0.0.1:1"}, 403),
        ({"Origin": origin.replace("http", "https")}, 403),
        ({"Origin": origin}, 200),
        (OURS, 200),
    ):
        assert await send(browser, headers) == status, headers
    assert "form-action 'self'" in browser.headers["Content-Security-Policy"]
    assert browser.headers["Referrer-Policy"] == "same-origin"


async def test_too_many_too_much_and_too_late(world, browser, monkeypatch):
    world.dry_runs.under_way = 17
    assert await send(browser) == 429
    assert browser.headers["Retry-After"] == "1"
    assert "Too many dry runs are under way" in browser.text
    world.dry_runs.under_way = 0
    assert await send(browser, pod="#" * 100_000) == 413
    assert world.dry_runs.under_way == 0

    async def changing(spec):
        raise ClusterChanged("the cluster changed while it was copied: ask again")

    async def slow(spec):
        raise TimeoutError

    monkeypatch.setattr(world.dry_runs, "answer", changing)
    assert await send(browser) == 409
    assert browser.headers["Retry-After"] == "1"
    monkeypatch.setattr(world.dry_runs, "answer", slow)
    assert await send(browser) == 504
    assert "did not answer in time" in browser.text
    world.standby = "this instance does not lead; ask proreus-1"
    assert await send(browser) == 503
    assert "ask proreus-1" in browser.text


async def test_a_form_that_does_not_end(world, browser, monkeypatch):
    monkeypatch.setattr(what_if, "READ_SECONDS", 0.05)

    async def parts():
        yield b"pod="
        await browser.never.wait()

    browser.never = asyncio.Event()
    url = f"{browser.base}/dashboard/what-if"
    async with browser.session.post(url, data=parts(), headers=OURS) as answer:
        assert answer.status == 504
    browser.never.set()
    assert world.dry_runs.under_way == 0


async def test_there_is_no_page_without_dry_runs(world, browser):
    with_dry_runs = browser
    dashboard = Dashboard(dataclasses.replace(world.sources, dry_runs=None), ("127.0.0.1", 0))
    await dashboard.start()
    async with aiohttp.ClientSession() as session:
        browser = type(with_dry_runs)(session, dashboard.local_url.removesuffix("/dashboard/"))
        await world.schedule(world.pod("large", "64"))
        for path in ("", "pod/default/large"):
            assert await browser.get(f"/dashboard/{path}") == 200
            assert "what-if" not in browser.html
        assert await browser.get("/dashboard/what-if") == 404
        assert await send(browser) == 404
    await dashboard.stop()


async def test_a_pod_that_is_not_there(browser):
    assert await browser.get("/dashboard/what-if?pod=default/none") == 404
    assert await browser.get("/dashboard/what-if/more") == 404


def test_the_form_of_a_pod_has_no_secrets_and_keeps_what_decides():
    stored = msgspec.convert(
        {
            "metadata": {
                "name": "p",
                "namespace": "ns",
                "uid": "u",
                "labels": {"a": "b"},
                "annotations": {"last": "env: [password]"},
            },
            "spec": {
                "nodeName": "n",
                "volumes": [
                    {"name": "s", "secret": {"secretName": "password"}},
                    {"name": "d", "persistentVolumeClaim": {"claimName": "data"}},
                ],
                "containers": [{"name": "c", "env": [{"name": "x", "value": "password"}]}],
            },
            "status": {"nominatedNodeName": "m"},
        },
        Pod,
    )
    text = form_of(stored)
    assert "password" not in text
    shown = yaml.safe_load(text)
    assert shown["metadata"] == {"name": "p", "namespace": "ns", "labels": {"a": "b"}}
    assert [one["name"] for one in shown["spec"]["volumes"]] == ["d"]
    # Sent back unchanged it is the same pod, with its UID and its nomination.
    completed = what_if._completed(read_pod(text), stored)
    assert not what_if._differ(what_if._as_it_is(stored), completed)
    assert completed["metadata"]["uid"] == "u"
    assert completed["status"] == {"nominatedNodeName": "m"}
    assert "nodeName" not in completed["spec"]


def test_none_removes_and_what_is_empty_stays():
    pod = read_pod(
        "spec: {nodeSelector: {a: b}, tolerations: [{operator: Exists}], containers: "
        "[{resources: {requests: {cpu: 1, memory: 1Gi}}}]}"
    )
    assert changed_pod(pod, {}) == pod
    changed = changed_pod(pod, dict.fromkeys(("cpu", "selector", "tolerations"), "none"))["spec"]
    assert changed["containers"][0]["resources"]["requests"] == {"memory": "1Gi"}
    assert changed["nodeSelector"] == {}
    assert changed["tolerations"] == []
    tolerations = changed_pod(pod, {"tolerations": "*, a, b=c:NoExecute, d:NoSchedule"})["spec"]
    assert tolerations["tolerations"] == [
        {"operator": "Exists"},
        {"key": "a", "operator": "Exists"},
        {"key": "b", "operator": "Equal", "value": "c", "effect": "NoExecute"},
        {"key": "d", "operator": "Exists", "effect": "NoSchedule"},
    ]


@pytest.mark.parametrize("body", [b"x", b"pod=%FF", b"\xff", b"&".join([b"a=1"] * 500)])
def test_rejects_bodies_that_are_not_forms(body):
    with pytest.raises(BadField, match="no form"):
        read_form(body)


@pytest.mark.parametrize("value", ["!!int ''", "!!float ''", "!!bool maybe", "!!timestamp soon"])
async def test_a_value_that_is_not_what_its_tag_says(world, browser, value):
    assert await send(browser, pod=f"spec: {{priority: {value}}}") == 422
    assert "Pod: a value does not have the form that its tag (!!) says" in browser.text
