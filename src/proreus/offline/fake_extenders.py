"""HTTP extenders of a recorded case: the answers to each verb are data, and each request is noted.

A behaviour is ``{"filter": {...}, "prioritize": {...}, "preempt": {...}, "bind": {...}}``; the
fields of each verb are in the README next to the recorded cases. ``status`` and ``error`` of a verb
come before anything else.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from proreus.base.errors import ConfigError, ExtenderError
from proreus.config.types import Extender as ExtenderConfiguration
from proreus.engine.extenders.extender import status_error
from proreus.objects.kinds import PODS
from proreus.offline.api import InMemoryApi, JsonObject

_MOST_SCORE = 10


class FakeExtenders:
    """All extenders of a case, by ``urlPrefix``.

    ``calls``: the requests since they were last taken, as ``EXTENDER VERB POD NODES``.
    """

    def __init__(self, behaviours: Mapping[str, JsonObject], api: InMemoryApi) -> None:
        self.behaviours = dict(behaviours)
        self._api = api
        self._calls: list[str] = []

    def transport(self, config: ExtenderConfiguration) -> FakeTransport:
        """Return a replacement for the connections to one extender."""
        return FakeTransport(config, self, self._api)

    def note(self, url: str, verb: str, pod: str, nodes: list[str]) -> None:
        """Note a request."""
        self._calls.append(f"{url.rpartition('/')[2]} {verb} {pod} {','.join(sorted(nodes))}")

    def take_calls(self) -> list[str]:
        """Return the requests since the last call of this method, sorted."""
        calls, self._calls = sorted(self._calls), []
        return calls


class FakeTransport:
    """Answers the requests to one extender."""

    def __init__(
        self, config: ExtenderConfiguration, extenders: FakeExtenders, api: InMemoryApi
    ) -> None:
        self._url = config.url_prefix
        self._by_name = config.node_cache_capable
        self._verbs = {
            config.filter_verb: "filter",
            config.prioritize_verb: "prioritize",
            config.preempt_verb: "preempt",
            config.bind_verb: "bind",
        }
        self._extenders = extenders
        self._api = api

    async def post(self, verb: str, body: bytes, *, repeatable: bool = True) -> bytes:
        """Return the answer to a request; raises ``ExtenderError``."""
        request = msgspec.json.decode(body)
        kind = self._verbs[verb]
        behaviour = self._extenders.behaviours.get(self._url, {}).get(kind) or {}
        pod = request["PodName"] if kind == "bind" else request["Pod"]["metadata"]["name"]
        self._extenders.note(self._url, kind, pod, _nodes(kind, request))
        if status := behaviour.get("status"):
            raise status_error(verb, f"{self._url.rstrip('/')}/{verb}", status)
        if kind == "bind":
            return msgspec.json.encode(await self._bind(request, behaviour))
        answers = {"filter": self._filter, "prioritize": _prioritize, "preempt": _preempt}
        return msgspec.json.encode(answers[kind](request, behaviour))

    async def close(self) -> None:
        """Do nothing: there are no connections."""

    def _filter(self, request: JsonObject, behaviour: JsonObject) -> JsonObject:
        if error := behaviour.get("error"):
            return {"Error": error}
        names = _nodes("filter", request)
        failed = _of(names, behaviour.get("failed"))
        unresolvable = _of(names, behaviour.get("unresolvable"))
        gone = {*failed, *unresolvable, *behaviour.get("dropped", ())}
        answer: JsonObject = {"FailedNodes": failed, "FailedAndUnresolvableNodes": unresolvable}
        if self._by_name:
            return answer | {"NodeNames": [name for name in names if name not in gone]}
        items = [i for i in request["Nodes"]["items"] if i["metadata"]["name"] not in gone]
        return answer | {"Nodes": {"items": items}}

    async def _bind(self, request: JsonObject, behaviour: JsonObject) -> JsonObject:
        if error := behaviour.get("error"):
            return {"Error": error}
        pod = self._api.store(PODS).get(f"{request['PodNamespace']}/{request['PodName']}")
        if pod is None:
            raise ExtenderError(f'pods "{request["PodName"]}" not found')
        await self._api.bind(pod, request["Node"])
        return {}


def check_behaviours(behaviours: Any) -> Mapping[str, JsonObject]:
    """Return the behaviours of a case; raises ``ConfigError`` if they are not an object each."""
    if not isinstance(behaviours, dict) or not all(
        isinstance(behaviour, dict) for behaviour in behaviours.values()
    ):
        raise ConfigError("extenders: must be an object with an object for each urlPrefix")
    return behaviours


def _nodes(verb: str, request: JsonObject) -> list[str]:
    if verb == "bind":
        return [request["Node"]]
    if verb == "preempt":
        return list(request["NodeNameToMetaVictims"] or request["NodeNameToVictims"] or {})
    if request["NodeNames"] is not None:
        return list(request["NodeNames"])
    return [item["metadata"]["name"] for item in request["Nodes"]["items"]]


def _of(names: list[str], reasons: JsonObject | None) -> JsonObject:
    return {name: reason for name, reason in (reasons or {}).items() if name in names}


def _prioritize(request: JsonObject, behaviour: JsonObject) -> list[JsonObject]:
    scores = _of(_nodes("prioritize", request), behaviour.get("scores"))
    return [{"Host": name, "Score": min(score, _MOST_SCORE)} for name, score in scores.items()]


def _preempt(request: JsonObject, behaviour: JsonObject) -> JsonObject:
    candidates = request["NodeNameToMetaVictims"] or request["NodeNameToVictims"] or {}
    replaced = behaviour.get("victims") or {}
    left = {}
    for name, victims in candidates.items():
        if name in behaviour.get("dropped", ()):
            continue
        uids = replaced.get(name)
        if uids is None:
            uids = [_uid(pod) for pod in victims["Pods"]]
        left[name] = {
            "Pods": [{"UID": uid} for uid in uids],
            "NumPDBViolations": victims["NumPDBViolations"],
        }
    return {"NodeNameToMetaVictims": left}


def _uid(pod: JsonObject) -> str:
    uid = pod.get("UID") or pod["metadata"].get("uid", "")
    return str(uid)
