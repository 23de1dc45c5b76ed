"""A new user's questions, each answered on the first page that is opened.

Why do these ten pods wait? Why does this gang wait? What would help? Who holds what, and who waits
for whom? Pictures go to the folder that SCREENSHOTS names.
"""

from __future__ import annotations

import re
from typing import Any

import pytest

from unit.insight.dashboard.shared_cluster import SharedCluster, pod
from unit.offline_objects import node

from .test_dashboard import take_picture

PAGES = (
    "",
    "pods",
    "pods?namespace=default",
    "pods?q=web",
    "pod/default/report-0",
    "pod/default/database-0",
    "pod/default/bert-0",
    "pod/default/urgent",
    "pod/default/web-00",
    "groups",
    "group/default/bert",
    "group/default/llama",
    "quotas",
    "preemption",
    "nodes",
    "node/node-00",
    "what-if?pod=default/report-0",
    "sign-in",
)

CUT = """() => {
    const width = document.documentElement.clientWidth;
    const found = [];
    for (const one of document.querySelectorAll("body, body *")) {
        if (!one.checkVisibility() || one.closest("svg, option, .skip, input, textarea")) continue;
        const box = one.getBoundingClientRect();
        const outside = box.width > 0 && (box.right > width + 1 || box.left < -1);
        const cut = one.clientWidth > 0 && one.scrollWidth > one.clientWidth + 1;
        if (outside || cut) {
            found.push(`${one.tagName}.${one.className}: ${one.textContent.trim().slice(0, 60)}`);
        }
    }
    return found;
}"""
"""Elements that reach out of the window, or whose content does not fit into them."""


async def said(page: Any) -> str:
    return re.sub(r"\s+", " ", await page.locator("main").inner_text())


async def test_the_overview_says_why_ten_pods_wait_and_what_would_help(shared: Any) -> None:
    await shared.open("")
    row = shared.page.locator("#state tr", has_text="Insufficient cpu").first
    # On a busy machine the time for the engine may be over before it has found anything.
    await row.filter(has_text="Change node").wait_for()
    text = await row.inner_text()
    assert re.match(r"\d\b", text), "the number of pods"
    assert "NodeResourcesFit" in text
    assert re.search(r"Change the pod: request \d+ less cpu", text)
    assert re.search(r"Change node node-\d\d: add \d+ allocatable cpu", text)
    row = shared.page.locator("#state tr", has_text="didn't match Pod's node affinity").first
    await row.filter(has_text="disk=nvme").wait_for()
    assert (await row.inner_text()).startswith("5"), "the number of pods"


async def test_the_overview_says_why_a_gang_waits_and_what_would_help(shared: Any) -> None:
    await shared.open("")
    await shared.page.locator("#state tr", has_text="no time").first.wait_for(state="detached")
    await shared.page.set_viewport_size({"width": 1280, "height": 1250})
    await take_picture(shared.page, "overview")
    row = shared.page.locator("#state tr", has_text="bert").last
    await row.filter(has_text="less cpu").wait_for()
    text = re.sub(r"\s+", " ", await row.inner_text())
    assert "Insufficient cpu" in text
    assert "less cpu" in text
    row = shared.page.locator("#state tr", has_text="llama").last
    text = re.sub(r"\s+", " ", await row.inner_text())
    assert "2 of the 4 pods that it needs have not been created" in text
    assert "Create the missing pods" in text
    row = shared.page.locator("#state tr", has_text="missing").last
    assert "does not exist" in await row.inner_text()


async def test_the_list_of_pods_gives_reasons_filters_and_an_order(shared: Any) -> None:
    page = shared.page
    await shared.open("pods")
    await take_picture(page, "pods")
    assert "didn't match Pod's node affinity/selector" in await said(page)
    await page.get_by_label("Namespace", exact=True).select_option("team-b")
    await page.locator("#pod-table tbody tr", has_text="report").first.wait_for(state="detached")
    assert "batch-0" in await said(page)
    await page.get_by_label("Profile").select_option("default-scheduler")
    await page.get_by_text("0 pods").first.wait_for()
    await shared.open("pods?profile=default-scheduler")
    await page.get_by_role("link", name="Priority").click()
    await page.locator("th[aria-sort=descending]", has_text="Priority").wait_for()
    assert "urgent" in await page.locator("#pod-table tbody tr").first.inner_text()
    await page.get_by_role("link", name="Priority").click()
    await page.locator("th[aria-sort=ascending]", has_text="Priority").wait_for()
    assert "urgent" in await page.locator("#pod-table tbody tr").last.inner_text()


