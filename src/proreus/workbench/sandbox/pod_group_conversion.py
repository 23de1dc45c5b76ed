"""Conversion of PodGroups between scheduling.k8s.io/v1alpha2 (Kubernetes 1.36) and v1beta1 (1.37).

No kube-apiserver serves both; here the stored version is v1beta1, so that schedulers of either
Kubernetes version find the groups. They differ in ``spec.disruptionMode``, which became a union.
"""

from typing import Any

GROUP = "scheduling.k8s.io"

_MODES = {"Pod": "single", "PodGroup": "all"}
_MODE_TEXTS = {field: text for text, field in _MODES.items()}

JsonObject = dict[str, Any]


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
    converted = group | {"apiVersion": f"{GROUP}/{version}"}
    if "disruptionMode" in group.get("spec", {}):
        spec = {**group["spec"], "disruptionMode": mode}
        converted["spec"] = spec if mode is not None else _without_mode(spec)
    return converted


def _without_mode(spec: JsonObject) -> JsonObject:
    return {field: value for field, value in spec.items() if field != "disruptionMode"}
