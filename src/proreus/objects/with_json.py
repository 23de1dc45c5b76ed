"""Pods and nodes that keep the JSON that they were decoded from, with all unknown fields.

Typed Structs lack the fields that a scheduler does not read, but HTTP extenders get whole objects.
These types are used only if such extenders are configured, since the JSON takes several times the
memory of the Struct.
"""

from __future__ import annotations

from typing import Any

import msgspec

from proreus.objects.node import Node
from proreus.objects.pod import Pod

_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ELSEWHERE = "(json)"
"""Not the name of any API field, so that the JSON is never decoded from an object."""


class PodWithJson(Pod, frozen=True):
    """A pod with its JSON."""

    json: bytes = msgspec.field(default=b"", name=_ELSEWHERE)


class PendingPodWithJson(PodWithJson, frozen=True):
    """A pod with its JSON while it is pending: placed pods are not sent to extenders."""


class NodeWithJson(Node, frozen=True):
    """A node with its JSON."""

    json: bytes = msgspec.field(default=b"", name=_ELSEWHERE)


def carries_json(type_: type) -> bool:
    """Return whether objects of a type keep their JSON."""
    return issubclass(type_, (PodWithJson, NodeWithJson))


def keep_json(obj: Any, data: bytes) -> None:
    """Set the JSON that a new object was decoded from, with the fields that Go's informers keep.

    These exclude ``kind`` and ``apiVersion``, and ``metadata.managedFields`` of pods.
    """
    if isinstance(obj, PendingPodWithJson) and obj.spec.node_name:
        return
    if isinstance(obj, (PodWithJson, NodeWithJson)):
        # The Struct is frozen, but not yet published: nothing can have read it.
        msgspec.structs.force_setattr(obj, "json", _stripped(data, isinstance(obj, PodWithJson)))


def json_of(obj: Pod | Node) -> bytes:
    """Return the JSON that an object was decoded from, or else that of its typed fields."""
    if isinstance(obj, (PodWithJson, NodeWithJson)) and obj.json:
        return obj.json
    return msgspec.json.encode(obj)


def json_of_pod_on(pod: Pod, node_name: str) -> bytes:
    """Return the JSON of a pod that is placed on a node or assumed there."""
    text = json_of(pod)
    if pod.spec.node_name == node_name:
        return text
    fields = _FIELDS.decode(text)
    spec = _FIELDS.decode(fields["spec"]) if "spec" in fields else {}
    spec["nodeName"] = msgspec.Raw(msgspec.json.encode(node_name))
    fields["spec"] = msgspec.Raw(msgspec.json.encode(spec))
    return msgspec.json.encode(fields)


def _stripped(data: bytes, of_pod: bool) -> bytes:
    fields = _FIELDS.decode(data)
    fields.pop("kind", None)
    fields.pop("apiVersion", None)
    if of_pod and "metadata" in fields:
        metadata = _FIELDS.decode(fields["metadata"])
        if metadata.pop("managedFields", None) is not None:
            fields["metadata"] = msgspec.Raw(msgspec.json.encode(metadata))
    # Always encoded anew: a Raw would keep the whole chunk that it came in in memory.
    return msgspec.json.encode(fields)
