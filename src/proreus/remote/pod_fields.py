"""The pod fields that a plugin requested, as JSON.

Fields are named as in the API (``metadata.labels``, ``spec.tolerations``, or ``spec`` as a whole),
as far as proreus knows them; ``requests`` are the pod's effective resource requests. A plugin gets
only the fields that it requested, so that pods with equal JSON are equivalent to it.
"""

from __future__ import annotations

from typing import Any

import msgspec

from proreus.framework.pod_info import PodInfo
from proreus.objects.pod import Pod

REQUESTS = "requests"
IDENTITY = ("metadata.namespace", "metadata.name", "metadata.uid")
"""The fields that are sent if a descriptor names none."""


def field_problem(path: str) -> str | None:
    """Return why a path is not a field of a pod, or None if it is."""
    if path == REQUESTS:
        return None
    part, _, field = path.partition(".")
    fields = _PARTS.get(part)
    if fields is None:
        return f'"{path}" is unknown, allowed are requests, and metadata, spec or status or a field'
    if field and field not in fields:
        return f'"{path}" is unknown, allowed are {part} and {part}.<{"|".join(fields)}>'
    return None


def pod_json(pod: PodInfo, paths: tuple[str, ...]) -> bytes:
    """Return a JSON object with some fields of a pod; fields with default values are omitted."""
    found: dict[str, Any] = {}
    for path in paths:
        if path == REQUESTS:
            found[REQUESTS] = pod.requests.amounts
            continue
        part, _, field = path.partition(".")
        struct = getattr(pod.pod, part)
        if not field:
            found[part] = struct
            continue
        inner = found.setdefault(part, {})
        # If the whole part is requested too, it contains the field.
        if isinstance(inner, dict):
            inner[field] = getattr(struct, _PARTS[part][field])
    return _ENCODER.encode(found)


def _by_wire_name(struct: type[Any]) -> dict[str, str]:
    return {field.encode_name: field.name for field in msgspec.structs.fields(struct)}


_ENCODER = msgspec.json.Encoder(order="sorted")
_PARTS: dict[str, dict[str, str]] = {
    field.encode_name: _by_wire_name(field.type)
    for field in msgspec.structs.fields(Pod)
    if isinstance(field.type, type) and issubclass(field.type, msgspec.Struct)
}
"""Attribute names by API names: ``_PARTS["spec"]["nodeName"]`` is ``"node_name"``."""
