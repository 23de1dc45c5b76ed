"""What the pages say of a small cluster."""

import json
import re
from html.parser import HTMLParser

import pytest

from proreus.base.clock import FakeClock
from proreus.insight.dashboard.help_cache import KEPT_SECONDS, HelpCache
from proreus.insight.dashboard.rendering import CONTENT_SECURITY_POLICY
from proreus.insight.explain.engine import Engine


async def test_the_overview_counts_and_says_why_pods_wait(world, browser):
    await world.schedule(world.pod("a"), world.pod("large", "64"), world.pod("huge", "128"))
    assert await browser.get("/dashboard/") == 200
    assert "leads" in browser.text
    assert "Waiting pods 2" in browser.text
    assert "Nodes 3" in browser.text
    assert re.search(r"2 Node Resources Fit default/(large|huge)", browser.text)
    assert "3 Insufficient cpu" in browser.text
    assert re.search(r"Change the pod: request \d+ less cpu", browser.text)
    assert re.search(r"Change node n\d : add \d+ allocatable cpu", browser.text)
    assert "Latest reload none since the start" in browser.text


async def test_a_standby_a_refused_reload_and_a_disabled_plugin_are_seen(world, browser):
    world.standby = "this instance does not lead; ask proreus-1"
    world.reload = {"result": "failure", "time": "2026-01-01T00:00:00", "error": "no <such> field"}
    world.plugins = [
        {
            "plugin": "Mine",
            "profile": "p",
            "skipped": True,
            "skippedBecause": None,
            "failuresInARow": {"Filter": 5},
        }
    ]
    assert await browser.get("/dashboard/state") == 200
    assert "is on standby" in browser.text
    await browser.get("/dashboard/pods")
    assert "This replica is on standby" in browser.text
    await browser.get("/dashboard/state")
    assert "no &lt;such&gt; field" in browser.html
    assert re.search(r"Mine p disabled 5", browser.text)


async def test_nodes_as_a_table_and_as_cells(world, browser):
    await world.schedule(world.pod("a", "3"), world.pod("b", "1"))
    full = world.node_of("a")
    assert await browser.get("/dashboard/nodes") == 200
    names = re.findall(r'href="/dashboard/node/(n\d)"', browser.html)
    assert names[0] == full
    assert sorted(names) == ["n0", "n1", "n2"]
    assert await browser.get("/dashboard/node-table?q=n1&resource=memory") == 200
    assert "1 node" in browser.text
    assert await browser.get("/dashboard/node-cells?resource=cpu") == 200
    cells = json.loads(browser.html)
    assert dict(zip(cells["names"], cells["percent"], strict=True))[full] == 75
    assert cells["groups"] == ["z0", "z1"]
    assert sorted(cells["group"]) == [0, 0, 1]


async def test_a_node_and_a_placed_pod(world, browser):
    await world.schedule(world.pod("a"), world.pod("b"))
    placed = world.node_of("a")
    assert await browser.get("/dashboard/pod/default/a") == 200
    assert f"Bound to {placed}" in browser.text
    assert "NodeResourcesBalancedAllocation" in browser.text
    assert browser.html.count("<rect") >= 3
    assert "Best node without a plugin" in browser.text
    assert await browser.get(f"/dashboard/node/{placed}") == 200
    assert "default/a" in browser.text
    assert "allowed" in browser.text


async def test_a_waiting_pod_with_its_reasons_and_what_would_help(world, browser):
    await world.schedule(world.pod("large", "64"))
    assert await browser.get("/dashboard/pod/default/large") == 200
    assert "Insufficient cpu" in browser.text
    assert "Queue unschedulable" in browser.text
    assert re.search(r"What triggers a retry .*NodeResourcesFit : .*Node", browser.text)
    assert "Change the pod" in browser.text
    assert "no smaller change helps" in browser.text
    assert "Change a node" in browser.text
    assert "allocatable cpu" in browser.text
    [changes] = re.findall(r"Change a node Node Change (.*?) Try a change", browser.text)
    assert re.match(r"n0 , n1 , n2 add \d+ allocatable cpu", changes), "equal changes are one row"
    assert 'hx-get="/dashboard/pod-state/default/large" hx-trigger="every 5s"' in browser.html


async def test_the_engine_is_asked_once_an_attempt_and_again_after_half_a_minute(
    world, monkeypatch
):
    await world.schedule(world.pod("large", "64"))
    asked = []
    explain = world.sources.explainer.pod

    def counting(*names, changes=True, **options):
        if changes:
            asked.append(names)
        return explain(*names, changes=changes, **options)

    monkeypatch.setattr(world.sources.explainer, "pod", counting)
    clock = FakeClock()
    cache = HelpCache(world.sources.explainer, clock)
    for _ in range(3):
        assert cache.explanation("default", "large").help is not None
    assert len(asked) == 1
    clock.advance(KEPT_SECONDS)
    cache.explanation("default", "large")
    assert len(asked) == 2


async def test_an_answer_without_enough_time_is_asked_for_again_sooner(world, monkeypatch):
    await world.schedule(world.pod("large", "64"))
    monkeypatch.setattr(Engine, "out_of_time", True)
    clock = FakeClock()
    cache = HelpCache(world.sources.explainer, clock)
    assert cache.explanation("default", "large").help.incomplete
    monkeypatch.setattr(Engine, "out_of_time", False)
    assert cache.explanation("default", "large").help.incomplete
    clock.advance(6)
    assert cache.explanation("default", "large").help.nodes


