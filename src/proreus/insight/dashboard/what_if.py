"""The what-if page: the engine's answer to another pod or to other weights.

It is asked twice in one go, as things are and with the change, so that both can be compared. Like
all dry runs it changes nothing; still, only a form of this page may ask, since each takes time.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from typing import Any

import msgspec
from aiohttp import web

from proreus.base.errors import ConfigError
from proreus.insight.dashboard import what_if_form as form
from proreus.insight.dashboard.rendering import Renderer
from proreus.insight.dry_run.api import DryRunSpec, DryRunStatus
from proreus.insight.dry_run.objects import InvalidDryRun
from proreus.insight.dry_run.replica import ClusterChanged
from proreus.insight.dry_run.service import RETRY_AFTER_SECONDS, Busy
from proreus.insight.page_sources import PageSources
from proreus.objects.codec import to_plain
from proreus.objects.pod import Pod

READ_SECONDS = 10.0
_FIELDS = ("pod", "base", "cpu", "memory", "selector", "tolerations", "replicas")
_NODES_SHOWN = 20


class Answer(msgspec.Struct):
    """The engine's answer to one question. ``nodes`` has the chosen nodes with the number of pods
    on each.

    ``first``: the first pod's outcome, whose scores are shown; ``rejected``: the first one that
    does not fit.
    """

    heading: str
    count: int
    fits: int
    nodes: list[tuple[str, int]]
    first: Any
    rejected: Any


class WhatIf:
    """The page of a scheduler: ``respond`` shows its form, and answers it."""

    def __init__(self, sources: PageSources, renderer: Renderer) -> None:
        self._sources = sources
        self._renderer = renderer

    async def respond(self, request: web.BaseRequest, rest: list[str]) -> web.Response:
        """Return the form, with answers if it was sent."""
        if self._sources.dry_runs is None or rest:
            return self._renderer.page("not_found.html", status=404, what="such page")
        if request.method != "POST":
            return self._empty(request.query.get("pod", ""))
        if not is_same_origin(request):
            text = "The form did not come from this page, or the browser does not say where from."
            return self._page(403, {}, problem=text)
        if standby := self._sources.standby():
            return self._page(503, {}, problem=f"Not asked: {standby}.")
        fields: dict[str, str] = {}
        try:
            with self._sources.dry_runs().admit():
                async with asyncio.timeout(READ_SECONDS):
                    body = await _read(request)
                fields = form.read_form(body)
                answers, note = await self._answers(fields)
        except Busy:
            text = "Too many dry runs are under way: send it again in a moment."
            return self._again(429, fields, text)
        except ClusterChanged as error:
            return self._again(409, fields, f"{error}.")
        except form.BadField as error:
            return self._page(422, fields, problem=str(error))
        except InvalidDryRun as error:
            text = (
                str(error)
                .replace("spec.pods[0].pod", "Pod")
                .replace("spec.scoreWeights", "Weights")
            )
            return self._page(422, fields, problem=text)
        except ConfigError as error:
            return self._page(500, fields, problem=f"There are no plugins for dry runs: {error}")
        except web.HTTPRequestEntityTooLarge:
            return self._page(
                413, fields, problem=f"The form has more than {form.MAX_FORM:,} bytes."
            )
        except TimeoutError:
            return self._page(504, fields, problem="The engine did not answer in time.")
        return self._page(200, fields, answers=answers, note=note)

    async def _answers(self, fields: Mapping[str, str]) -> tuple[list[Answer], str]:
        """Ask the engine about the pod as it is and as it is changed; return a note as well."""
        assert self._sources.dry_runs is not None
        ask = self._sources.dry_runs().answer
        # Up to half a second, which the event loop should not wait.
        typed = await asyncio.to_thread(form.read_pod, fields.get("pod", ""))
        typed, note = form.with_profile(typed, self._sources.scheduler.profiles)
        stored = self._sources.pods.get(fields.get("base", ""))
        if stored is not None:
            typed = _completed(typed, stored)
        count = form.replicas(fields)
        changed = form.changed_pod(typed, fields)
        weights = form.weights(fields, form.scheduler_name_of(changed))
        before = typed if stored is None else _as_it_is(stored)
        asked = [("With the change", form.question(changed, count, weights))]
        if weights or count > 1 or _differ(before, changed):
            asked.insert(0, ("As it is", form.question(before)))
        else:
            asked = [("As it is", asked[0][1])]
        return [_answer(heading, await ask(spec), spec) for heading, spec in asked], note

    def _empty(self, key: str) -> web.Response:
        if not key:
            return self._page(200, {"pod": form.example(self._sources.scheduler.profiles)})
        pod = self._sources.pods.get(key)
        if pod is None:
            return self._renderer.page("not_found.html", status=404, what=f"pod {key}")
        return self._page(200, {"pod": form.form_of(pod), "base": key})

    def _again(self, status: int, fields: Mapping[str, str], problem: str) -> web.Response:
        response = self._page(status, fields, problem=problem)
        response.headers["Retry-After"] = str(RETRY_AFTER_SECONDS)
        return response

    def _page(
        self,
        status: int,
        fields: Mapping[str, str],
        *,
        problem: str = "",
        answers: list[Answer] | None = None,
        note: str = "",
    ) -> web.Response:
        profiles = self._sources.scheduler.profiles
        plugins = dict.fromkeys(name for one in profiles.values() for name in one.weights)
        return self._renderer.page(
            "what_if.html",
            status=status,
            here="what-if",
            fields={name: fields.get(name, "") for name in _FIELDS},
            weights=[
                (
                    plugin,
                    {
                        name: one.weights[plugin]
                        for name, one in profiles.items()
                        if plugin in one.weights
                    },
                    fields.get(form.WEIGHT + plugin, ""),
                )
                for plugin in plugins
            ],
            problem=problem,
            answers=answers or [],
            note=note,
        )


def is_same_origin(request: web.BaseRequest) -> bool:
    """Return whether a browser says that a request comes from a page of this server."""
    site = request.headers.get("Sec-Fetch-Site")
    if site is not None:
        return site == "same-origin"
    scheme, _, host = request.headers.get("Origin", "").partition("://")
    return scheme == request.scheme and host == request.headers.get("Host", "")


async def _read(request: web.BaseRequest) -> bytes:
    """Return the body; raises ``HTTPRequestEntityTooLarge`` before it takes more memory."""
    body = bytearray()
    async for part in request.content.iter_any():
        body += part
        if len(body) > form.MAX_FORM:
            raise web.HTTPRequestEntityTooLarge(form.MAX_FORM, len(body))
    return bytes(body)


def _as_it_is(pod: Pod) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(to_plain(pod)))
    plain.setdefault("spec", {}).pop("nodeName", None)
    return plain


def _completed(typed: dict[str, Any], stored: Pod) -> dict[str, Any]:
    """Return the typed pod, completed by the fields of its original that the form does not show."""
    plain = _as_it_is(stored)
    meta = plain.get("metadata", {})
    hidden = {key: value for key, value in meta.items() if key not in ("labels", "ownerReferences")}
    completed = {**typed, "metadata": {**hidden, **typed["metadata"]}}
    if "status" in plain:
        completed.setdefault("status", plain["status"])
    unseen = [
        one for one in plain["spec"].get("volumes", ()) if "secret" in one or "configMap" in one
    ]
    volumes = typed["spec"].get("volumes") or []
    if unseen and isinstance(volumes, list):
        completed["spec"] = {**typed["spec"], "volumes": [*volumes, *unseen]}
    return completed


def _differ(one: dict[str, Any], other: dict[str, Any]) -> bool:
    def decided_by(pod: dict[str, Any]) -> Any:
        spec = dict(pod["spec"])
        spec["volumes"] = sorted(spec.get("volumes") or [], key=str)
        return pod["metadata"], spec

    return bool(decided_by(one) != decided_by(other))


def _answer(heading: str, status: DryRunStatus, spec: DryRunSpec) -> Answer:
    nodes = Counter(one.node for one in status.pods if one.fits)
    return Answer(
        heading,
        len(status.pods),
        nodes.total(),
        nodes.most_common(_NODES_SHOWN),
        status.pods[0],
        next((one for one in status.pods if not one.fits), None),
    )
