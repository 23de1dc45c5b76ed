"""The request and response bodies of HTTP extenders.

The format is ``k8s.io/kube-scheduler/extender/v1`` as Go writes it: fields without JSON names of
their own, hence capital letters and explicit nulls. As in Go, the keys of a response are matched
without regard to case, and unknown keys are ignored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

import msgspec
from msgspec import Struct

from proreus.base.errors import ExtenderError
from proreus.framework.pod_info import PodInfo
from proreus.framework.post_filter_result import Victims
from proreus.objects.codec import UNDECODABLE, decode_error
from proreus.objects.node import Node
from proreus.objects.pod import Pod
from proreus.objects.with_json import json_of, json_of_pod_on

T = TypeVar("T")

_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw] | None)


class _Metadata(msgspec.Struct, frozen=True, gc=False):
    name: str = ""


class _Node(msgspec.Struct, frozen=True, gc=False):
    metadata: _Metadata = _Metadata()


_NODES = msgspec.json.Decoder(list[_Node])


# ---- requests ------------------------------------------------------------------------------------


def extender_args(pod: Pod, nodes: Sequence[Node], by_name: bool) -> bytes:
    """Return ExtenderArgs: a pod and its nodes, by name for extenders that know the nodes."""
    body: dict[str, object] = {"Pod": msgspec.Raw(json_of(pod)), "Nodes": None, "NodeNames": None}
    if by_name:
        body["NodeNames"] = [node.metadata.name for node in nodes]
    else:
        items = [msgspec.Raw(json_of(node)) for node in nodes]
        body["Nodes"] = {"metadata": {}, "items": items}
    return msgspec.json.encode(body)


def extender_preemption_args(pod: Pod, victims: Mapping[str, Victims], by_name: bool) -> bytes:
    """Return ExtenderPreemptionArgs: victims by node, as UIDs for extenders that know pods."""
    # Go writes maps in the order of their keys.
    by_node = {
        name: {
            "Pods": [_victim(pod, name, by_name) for pod in victims[name].pods],
            "NumPDBViolations": victims[name].pdb_violations,
        }
        for name in sorted(victims)
    }
    return msgspec.json.encode(
        {
            "Pod": msgspec.Raw(json_of(pod)),
            "NodeNameToVictims": None if by_name else by_node,
            "NodeNameToMetaVictims": by_node if by_name else None,
        }
    )


def extender_binding_args(pod: Pod, node_name: str) -> bytes:
    """Return ExtenderBindingArgs."""
    meta = pod.metadata
    return msgspec.json.encode(
        {
            "PodName": meta.name,
            "PodNamespace": meta.namespace,
            "PodUID": meta.uid,
            "Node": node_name,
        }
    )


def _victim(pod: PodInfo, node_name: str, by_name: bool) -> object:
    return {"UID": pod.uid} if by_name else msgspec.Raw(json_of_pod_on(pod.pod, node_name))


# ---- responses -----------------------------------------------------------------------------------


class ExtenderFilterResult(Struct, frozen=True):
    """A response to Filter.

    ``names``: the nodes that are left. ``as_objects``: they came as objects, not as names.
    ``failed`` and ``unresolvable``: messages by node.
    """

    names: list[str]
    as_objects: bool
    failed: dict[str, str]
    unresolvable: dict[str, str]


class MetaVictims(Struct, frozen=True):
    """Victims as extenders name them."""

    uids: list[str]
    pdb_violations: int


def read_filter_result(body: bytes, by_name: bool) -> ExtenderFilterResult:
    """Read an ExtenderFilterResult; raises ``ExtenderError`` for the error that it may carry.

    Names count only from an extender that was sent names; otherwise, and without them, the objects.
    """
    fields = _fields(body, "ExtenderFilterResult")
    _raise_error(fields)
    # ``as_objects`` matters: kube-scheduler then takes the nodes as they came, without pods.
    names = _read(fields, "nodenames", list[str]) if by_name else None
    as_objects = names is None
    if names is None:
        nodes = _fields(fields.get("nodes", b"null"), "Nodes")
        names = _names_of(nodes.get("items", msgspec.Raw(b"null")))
    return ExtenderFilterResult(
        names,
        as_objects,
        failed=_read(fields, "failednodes", dict[str, str]) or {},
        unresolvable=_read(fields, "failedandunresolvablenodes", dict[str, str]) or {},
    )


def read_host_priority_list(body: bytes) -> list[tuple[str, int]]:
    """Read a HostPriorityList: nodes and their scores, neither of them checked."""
    items = _decoded(body, list[msgspec.Raw], "HostPriorityList") or []
    scores = []
    for item in items:
        fields = _fields(item, "HostPriority")
        scores.append((_read(fields, "host", str) or "", _integer(fields, "score")))
    return scores


def read_preemption_result(body: bytes) -> dict[str, MetaVictims]:
    """Read an ExtenderPreemptionResult: victims by node."""
    fields = _fields(body, "ExtenderPreemptionResult")
    by_node = _read(fields, "nodenametometavictims", dict[str, msgspec.Raw]) or {}
    found = {}
    for name, raw in by_node.items():
        victims = _fields(raw, "MetaVictims")
        pods = _read(victims, "pods", list[msgspec.Raw]) or []
        uids = [_read(_fields(pod, "MetaPod"), "uid", str) or "" for pod in pods]
        found[name] = MetaVictims(uids, _integer(victims, "numpdbviolations"))
    return found


def read_binding_result(body: bytes) -> None:
    """Read an ExtenderBindingResult; raises ``ExtenderError`` for the error that it may carry."""
    _raise_error(_fields(body, "ExtenderBindingResult"))


def _raise_error(fields: Mapping[str, msgspec.Raw]) -> None:
    error = _read(fields, "error", str)
    if error:
        raise ExtenderError(error)


def _names_of(items: msgspec.Raw) -> list[str]:
    """Return the names of nodes."""
    # In one pass if possible. It fails where keys are not spelled as usual, which Go would accept.
    try:
        names = [node.metadata.name for node in _NODES.decode(items)]
        if all(names):
            return names
    except UNDECODABLE:
        pass
    found = []
    for item in _decoded(items, list[msgspec.Raw], "items") or []:
        metadata = _fields(_fields(item, "Node").get("metadata", b"null"), "metadata")
        found.append(_read(metadata, "name", str) or "")
    return found


def _integer(fields: Mapping[str, msgspec.Raw], key: str) -> int:
    return _read(fields, key, int) or 0


def _fields(data: bytes | msgspec.Raw, what: str) -> dict[str, msgspec.Raw]:
    """Return the fields of an object by their names in lower case; null has none."""
    try:
        fields = _FIELDS.decode(data)
    except UNDECODABLE as error:
        raise _unreadable(what, error) from error
    return {key.lower(): value for key, value in fields.items()} if fields else {}


def _read(fields: Mapping[str, msgspec.Raw], key: str, type_: type[T]) -> T | None:
    """Return a field; None where it is absent or null."""
    raw = fields.get(key)
    return None if raw is None else _decoded(raw, type_, key)


def _decoded(data: bytes | msgspec.Raw, type_: type[T], what: str) -> T | None:
    try:
        return msgspec.json.decode(data, type=type_ | None)
    except UNDECODABLE as error:
        raise _unreadable(what, error) from error


def _unreadable(what: str, error: Exception) -> ExtenderError:
    return ExtenderError(f"the extender's answer cannot be read: {what}: {decode_error(error)}")
