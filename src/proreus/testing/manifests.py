"""Objects as tests write them, made what an apiserver would have."""

from __future__ import annotations

from proreus.framework.pod_info import PodInfo
from proreus.objects.codec import decoder_for
from proreus.objects.kinds import BY_KIND
from proreus.objects.meta import key_of
from proreus.objects.node import Node
from proreus.objects.pod import Pod
from proreus.offline.api import JsonObject
from proreus.testing.builders import make_node

AnyPod = PodInfo | Pod | JsonObject | str
"""A pod as ``make_pod`` returns it, as an API object, as in YAML, or ``[namespace/]name``."""


def as_node(node: Node | JsonObject | str) -> Node | JsonObject:
    """Return a node; a name stands for an ordinary one."""
    return make_node(node) if isinstance(node, str) else node


def as_pod(pod: PodInfo | Pod | JsonObject) -> Pod:
    """Return the API object."""
    if isinstance(pod, PodInfo):
        return pod.pod
    if isinstance(pod, Pod):
        return pod
    return decoder_for(Pod).convert(with_defaults({"kind": "Pod", **pod}))


def key_of_pod(pod: AnyPod) -> str:
    """Return ``namespace/name``."""
    if isinstance(pod, str):
        return pod if "/" in pod else f"default/{pod}"
    return key_of(as_pod(pod))


def with_defaults(obj: JsonObject) -> JsonObject:
    """Fill in what an apiserver would: the namespace; for a pod, who schedules it."""
    kind = obj.get("kind", "")
    if kind not in BY_KIND:
        known = ", ".join(sorted(BY_KIND))
        raise LookupError(
            f"kind {kind!r} is not known: use put(resource, object), or one of {known}"
        )
    meta = dict(obj.get("metadata") or {})
    if BY_KIND[kind].namespaced:
        meta.setdefault("namespace", "default")
    made = {**obj, "metadata": meta}
    if kind == "Pod":
        made["spec"] = {"schedulerName": "default-scheduler", **(obj.get("spec") or {})}
    return made