async def test_a_pod_with_a_node_is_not_fetched_again(world, browser):
    await world.schedule(world.pod("a"))
    await browser.get("/dashboard/pod/default/a")
    assert "pod-state/" not in browser.html


async def test_pods_are_found_by_reason_and_by_name(world, browser):
    await world.schedule(
        world.pod("a"), world.pod("large", "64"), world.pod("picky", nodeSelector={"disk": "nvme"})
    )
    await browser.get("/dashboard/pods")
    assert {"large", "picky"} <= set(browser.text.split())
    await browser.get("/dashboard/pod-table?reason=NodeAffinity")
    assert "picky" in browser.text
    assert "large" not in browser.text
    await browser.get("/dashboard/pod-table?q=default/a")
    assert re.search(r"Placed 1 pod", browser.text)


async def test_says_that_an_object_does_not_exist(browser):
    assert await browser.get("/dashboard/pod/default/none") == 404
    assert "There is no pod of this name" in browser.text
    assert await browser.get("/dashboard/node/none") == 404
    for path in (
        "nothing",
        "pod/a",
        "node/a/b",
        "group/a",
        "group/default/none",
        "static/none.js",
        "static/../pages.py",
    ):
        assert await browser.get(f"/dashboard/{path}") == 404


async def test_names_of_the_cluster_are_no_markup(world, browser):
    name = "<img src=x onerror=alert(1)>"
    world.cluster.api.add(world.pod(name, "64"))
    await world.schedule()
    for path in ("", "pods", "pod/default/%3Cimg%20src=x%20onerror=alert(1)%3E"):
        assert await browser.get(f"/dashboard/{path}") == 200
        assert "<img" not in browser.html
    assert "&lt;img" in browser.html
    assert await browser.get("/dashboard/pods?q=%22%3E%3Cscript%3E") == 200
    assert "<script>" not in browser.html


async def test_every_answer_forbids_what_is_not_from_here(world, browser):
    await world.schedule(world.pod("large", "64"))
    for path in (
        "",
        "state",
        "nodes",
        "pods",
        "pod/default/large",
        "node/n0",
        "node-cells",
        "none",
    ):
        await browser.get(f"/dashboard/{path}")
        assert browser.headers["Content-Security-Policy"] == CONTENT_SECURITY_POLICY
        assert browser.headers["X-Content-Type-Options"] == "nosniff"
        assert browser.headers["Cache-Control"] == "no-store"
    assert "unsafe" not in CONTENT_SECURITY_POLICY
    assert "default-src 'none'" in CONTENT_SECURITY_POLICY


class Audit(HTMLParser):
    """What of a page the policy would forbid, and what assistive technology would miss."""

    def __init__(self):
        super().__init__()
        self.faults, self.ids, self.references, self.headings = [], [], [], []
        self.labelled, self.inputs = set(), []

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        for name, value in attributes:
            if name == "style" or name.startswith("on"):
                self.faults.append(f"{name} of {tag}")
            if name in ("src", "href", "action", "hx-get") and not value.startswith(("/", "#")):
                self.faults.append(f"{name}={value}")
            if name in ("aria-labelledby", "aria-describedby"):
                self.references += value.split()
        if tag == "script" and "src" not in values:
            self.faults.append("script in the page")
        if tag == "style":
            self.faults.append("style in the page")
        if "id" in values:
            self.ids.append(values["id"])
        if tag == "label":
            self.labelled.add(values["for"])
        if tag in ("input", "select") and values.get("type") != "hidden":
            self.inputs.append(values["id"])
        if re.fullmatch("h[1-6]", tag):
            self.headings.append(int(tag[1]))


@pytest.mark.parametrize(
    "path",
    [
        "",
        "nodes",
        "pods",
        "pods?q=a",
        "pod/default/a",
        "pod/default/large",
        "node/n0",
        "groups",
        "quotas",
        "preemption",
        "what-if",
        "sign-in",
    ],
)
async def test_pages_keep_the_policy_and_can_be_read_aloud(world, browser, path):
    await world.schedule(world.pod("a"), world.pod("large", "64"))
    await browser.get(f"/dashboard/{path}")
    audit = Audit()
    audit.feed(browser.html)
    assert audit.faults == []
    assert len(set(audit.ids)) == len(audit.ids)
    assert set(audit.references) <= set(audit.ids)
    assert set(audit.inputs) <= audit.labelled
    assert audit.headings[0] == 1
    assert audit.headings.count(1) == 1
    assert all(
        next_ - one <= 1 for one, next_ in zip(audit.headings, audit.headings[1:], strict=False)
    )
    assert '<html lang="en">' in browser.html


async def test_scripts_and_styles_come_from_here_and_only_once(browser):
    await browser.get("/dashboard/nodes")
    files = re.findall(r'(?:src|href)="(/dashboard/static/[^"]+)"', browser.html)
    assert len(files) >= 4
    for file in files:
        assert await browser.get(file) == 200
        assert browser.headers["Content-Type"].split(";")[0] in (
            "text/css",
            "text/javascript",
            "image/svg+xml",
        )
        assert await browser.get(file, headers={"If-None-Match": browser.headers["ETag"]}) == 304
        assert not re.search(r"url\(|@import|https?://(?!www.w3.org)[^ ]*\.(js|css)", browser.html)


async def test_the_pages_only_read(browser):
    async with browser.session.post(f"{browser.base}/dashboard/pods") as answer:
        assert answer.status == 405
        assert answer.headers["Allow"] == "GET, HEAD"
