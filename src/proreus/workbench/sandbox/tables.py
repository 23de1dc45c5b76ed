"""The tables that ``kubectl get`` prints, which the server renders (``metav1.Table``)."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from proreus.base.clock import Clock
from proreus.objects.quantity import milli_value, parse_quantity, whole_value
from proreus.workbench.sandbox.collection import decode_json, encode_json
from proreus.workbench.sandbox.resources import ServedResource
from proreus.workbench.sandbox.watch import Converter

JsonObject = dict[str, Any]

_NONE = "<none>"


def wants_table(accept: str) -> bool:
    """Return whether an ``Accept`` header asks for a table."""
    return "as=Table" in accept


def make_table(
    served: ServedResource,
    objects: Sequence[JsonObject],
    metadata: JsonObject,
    query: Mapping[str, str],
    clock: Clock,
) -> JsonObject:
    """Return a Table of objects; ``includeObject`` of the query selects those in its rows."""
    columns, now = _columns_of(served), clock.now()
    include = query.get("includeObject", "Metadata")
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": metadata,
        "columnDefinitions": [column.definition() for column in columns],
        "rows": [
            {
                "cells": [column.cell(obj, now) for column in columns],
                "object": _included(obj, include),
            }
            for obj in map(served.shown, objects)
        ],
    }


def table_converter(served: ServedResource, query: Mapping[str, str], clock: Clock) -> Converter:
    """Return a function that makes a one-row Table of an object, for watches."""

    def convert(data: bytes) -> bytes:
        obj = decode_json(data)
        metadata = {"resourceVersion": obj["metadata"]["resourceVersion"]}
        return encode_json(make_table(served, [obj], metadata, query, clock))

    return convert


def _included(obj: JsonObject, include: str) -> JsonObject | None:
    if include == "None":
        return None
    if include == "Object":
        return obj
    head = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1"}
    return head | {"metadata": obj["metadata"]}


class Column(NamedTuple):
    """A column: the value at a path, as in a CustomResourceDefinition, or of a function.

    Columns of ``priority`` 1 are shown with ``-o wide`` only. A ``date`` is shown as an age.
    """

    title: str
    source: str | Callable[[JsonObject], Any]
    priority: int = 0
    type: str = "string"

    def definition(self) -> JsonObject:
        """Return the column as a ``metav1.TableColumnDefinition``."""
        return {
            "name": self.title,
            "type": "string",
            "format": "name" if self.title == "Name" else "",
            "description": "",
            "priority": self.priority,
        }

    def cell(self, obj: JsonObject, now: float) -> Any:
        """Return the value for an object."""
        value = _at(obj, self.source) if isinstance(self.source, str) else self.source(obj)
        if value is None:
            return _NONE
        if self.type == "date":
            return duration_since(value, now)
        return value if isinstance(value, str | int | float | bool) else encode_json(value).decode()


def _at(obj: JsonObject, path: str) -> Any:
    value: Any = obj
    for part in path.strip(".").split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value


def _columns_of(served: ServedResource) -> tuple[Column, ...]:
    if served.columns:
        custom = (
            Column(c["name"], c.get("jsonPath", ""), int(c.get("priority") or 0), c.get("type", ""))
            for c in served.columns
        )
        return _NAME, *custom
    return _COLUMNS.get((served.group, served.plural), (_NAME, _AGE))


def _ready(pod: JsonObject) -> str:
    ready = sum(entry.get("ready", False) for entry in _container_statuses(pod))
    return f"{ready}/{len(pod['spec']['containers'])}"


def _restarts(pod: JsonObject) -> str:
    return str(sum(entry.get("restartCount", 0) for entry in _container_statuses(pod)))


def _container_statuses(pod: JsonObject) -> Sequence[JsonObject]:
    return pod.get("status", {}).get("containerStatuses") or ()


def _given(path: str, otherwise: str = _NONE) -> Callable[[JsonObject], Any]:
    return lambda obj: _at(obj, path) or otherwise


def _pod_status(pod: JsonObject) -> str:
    """Return the STATUS column: the phase, or the more specific reason."""
    status = pod.get("status", {})
    text = status.get("reason") or status.get("phase", "")
    for condition in status.get("conditions") or ():
        if condition["type"] == "PodScheduled" and condition.get("reason") == "SchedulingGated":
            text = "SchedulingGated"
    if status.get("phase") == "Succeeded":
        text = "Completed"
    elif status.get("phase") == "Failed" and not status.get("reason"):
        text = "Error"
    return "Terminating" if "deletionTimestamp" in pod["metadata"] else text


def _node_status(node: JsonObject) -> str:
    conditions = node.get("status", {}).get("conditions") or ()
    ready = next((c["status"] for c in conditions if c["type"] == "Ready"), None)
    state = {None: "Unknown", "True": "Ready"}.get(ready, "NotReady")
    return state + ",SchedulingDisabled" * bool(_at(node, ".spec.unschedulable"))


def _roles(node: JsonObject) -> str:
    prefix = "node-role.kubernetes.io/"
    labels = node["metadata"].get("labels") or {}
    return ",".join(sorted(k.removeprefix(prefix) for k in labels if k.startswith(prefix))) or _NONE


def _address(kind: str) -> Callable[[JsonObject], str | None]:
    def read(node: JsonObject) -> str | None:
        addresses = node.get("status", {}).get("addresses") or ()
        return {entry["type"]: entry["address"] for entry in addresses}.get(kind)

    return read


def _last_seen(event: JsonObject) -> Any:
    seen = event.get("lastTimestamp") or event.get("deprecatedLastTimestamp")
    return seen or event.get("eventTime") or event["metadata"].get("creationTimestamp")


def _regarding(event: JsonObject) -> str:
    about = event.get("involvedObject") or event.get("regarding") or {}
    return f"{str(about.get('kind', '')).lower()}/{about.get('name', '')}"


def _message(event: JsonObject) -> str:
    return str(event.get("message") or event.get("note") or "").strip()


def _usages(metrics: JsonObject, resource: str) -> list[int]:
    entries = metrics.get("containers", (metrics,))
    return [parse_quantity(entry["usage"][resource]) for entry in entries]


def _cpu(metrics: JsonObject) -> str:
    return f"{sum(map(milli_value, _usages(metrics, 'cpu')))}m"


def _memory(metrics: JsonObject) -> str:
    return f"{sum(map(whole_value, _usages(metrics, 'memory'))) >> 20}Mi"


_NAME = Column("Name", ".metadata.name")
_AGE = Column("Age", ".metadata.creationTimestamp", type="date")
_MEASURED = (_NAME, Column("CPU", _cpu), Column("Memory", _memory), Column("Window", ".window"))
_EVENTS = (
    Column("Last Seen", _last_seen, type="date"),
    Column("Type", _given(".type", "")),
    Column("Reason", _given(".reason", "")),
    Column("Object", _regarding),
    Column("Message", _message),
)
_INFO, _UNKNOWN = ".status.nodeInfo", "<unknown>"
_COLUMNS: dict[tuple[str, str], tuple[Column, ...]] = {
    ("", "pods"): (
        _NAME,
        Column("Ready", _ready),
        Column("Status", _pod_status),
        Column("Restarts", _restarts),
        _AGE,
        Column("IP", _given(".status.podIP"), 1),
        Column("Node", _given(".spec.nodeName"), 1),
        Column("Nominated Node", _given(".status.nominatedNodeName"), 1),
        Column("Readiness Gates", lambda _: _NONE, 1),
    ),
    ("", "nodes"): (
        _NAME,
        Column("Status", _node_status),
        Column("Roles", _roles),
        _AGE,
        Column("Version", f"{_INFO}.kubeletVersion"),
        Column("Internal-IP", _address("InternalIP"), 1),
        Column("External-IP", _address("ExternalIP"), 1),
        Column("OS-Image", _given(f"{_INFO}.osImage", _UNKNOWN), 1),
        Column("Kernel-Version", _given(f"{_INFO}.kernelVersion", _UNKNOWN), 1),
        Column("Container-Runtime", _given(f"{_INFO}.containerRuntimeVersion", _UNKNOWN), 1),
    ),
    ("", "events"): _EVENTS,
    ("events.k8s.io", "events"): _EVENTS,
    ("", "namespaces"): (_NAME, Column("Status", ".status.phase"), _AGE),
    ("coordination.k8s.io", "leases"): (_NAME, Column("Holder", ".spec.holderIdentity"), _AGE),
    ("scheduling.k8s.io", "priorityclasses"): (_NAME, Column("Value", ".value"), _AGE),
    ("metrics.k8s.io", "nodes"): _MEASURED,
    ("metrics.k8s.io", "pods"): _MEASURED,
}


def duration_since(timestamp: str | None, now: float) -> str:
    """Return an age in kubectl's form (``duration.HumanDuration``); ``now`` in epoch seconds."""
    if not timestamp:
        return "<unknown>"
    seconds = max(0, int(now - datetime.fromisoformat(timestamp).timestamp()))
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if seconds < 120:
        return f"{seconds}s"
    if minutes < 10:
        return f"{minutes}m{seconds % 60}s" if seconds % 60 else f"{minutes}m"
    if hours < 3:
        return f"{minutes}m"
    if hours < 8:
        return f"{hours}h{minutes % 60}m" if minutes % 60 else f"{hours}h"
    if hours < 48:
        return f"{hours}h"
    if days < 8:
        return f"{days}d{hours % 24}h" if hours % 24 else f"{days}d"
    if days < 730:
        return f"{days}d"
    return f"{days // 365}y"
