"""Errors about missing attributes that say what to write.

Authors of plugins write what Go, or the API, calls a thing: ``pod.spec``, ``node.PodInfos``. Python
asks ``__getattr__`` for missing attributes alone, so that this costs nothing elsewhere.

Example: ``pod.spec`` of a ``PodInfo`` raises ``AttributeError("'PodInfo' object has no attribute
'spec'; write pod.pod.spec")``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from proreus.objects.node import Node
from proreus.objects.pod import Pod

_HANDLE = {
    "client_set": "handle.api",
    "iterate_over_waiting_pods": "handle.waiting_pods()",
    "logger": "proreus.framework.logger(__name__)",
    "parallelizer": "filter_all or score_all, which take all nodes at once",
    "reject_waiting_pod": 'handle.get_waiting_pod(uid).reject(self.name, "why")',
    "shared_informer_factory": "handle.store(resource) or handle.on_change(…)",
    "snapshot_shared_lister": "handle.nodes",
}
_WORDS: Mapping[str, Mapping[str, str]] = {
    "CycleState": {
        "delete": "state.write(key, None)",
        "set": "state.write(key, data)",
    },
    "FakeHandle": _HANDLE,
    "NodeTable": {
        "get": "nodes[nodes.rows[name]]",
        "items": "for node in nodes",
        "list": "for node in nodes",
        "names": "nodes.rows",
        "nodes": "for node in nodes",
        "node_infos": "for node in nodes",
        "values": "for node in nodes",
    },
    "NodeInfo": {
        "annotations": "node.node.metadata.annotations",
        "node_name": "node.name",
        "pod_infos": "node.pods.values()",
    },
    "PodInfo": {
        "annotations": "pod.pod.metadata.annotations",
        "node_name": "pod.pod.spec.node_name",
        "scheduler_name": "pod.pod.spec.scheduler_name",
    },
    "PodRequests": {
        "cpu": 'pod.requests.amounts["cpu"]',
        "get": "pod.requests.amounts.get(resource)",
        "memory": 'pod.requests.amounts["memory"]',
        "milli_cpu": 'pod.requests.amounts["cpu"]',
        "scalar_resources": "pod.requests.amounts",
    },
    "ProfileHandle": _HANDLE,
}
"""How to write what has other names elsewhere (here in snake_case), by class."""

_WRAPPED: Mapping[str, tuple[str, type]] = {
    "NodeInfo": ("node.node", Node),
    "PodInfo": ("pod.pod", Pod),
}
"""How to write the API object that an instance has, and its type."""

_WORD_BEGINS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


class AttributeHints:
    """A class whose missing attributes are errors that say what to write."""

    __slots__ = ()

    # Type checkers would take any attribute for an existing one.
    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if hasattr(type(self), name):
                # A property raised AttributeError: again, for what it says.
                return object.__getattribute__(self, name)
            text = f"{type(self).__name__!r} object has no attribute {name!r}"
            hint = None if name.startswith("_") else _hint(self, name)
            raise AttributeError(f"{text}; write {hint}" if hint else text, name=name, obj=self)


def _hint(obj: object, name: str) -> str | None:
    name = _WORD_BEGINS.sub("_", name).lower()
    cls = next(one.__name__ for one in type(obj).__mro__ if one.__name__ in _WORDS)
    wrapped, wrapped_type = _WRAPPED.get(cls, ("", object))
    attributes = dir(obj)
    for word in (name, name.removeprefix("get_")):
        if word in _WORDS[cls]:
            return _WORDS[cls][word]
        if word in attributes:
            return f".{word}"
        if wrapped and hasattr(wrapped_type, word):
            return f"{wrapped}.{word}"
    return None
