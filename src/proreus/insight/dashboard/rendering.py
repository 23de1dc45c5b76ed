"""HTML from ``templates``, and the headers with which it is sent.

No page has a script, a style or a handler in it, so that the Content-Security-Policy can forbid
them all: text of the cluster that got into a page as markup would not run.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from aiohttp import web
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from proreus.insight.explain.explanation import HelpfulChanges

CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)

HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    # Not "no-referrer": a form would be sent with "Origin: null" then.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Renderer:
    """Renders templates.

    ``now``: returns the time in seconds since the epoch. ``common``: values that every page has.
    """

    def __init__(self, now: Callable[[], float], **common: Any) -> None:
        self._environment = Environment(
            loader=PackageLoader("proreus.insight.dashboard"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
        )
        self._environment.filters.update(
            alike=alike,
            amount=amount,
            breakable=breakable,
            duration=duration,
            segment=segment,
            since=lambda at: since(at, now()),
            when=lambda at: when(at, now()),
        )
        self._environment.globals.update(common)

    def page(self, template: str, *, status: int = 200, **values: Any) -> web.Response:
        """Return a page, or a part of one."""
        text = self._environment.get_template(template).render(values)
        return web.Response(
            text=text, status=status, content_type="text/html", charset="utf-8", headers=HEADERS
        )


def instant(at: float) -> str:
    """Return seconds since the epoch as 2026-11-22T14:03:05Z."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def when(at: float, now: float) -> Markup:
    """Return an instant, and how far it is: 2026-11-22T14:03:05Z (33 s ago)."""
    seconds = now - at
    distance = f"{duration(seconds)} ago" if seconds >= 1 else f"in {duration(-seconds)}"
    distance = "now" if abs(seconds) < 1 else distance
    text = instant(at)
    return Markup('<time datetime="{0}">{0}</time> <small>({1})</small>').format(text, distance)


def since(at: float, now: float) -> Markup:
    """Return how long ago an instant was, which a mouse shows: 3 min 5 s."""
    text = instant(at)
    return Markup('<time datetime="{0}" title="since {0}">{1}</time>').format(
        text, duration(now - at)
    )


def alike(helped: Iterable[HelpfulChanges]) -> list[tuple[HelpfulChanges, list[str]]]:
    """Return changes that several nodes have in common once, with the names of the nodes."""
    found: dict[tuple[str, ...], tuple[HelpfulChanges, list[str]]] = {}
    for one in helped:
        texts = tuple(change.text for change in one.changes)
        found.setdefault(texts, (one, []))[1].append(one.node)
    return list(found.values())


def breakable(name: str) -> Markup:
    """Return a name in which a line may break before each of its words: NodeResourcesFit."""
    return Markup("<wbr>").join(map(escape, re.split(r"(?<=[a-z])(?=[A-Z])", name)))


def duration(seconds: float) -> str:
    """Return seconds in two units at most: 250 ms, 12 s, 3 min 5 s, 2 h 1 min, 3 d 4 h."""
    if seconds < 1:
        return f"{max(seconds, 0) * 1000:.0f} ms"
    whole = int(seconds)
    for size, name, smaller, smaller_name in (
        (86_400, "d", 3_600, "h"),
        (3_600, "h", 60, "min"),
        (60, "min", 1, "s"),
    ):
        if whole >= size:
            rest = whole % size // smaller
            return f"{whole // size} {name}" + (f" {rest} {smaller_name}" if rest else "")
    return f"{whole} s"


def amount(value: int, resource: str) -> str:
    """Return an amount of a resource as people write it: milli-CPU as cores, bytes as GiB."""
    if resource == "cpu":
        return f"{value / 1000:g}"
    if resource == "memory" or "storage" in resource or resource.startswith("hugepages-"):
        size = float(value)
        for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
            if abs(size) < 1024 or unit == "TiB":
                return f"{size:.4g} {unit}"
            size /= 1024
    return f"{value:,}"


def segment(text: str) -> str:
    """Return a text as one segment of a path."""
    return quote(text, safe="")