async def test_a_pods_page_says_why_it_waits_and_what_would_help(shared: Any) -> None:
    page = shared.page
    await shared.open("pod/default/report-0")
    await page.get_by_role("heading", name="Change a node").wait_for()
    await take_picture(page, "waiting")
    text = await said(page)
    assert "Insufficient cpu" in text
    assert "Change the pod" in text
    assert "Change a node" in text
    assert re.search(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ \(\d+ s ago\)", text)


async def test_a_groups_page_says_why_it_waits_and_what_would_help(shared: Any) -> None:
    page = shared.page
    await shared.open("groups")
    await take_picture(page, "groups")
    await page.get_by_role("link", name="bert").click()
    await page.get_by_role("heading", name="Group default/bert").wait_for()
    await page.get_by_role("heading", name="Change the pods").wait_for()
    await take_picture(page, "group")
    text = await said(page)
    assert "Insufficient cpu" in text
    assert "less cpu" in text
    assert await page.locator("#group-state table", has_text="bert-7").count() == 1


async def test_quotas_say_who_holds_what_and_who_waits_for_whom(shared: Any) -> None:
    page = shared.page
    await shared.open("quotas")
    await take_picture(page, "quotas")
    text = await said(page)
    assert "team-b has 2 waiting pods that request 12 cpu, and 12 of its guarantee" in text
    assert "Borrowed by team-a (12)" in text
    row = page.locator("tbody tr", has_text="team-a").filter(has_text="cpu")
    assert re.search(r"20\s+8\s+12\s+24", await row.first.inner_text())


async def test_preemption_says_who_waits_for_whom(shared: Any) -> None:
    page = shared.page
    await shared.open("preemption")
    await take_picture(page, "preemption")
    row = page.locator("tbody tr", has_text="urgent")
    text = await row.inner_text()
    assert "1000" in text
    assert re.search(r"default/web-\d\d \(priority 0, terminating\)", text)


async def test_pages_are_live(shared: Any, shared_cluster: SharedCluster) -> None:
    page = shared.page
    await shared.open("pods")
    await shared_cluster.schedule(
        pod("latecomer", "48", tolerations=[{"key": "new", "operator": "Exists"}])
    )
    await page.get_by_role("link", name="latecomer").wait_for()
    await shared.open("pod/default/latecomer")
    await shared_cluster.schedule(
        node("larger", "64", taints=[{"key": "new", "effect": "NoSchedule"}])
    )
    shared_cluster.cluster.advance(20)
    await shared_cluster.schedule()
    await page.get_by_text("Bound to larger").wait_for()


@pytest.mark.parametrize("width", [1280, 400])
async def test_nothing_is_cut(shared: Any, shared_cluster: SharedCluster, width: int) -> None:
    name = "a-pod-with-a-name-as-long-as-generated-ones-may-be-" * 4
    await shared_cluster.schedule(
        node("ip-10-0-127-254." + "eu-central-1.compute.internal." * 4 + "example", "1"),
        pod(name.removesuffix("-"), "48", nodeSelector={"example.org/" + "x" * 63: "y" * 63}),
    )
    page = shared.page
    await page.set_viewport_size({"width": width, "height": 900})
    for path in (*PAGES, f"pod/default/{name.removesuffix('-')}"):
        await shared.open(path)
        assert await page.evaluate(CUT) == [], path
    if width == 400:
        for path, picture in (("", "overview-narrow"), ("groups", "groups-narrow")):
            await shared.open(path)
            await take_picture(page, picture)
