"""HTTP extenders: each rejects some nodes for as long as the script lasts.

That an extender changes its mind is no event, and nothing wakes a pod for it.
"""

from __future__ import annotations

from conformance.oracle.grammar.draw import Draw, JsonObject
from conformance.wakeups import core, preemption
from conformance.wakeups.world import World

_ANY, _OF_FOO = "http://any", "http://foo"


def _answers(draw: Draw) -> JsonObject:
    return {url: {"filter": _rejected(draw), "preempt": _dropped(draw)} for url in (_ANY, _OF_FOO)}


def _rejected(draw: Draw) -> JsonObject:
    how = draw.choice(("failed", "unresolvable", "dropped", "failed"))
    return {how: dict.fromkeys(draw.sample(core.NODES, draw.choice((0, 1, 1, 2))), "busy")}


def _dropped(draw: Draw) -> JsonObject:
    return {"dropped": draw.sample(core.NODES, draw.choice((0, 0, 1)))}


_VERBS = {"filterVerb": "filter", "preemptVerb": "preempt", "nodeCacheCapable": True}
_CONFIG = {
    "apiVersion": "kubescheduler.config.k8s.io/v1",
    "kind": "KubeSchedulerConfiguration",
    "extenders": [
        {"urlPrefix": _ANY, **_VERBS},
        {"urlPrefix": _OF_FOO, **_VERBS, "managedResources": [{"name": core.FOO}]},
    ],
}
_WISHES = (*core.WISHES[:4], preemption.important)

EXTENDERS = World(
    [core.NODE, core.NAMESPACE, *core.pod_kinds(_WISHES)], config=_CONFIG, extenders=_answers
)
