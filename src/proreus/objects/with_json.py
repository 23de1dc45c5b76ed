"""Pods and nodes that also carry the JSON they came as, unknown fields and all.

Typed Structs drop what a scheduler does not read; HTTP extenders are sent whole objects, as the
apiserver has them. Only where such extenders are configured are objects of these types made, since
the text takes several times the memory of the Struct.
"""

from __future__ import annotations

from typing import Any

import msgspec

from proreus.objects.node import Node
from proreus.objects.pod import Pod

_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ELSEWHERE = "(json)"
"""No field of any API object: the text is never read from the wire under a name of its own."""


class PodWithJson(Pod, frozen=True):
    """A pod with its JSON."""

    json: bytes = msgspec.field(default=b"", name=_ELSEWHERE)


class PendingPodWithJson(PodWithJson, frozen=True):
    """A pod with its JSON until it has a node: who decides sends it, nobody sends the others."""


class NodeWithJson(Node, frozen=True):
    """A node with its JSON."""

    json: bytes = msgspec.field(default=b"", name=_ELSEWHERE)


def carries_json(type_: type) -> bool:
    """Tell whether objects of a type carry their JSON."""
    return issubclass(type_, (PodWithJson, NodeWithJson))


def keep_json(obj: Any, data: bytes) -> None:
    """Let a fresh object carry the JSON that it was decoded from, as Go's informers keep it.

    That is without ``kind`` and ``apiVersion``, and pods without ``metadata.managedFields``.
    """
    if isinstance(obj, PendingPodWithJson) and obj.spec.node_name:
        return
    if isinstance(obj, (PodWithJson, NodeWithJson)):
        # Not a change: nobody has seen the object yet.
        msgspec.structs.force_setattr(obj, "json", _stripped(data, isinstance(obj, PodWithJson)))


def json_of(obj: Pod | Node) -> bytes:
    """Return the JSON of an object: the apiserver's, or what its typed fields say."""
    if isinstance(obj, (PodWithJson, NodeWithJson)) and obj.json:
        return obj.json
    return msgspec.json.encode(obj)


def json_of_pod_on(pod: Pod, node_name: str) -> bytes:
    """Return the JSON of a pod that is on a node, or was assumed there."""
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
    # Written anew in any case: a Raw would hold on to the whole chunk it came in.
    return msgspec.json.encode(fields)
