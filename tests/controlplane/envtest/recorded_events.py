"""A scheduler's Events, without what always differs: UIDs, resourceVersions, times, counts."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from envtest.assertions import EVENTS
from envtest.kube_client import KubeClient

Json = dict[str, Any]

QUIET_SECONDS = 1.0
"""Schedulers write Events with a delay, after bindings."""

TIMEOUT_SECONDS = 10.0


def recorded_events(client: KubeClient, names: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the Events about each object, sorted, once no more arrive.

    ``names``: of the objects, by UID. How often an Event is repeated is left to chance, so each is
    listed once.
    """
    deadline = time.monotonic() + TIMEOUT_SECONDS
    before = _now(client, names)
    while time.monotonic() < deadline:
        time.sleep(QUIET_SECONDS)
        now = _now(client, names)
        if now == before:
            break
        before = now
    return before


def _now(client: KubeClient, names: Mapping[str, str]) -> dict[str, list[str]]:
    found: dict[str, set[str]] = {}
    for event in client.list(EVENTS):
        about = names.get(event.get("regarding", {}).get("uid", ""))
        if about is not None:
            found.setdefault(about, set()).add(_line(event, names))
    return {about: sorted(lines) for about, lines in found.items()}


def _line(event: Json, names: Mapping[str, str]) -> str:
    note = event.get("note", "")
    for uid, name in names.items():
        note = note.replace(uid, f"<{name}>")
    parts = [event.get("type"), event.get("reason"), event.get("action")]
    controller = event.get("reportingController")
    regarding = event["regarding"]
    about = f"about {regarding.get('apiVersion')} {regarding.get('kind')}"
    return f"{' '.join(map(str, parts))} by {controller} {about}: {note}{_related(event, names)}"


def _related(event: Json, names: Mapping[str, str]) -> str:
    related = event.get("related")
    if related is None:
        return ""
    name = names.get(related.get("uid", ""), "nobody known")
    versioned = "versioned" if related.get("resourceVersion") else "without a version"
    return f" [{related.get('apiVersion')} {related.get('kind')} {name}, {versioned}]"
