"""Conversions of objects that are stored in one version and served in two.

Events: ``v1`` and ``events.k8s.io/v1``. kube-apiserver stores them once too. Here the stored
version is ``events.k8s.io/v1``, which schedulers write; the other is converted on each read.

PodGroups: scheduling.k8s.io/v1alpha2 (Kubernetes 1.36) and v1beta1 (1.37). No kube-apiserver serves
both; here the stored version is v1beta1, so that schedulers of either Kubernetes version find the
groups. They differ in ``spec.disruptionMode``, which became a union.

CompositePodGroups: scheduling.k8s.io/v1alpha3 (1.37) and v1beta1 (1.38), which is stored. Only the
name of the version differs.
"""

from typing import Any

JsonObject = dict[str, Any]

EVENT_GROUP = "events.k8s.io"

EVENT_FIELDS = (
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


def from_core(event: JsonObject) -> JsonObject:
    """Convert ``v1`` to ``events.k8s.io/v1``."""
    converted = {_FROM_CORE.get(key, key): value for key, value in event.items()}
    return converted | {"kind": "Event", "apiVersion": f"{EVENT_GROUP}/v1"}


def to_core(event: JsonObject) -> JsonObject:
    """Convert ``events.k8s.io/v1`` to ``v1``."""
    converted = {_TO_CORE.get(key, key): value for key, value in event.items()}
    return converted | {"kind": "Event", "apiVersion": "v1"}


def stored_path(field: str) -> str:
    """Return the path, in the stored version, of a field that a selector names."""
    head, dot, rest = field.partition(".")
    if head == "source":
        return "deprecatedSource.component"
    return _FROM_CORE.get(head, head) + dot + rest


_MODES = {"Pod": "single", "PodGroup": "all"}
_MODE_TEXTS = {field: text for text, field in _MODES.items()}


def from_v1alpha3(group: JsonObject) -> JsonObject:
    """Convert ``v1alpha3`` to ``v1beta1``."""
    return group | {"apiVersion": "scheduling.k8s.io/v1beta1"}


def to_v1alpha3(group: JsonObject) -> JsonObject:
    """Convert ``v1beta1`` to ``v1alpha3``."""
    return group | {"apiVersion": "scheduling.k8s.io/v1alpha3"}


def from_v1alpha2(group: JsonObject) -> JsonObject:
    """Convert ``v1alpha2`` to ``v1beta1``."""
    mode = group.get("spec", {}).get("disruptionMode")
    # Any other value is left for v1beta1 to interpret: defaults are not set here.
    converted = {_MODES[mode]: {}} if mode in _MODES else mode
    return _converted(group, "v1beta1", converted)


def to_v1alpha2(group: JsonObject) -> JsonObject:
    """Convert ``v1beta1`` to ``v1alpha2``."""
    mode = group.get("spec", {}).get("disruptionMode")
    if isinstance(mode, dict):
        mode = next((text for field, text in _MODE_TEXTS.items() if field in mode), None)
    return _converted(group, "v1alpha2", mode)


def _converted(group: JsonObject, version: str, mode: JsonObject | str | None) -> JsonObject:
    converted = group | {"apiVersion": f"scheduling.k8s.io/{version}"}
    if "disruptionMode" in group.get("spec", {}):
        spec = {field: value for field, value in group["spec"].items() if field != "disruptionMode"}
        converted["spec"] = spec if mode is None else spec | {"disruptionMode": mode}
    return converted
