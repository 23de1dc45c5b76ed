"""Builders of nodes, pods, tables and plugins for tests, in one line each.

Defaults are those of an ordinary cluster. Fields without a parameter go into ``spec``, ``status``
or ``metadata``, as in YAML.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from proreus.base.errors import ConfigError
from proreus.config.fields import PluginArgs
from proreus.framework.cluster_table import ClusterTable
from proreus.framework.handle import Handle
from proreus.framework.node_info import NodeInfo
from proreus.framework.plugin import Plugin
from proreus.framework.pod_info import PodInfo
from proreus.objects.codec import decoder_for
from proreus.objects.kinds import BY_KIND
from proreus.objects.meta import key_of
from proreus.objects.node import Node
from proreus.objects.pod import Pod
from proreus.offline.api import JsonObject

P = TypeVar("P", bound=Plugin)
Resources = Mapping[str, str | int | float]
AnyPod = PodInfo | Pod | JsonObject | str
"""A pod from ``make_pod``, as an API object, as in YAML, or as ``[namespace/]name``."""


def make_node(
    name: str,
    cpu: str | int = "4",
    memory: str | int = "8Gi",
    pods: str | int = 110,
    *,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    taints: Sequence[str] = (),
    unschedulable: bool = False,
    images: Mapping[str, int] | None = None,
    resources: Resources | None = None,
    status: Mapping[str, Any] | None = None,
) -> Node:
    """Return a node.

    ``cpu``, ``memory``, ``pods``: allocatable amounts, as quantities (``"500m"``, ``"8Gi"``) or
    numbers of cores, bytes and pods. ``resources``: further ones by resource name. ``taints``:
    ``key=value:Effect`` or ``key:Effect``. ``images``: size in bytes by name. ``status`` overrides
    fields of the status. The label ``kubernetes.io/hostname`` is always set. Raises ``ValueError``
    for a field in snake_case.
    """
    _require_names_as_in_yaml(status or {})
    allocatable = {"cpu": cpu, "memory": memory, "pods": pods, **(resources or {})}
    return decoder_for(Node).convert(
        {
            "metadata": {
                "name": name,
                "uid": f"uid-of-{name}",
                "labels": {"kubernetes.io/hostname": name, **(labels or {})},
                "annotations": dict(annotations or {}),
            },
            "spec": {"taints": [_taint(text) for text in taints], "unschedulable": unschedulable},
            "status": {
                "allocatable": allocatable,
                "capacity": allocatable,
                "images": [
                    {"names": [image], "sizeBytes": size} for image, size in (images or {}).items()
                ],
                **(status or {}),
            },
        }
    )


def make_pod(
    name: str = "pod",
    cpu: str | int | None = None,
    memory: str | int | None = None,
    *,
    namespace: str = "default",
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    node_name: str = "",
    priority: int | None = None,
    image: str = "",
    resources: Resources | None = None,
    host_ports: Iterable[int | str] = (),
    node_selector: Mapping[str, str] | None = None,
    tolerations: Sequence[Mapping[str, Any]] = (),
    affinity: Mapping[str, Any] | None = None,
    scheduler_name: str = "default-scheduler",
    metadata: Mapping[str, Any] | None = None,
    spec: Mapping[str, Any] | None = None,
    status: Mapping[str, Any] | None = None,
) -> PodInfo:
    """Return a pod with one container; ``.pod`` is the API object.

    ``cpu``, ``memory``, ``resources``: the container's requests, as quantities or numbers of cores,
    bytes and units; None for none. ``host_ports``: ``80``, ``"80/UDP"`` or ``"10.0.0.1:80/TCP"``.
    ``node_name``: the node on which it runs already. ``metadata``, ``spec``, ``status``: further
    fields as in YAML, which override the other parameters. Raises ``ValueError`` for a field in
    snake_case.
    """
    named = {"cpu": cpu, "memory": memory, **(resources or {})}
    container = {
        "name": "main",
        "image": image,
        "resources": {
            "requests": {key: value for key, value in named.items() if value is not None}
        },
        "ports": [_host_port(port) for port in host_ports],
    }
    meta = {
        "name": name,
        "namespace": namespace,
        "uid": f"uid-of-{namespace}-{name}",
        "labels": dict(labels or {}),
        "annotations": dict(annotations or {}),
        **(metadata or {}),
    }
    asked = {
        "containers": [container],
        "nodeName": node_name,
        "schedulerName": scheduler_name,
        "priority": priority,
        "nodeSelector": None if node_selector is None else dict(node_selector),
        "tolerations": list(tolerations),
        "affinity": affinity,
        **(spec or {}),
    }
    raw = {"metadata": meta, "spec": asked, "status": status or {}}
    _require_names_as_in_yaml(raw)
    return PodInfo(decoder_for(Pod).convert(raw))


def _require_names_as_in_yaml(value: object) -> None:
    """Raise ``ValueError`` for a field in snake_case, which would be ignored as unknown."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            if re.fullmatch(r"[a-z]+(_[a-z]+)+", name):
                raise ValueError(f"fields are written as in YAML, in camelCase, not {name!r}")
            if name not in _FREE_KEYS:
                _require_names_as_in_yaml(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            _require_names_as_in_yaml(inner)


_FREE_KEYS = frozenset(
    {
        *("annotations", "labels", "matchLabels", "nodeSelector"),
        *("allocatable", "allocated", "capacity", "limits", "overhead", "requests"),
        *("options", "volumeAttributes"),
    }
)
"""Fields whose values have keys that users choose."""


def make_table(nodes: Iterable[Node] = (), pods: Iterable[PodInfo] = ()) -> ClusterTable:
    """Return a table of nodes, with each pod on the node of its ``node_name``.

    Raises ``KeyError`` for a pod whose node is not among ``nodes``.
    """
    table = ClusterTable()
    for node in nodes:
        info = NodeInfo(node.metadata.name)
        info.set_node(node)
        table.add_node(info)
    for pod in pods:
        table.add_pod(table.rows[pod.pod.spec.node_name], pod)
    return table


def make_plugin(
    plugin: type[P], handle: Handle, args: Mapping[str, Any] | PluginArgs | None = None
) -> P:
    """Return a plugin, constructed as by a profile.

    ``args``: as in a configuration file, or an instance of ``plugin.Args``; they are defaulted and
    validated. Raises ``ConfigError`` with all problems, or pydantic's ``ValidationError``.
    """
    model, gates = plugin.Args, handle.feature_gates
    if model is None:
        return plugin(args, handle)
    if not isinstance(args, PluginArgs):
        args = model.model_validate_json(json.dumps(dict(args or {})))
    args = args.with_defaults(gates)
    problems = tuple(args.problems("", gates))
    if problems:
        raise ConfigError(*problems)
    return plugin(args, handle)


def _taint(text: str) -> dict[str, str]:
    rest, _, effect = text.rpartition(":")
    key, _, value = rest.partition("=")
    if not key:
        raise ValueError(f"a taint is written key=value:Effect or key:Effect, not {text!r}")
    return {"key": key, "value": value, "effect": effect}


def _host_port(text: int | str) -> dict[str, Any]:
    rest, _, protocol = str(text).partition("/")
    address, _, port = rest.rpartition(":")
    made: dict[str, Any] = {"containerPort": int(port), "hostPort": int(port)}
    if address:
        made["hostIP"] = address
    if protocol:
        made["protocol"] = protocol
    return made


# ---- objects in other forms ---------------------------------------------------------------------


def as_node(node: Node | JsonObject | str) -> Node | JsonObject:
    """Return the node, or the default node of ``make_node`` for a name."""
    return make_node(node) if isinstance(node, str) else node


def as_pod(pod: PodInfo | Pod | JsonObject) -> Pod:
    """Return the API object of a pod."""
    if isinstance(pod, PodInfo):
        return pod.pod
    if isinstance(pod, Pod):
        return pod
    _require_object(pod)
    return decoder_for(Pod).convert(with_defaults({"kind": "Pod", **pod}))


def key_of_pod(pod: AnyPod) -> str:
    """Return the key of a pod, ``namespace/name``."""
    if isinstance(pod, str):
        return pod if "/" in pod else f"default/{pod}"
    return key_of(as_pod(pod))


def _require_object(obj: object) -> None:
    if not isinstance(obj, Mapping):
        raise TypeError(f"objects are given by make_pod, make_node or as in YAML, not as {obj!r}")


def with_defaults(obj: JsonObject) -> JsonObject:
    """Return an object with the apiserver's defaults: its namespace, and a pod's schedulerName.

    A custom object stays as it is. Raises ``LookupError`` for an unknown kind.
    """
    _require_object(obj)
    kind, group = obj.get("kind", ""), obj.get("apiVersion", "").rpartition("/")[0]
    if "." in group and (kind not in BY_KIND or BY_KIND[kind].group != group):
        return obj
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
