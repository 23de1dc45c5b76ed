"""Conversion of Events between ``v1`` and ``events.k8s.io/v1``.

kube-apiserver stores Events once and serves them in both versions. Here the stored version is
``events.k8s.io/v1``, which schedulers write; the other is converted on each read.
"""

from typing import Any

GROUP = "events.k8s.io"

FIELDS = (
    "involvedObject.kind",
    "involvedObject.namespace",
    "involvedObject.name",
    "involvedObject.uid",
    "involvedObject.apiVersion",
    "involvedObject.resourceVersion",
    "involvedObject.fieldPath",
    "regarding.kind",
    "regarding.namespace",
    "regarding.name",
    "regarding.uid",
    "reason",
    "type",
    "reportingComponent",
    "reportingController",
    "source",
)
"""The fields that selectors may name, in either version."""

_RENAMED = (
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("reportingComponent", "reportingController"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
)
_TO_CORE = {new: old for old, new in _RENAMED}
_FROM_CORE = dict(_RENAMED)

Event = dict[str, Any]


def from_core(event: Event) -> Event:
    """Convert ``v1`` to ``events.k8s.io/v1``."""
    converted = {_FROM_CORE.get(key, key): value for key, value in event.items()}
    return converted | {"kind": "Event", "apiVersion": f"{GROUP}/v1"}


def to_core(event: Event) -> Event:
    """Convert ``events.k8s.io/v1`` to ``v1``."""
    converted = {_TO_CORE.get(key, key): value for key, value in event.items()}
    return converted | {"kind": "Event", "apiVersion": "v1"}


def stored_path(field: str) -> str:
    """Return the path, in the stored version, of a field that a selector names."""
    head, dot, rest = field.partition(".")
    if head == "source":
        return "deprecatedSource.component"
    return _FROM_CORE.get(head, head) + dot + rest
