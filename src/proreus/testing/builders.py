"""Nodes, pods, tables and plugins for tests, each in a line.

What is not named is as in an ordinary cluster. Anything the arguments do not cover goes into
``spec``, ``status`` or ``metadata`` as it would stand in YAML.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from proreus.config.types import PluginArgs
from proreus.errors import ConfigError
from proreus.framework.cluster_table import ClusterTable
from proreus.framework.handle import Handle
from proreus.framework.node_info import NodeInfo
from proreus.framework.plugin import Plugin
from proreus.framework.pod_info import PodInfo
from proreus.objects.codec import decoder_for
from proreus.objects.node import Node
from proreus.objects.pod import Pod

P = TypeVar("P", bound=Plugin)
Resources = Mapping[str, str | int | float]


def make_node(
    name: str,
    cpu: str | int = "4",
    memory: str | int = "8Gi",
    pods: str | int = 110,
    *,
    labels: Mapping[str, str] | None = None,
    taints: Sequence[str] = (),
    unschedulable: bool = False,
    images: Mapping[str, int] | None = None,
    resources: Resources | None = None,
    status: Mapping[str, Any] | None = None,
) -> Node:
    """Return a node.

    ``taints``: ``key=value:Effect`` or ``key:Effect``. ``images``: bytes by name. ``resources``:
    further allocatable amounts. A hostname label is always there.
    """
    allocatable = {"cpu": cpu, "memory": memory, "pods": pods, **(resources or {})}
    return decoder_for(Node).convert(
        {
            "metadata": {
                "name": name,
                "uid": f"uid-of-{name}",
                "labels": {"kubernetes.io/hostname": name, **(labels or {})},
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

    ``cpu``, ``memory``, ``resources``: what the container asks for. ``host_ports``: 80,
    ``80/UDP`` or ``10.0.0.1:80/TCP``. ``node_name``: where it runs. ``spec`` overrides everything.
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
    return PodInfo(decoder_for(Pod).convert(raw))


def make_table(nodes: Iterable[Node] = (), pods: Iterable[PodInfo] = ()) -> ClusterTable:
    """Return a table of nodes, with pods on the nodes that they name."""
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
    """Return a plugin as a profile makes it.

    ``args``: as in a file, or a model; completed and checked. Raises ``ConfigError``.
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
