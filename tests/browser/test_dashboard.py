"""The dashboard as people see and use it. Pictures go to the folder that SCREENSHOTS names."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

BLANK = """canvas => {
    const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
    return pixels.every((value) => value === 0);
}"""


async def take_picture(page: Any, name: str) -> None:
    folder = os.environ.get("SCREENSHOTS")
    if folder:
        await page.screenshot(path=str(Path(folder) / f"dashboard-{name}.png"))


async def test_the_overview_is_live(watched: Any) -> None:
    page = watched.page
    await watched.open("")
    await page.get_by_text("Live.", exact=True).wait_for()
    assert await page.locator(".chart canvas").count() == 4
    await page.locator("#queues-now", has_text="unschedulable 10").wait_for()
    assert not await page.locator("#queues canvas").evaluate(BLANK)
    # Fetched again by htmx, not only once.
    async with page.expect_response("**/dashboard/state") as answer:
        pass
    assert (await answer.value).status == 200


async def test_what_if_shows_a_waiting_pod_with_a_smaller_request(watched: Any) -> None:
    page = watched.page
    await watched.open("pod/demo/too-large-0050")
    await page.get_by_role("link", name="Try a change of the pod or of weights").click()
    assert "name: too-large-0050" in await page.get_by_label("Pod", exact=True).input_value()
    await page.get_by_label("Requested cpu").fill("100m")
    await page.get_by_label("NodeResourcesFit", exact=True).fill("5")
    await page.keyboard.press("Enter")
    await page.get_by_role("heading", name="With the change").wait_for()
    said = await page.locator("main").inner_text()
    assert "It does not fit" in said
    assert "Insufficient cpu" in said
    assert re.search(r"It fits on \d\d nodes", said)
    assert await page.get_by_label("NodeResourcesFit", exact=True).input_value() == "5"
    await take_picture(page, "what-if")


async def test_a_search_finds_placed_pods_and_their_scores(watched: Any) -> None:
    page = watched.page
    await watched.open("pods")
    await page.get_by_label("Namespace/name contains").fill("web-0000")
    await page.get_by_role("link", name="web-0000").click()
    await page.get_by_role("heading", name="Scores").wait_for()
    bar = page.locator("tr.chosen svg rect").first
    assert (await bar.bounding_box())["width"] > 1
    fill = await bar.evaluate("one => getComputedStyle(one).fill")
    assert fill not in ("none", "rgb(0, 0, 0)")
    await take_picture(page, "scores")


async def test_the_heat_map_by_keyboard_and_by_mouse(watched: Any) -> None:
    page = watched.page
    await watched.open("nodes")
    await page.locator("#heatmap rect").nth(59).wait_for()
    assert await page.locator("#heatmap h3").count() == 3
    await take_picture(page, "nodes")
    await page.locator("#heatmap").focus()
    await page.keyboard.press("ArrowRight")
    await page.keyboard.press("ArrowRight")
    said = await page.locator("#map-now").inner_text()
    assert "% of cpu" in said
    await page.keyboard.press("Enter")
    await page.get_by_role("heading", name=f"Node {said.split(',')[0]}").wait_for()
    await page.go_back()
    await page.get_by_label("Utilization by").select_option("memory")
    await page.locator("#node-table th[aria-sort=descending]", has_text="memory").wait_for()
    await page.locator("#heatmap rect").first.click()
    await page.get_by_role("heading", name="Resources").wait_for()


async def test_all_is_reached_by_the_tab_key(watched: Any) -> None:
    page = watched.page
    await watched.open("pods")
    await page.keyboard.press("Tab")
    focused = "document.activeElement.textContent"
    assert await page.evaluate(focused) == "Skip to the content"
    assert (await page.locator(".skip").bounding_box())["x"] >= 0
    await page.keyboard.press("Enter")
    assert await page.evaluate("document.activeElement.id") == "content"
    await page.keyboard.press("Tab")
    assert await page.evaluate("document.activeElement.id") == "q"
    outline = await page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline != "none"


CONTRAST = """() => {
    const numbers = (text) => text.match(/[\\d.]+/g).slice(0, 3).map(Number);
    const luminance = (rgb) => {
        const [r, g, b] = rgb.map((one) => one / 255)
            .map((one) => one <= 0.04045 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4);
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const back = (element) => {
        for (let one = element; one; one = one.parentElement) {
            const color = getComputedStyle(one).backgroundColor;
            if (color !== "rgba(0, 0, 0, 0)") return color;
        }
        return "rgb(255, 255, 255)";
    };
    const found = [];
    for (const one of document.querySelectorAll("body *")) {
        const text = [...one.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
        if (!text || !one.checkVisibility()) continue;
        if (one.closest("svg, option, .skip, .u-legend")) continue;
        const pair = [getComputedStyle(one).color, back(one)].map(numbers).map(luminance);
        const ratio = (Math.max(...pair) + 0.05) / (Math.min(...pair) + 0.05);
        if (ratio < 4.5) found.push([one.tagName, one.textContent.trim().slice(0, 30), ratio]);
    }
    return found;
}"""
"""Texts with less contrast than WCAG's level AA asks for."""


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_texts_can_be_read_in_light_and_dark(watched: Any, scheme: str) -> None:
    page = watched.page
    await page.emulate_media(color_scheme=scheme)
    for path in (
        "",
        "nodes",
        "pods",
        "groups",
        "quotas",
        "preemption",
        "what-if",
        "pod/demo/too-large-0050",
        "pod/demo/web-0000",
        "sign-in",
    ):
        await watched.open(path)
        assert await page.evaluate(CONTRAST) == []
    back = await page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (back == "rgb(255, 255, 255)") == (scheme == "light")
