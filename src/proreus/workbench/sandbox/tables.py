"""The tables that ``kubectl get`` prints, which the server renders (``metav1.Table``)."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from proreus.base.clock import Clock
from proreus.objects.quantity import milli_value, parse_quantity, whole_value
from proreus.workbench.sandbox.collection import StoredObject, decode_json, encode_json
from proreus.workbench.sandbox.resources import ServedResource
from proreus.workbench.sandbox.watch import Converter

JsonObject = dict[str, Any]
Row = list[Any]

_AGE = ("Age", 0)
_MEASURED = (("Name", 0), ("CPU", 0), ("Memory", 0), ("Window", 0))
_COLUMNS: dict[tuple[str, str], tuple[tuple[str, int], ...]] = {
    ("", "pods"): (
        ("Name", 0), ("Ready", 0), ("Status", 0), ("Restarts", 0), _AGE,
        ("IP", 1), ("Node", 1), ("Nominated Node", 1), ("Readiness Gates", 1),
    ),
    ("", "nodes"): (
        ("Name", 0), ("Status", 0), ("Roles", 0), _AGE, ("Version", 0),
        ("Internal-IP", 1), ("External-IP", 1), ("OS-Image", 1), ("Kernel-Version", 1),
        ("Container-Runtime", 1),
    ),
    ("", "events"): (("Last Seen", 0), ("Type", 0), ("Reason", 0), ("Object", 0), ("Message", 0)),
    ("", "namespaces"): (("Name", 0), ("Status", 0), _AGE),
    ("coordination.k8s.io", "leases"): (("Name", 0), ("Holder", 0), _AGE),
    ("scheduling.k8s.io", "priorityclasses"): (("Name", 0), ("Value", 0), _AGE),
    ("metrics.k8s.io", "nodes"): _MEASURED,
    ("metrics.k8s.io", "pods"): _MEASURED,
}  # fmt: skip
"""(Title, priority) of the columns; priority 1 is shown with ``-o wide`` only."""
_GENERIC = (("Name", 0), _AGE)
_NONE = "<none>"


def wants_table(accept: str) -> bool:
    """Return whether an ``Accept`` header asks for a table."""
    return "as=Table" in accept


def make_table(
    served: ServedResource,
    versions: Sequence[StoredObject],
    list_metadata: JsonObject,
    query: Mapping[str, str],
    clock: Clock,
) -> JsonObject:
    """Return a Table; ``includeObject`` of the query selects the objects in its rows."""
    objects = [_shown(served, version.object()) for version in versions]
    if not list_metadata and versions:
        list_metadata = {"resourceVersion": str(versions[0].revision)}
    return _table(served, objects, list_metadata, query.get("includeObject", "Metadata"), clock)


def make_table_from_objects(
    served: ServedResource, objects: list[JsonObject], query: Mapping[str, str], clock: Clock
) -> JsonObject:
    """Return a Table of objects that are not stored, but computed for this response."""
    return _table(served, objects, {}, query.get("includeObject", "Metadata"), clock)


def table_converter(served: ServedResource, query: Mapping[str, str], clock: Clock) -> Converter:
    """Return a function that makes a one-row Table of an object, for watches."""
    include = query.get("includeObject", "Metadata")

    def convert(data: bytes) -> bytes:
        obj = _shown(served, decode_json(data))
        revision = obj["metadata"]["resourceVersion"]
        return encode_json(_table(served, [obj], {"resourceVersion": revision}, include, clock))

    return convert


def _shown(served: ServedResource, obj: JsonObject) -> JsonObject:
    return obj if served.from_storage is None else served.from_storage(obj)


def _table(
    served: ServedResource,
    objects: list[JsonObject],
    metadata: JsonObject,
    include: str,
    clock: Clock,
) -> JsonObject:
    columns = [_definition(title, priority) for title, priority in _columns_of(served)]
    now = clock.now()
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": metadata,
        "columnDefinitions": columns,
        "rows": [
            {"cells": _cells(served, obj, now), "object": _included(obj, include)}
            for obj in objects
        ],
    }


def _columns_of(served: ServedResource) -> tuple[tuple[str, int], ...]:
    if served.columns:
        named = tuple((str(c["name"]), int(c.get("priority") or 0)) for c in served.columns)
        return (("Name", 0), *named)
    group = "" if served.plural == "events" else served.group
    return _COLUMNS.get((group, served.plural), _GENERIC)


def _definition(title: str, priority: int) -> JsonObject:
    return {
        "name": title,
        "type": "string",
        "format": "name" if title == "Name" else "",
        "description": "",
        "priority": priority,
    }


def _included(obj: JsonObject, include: str) -> JsonObject | None:
    if include == "None":
        return None
    if include == "Object":
        return obj
    return {
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": obj["metadata"],
    }


def _cells(served: ServedResource, obj: JsonObject, now: float) -> Row:
    metadata = obj["metadata"]
    name, age = metadata["name"], duration_since(metadata.get("creationTimestamp"), now)
    if served.columns:
        return [name, *(_at_path(obj, column, now) for column in served.columns)]
    if served.read_only:
        return _measured_cells(obj, name)
    match served.plural:
        case "pods":
            return _pod_cells(obj, name, age)
        case "nodes":
            return _node_cells(obj, name, age)
        case "events":
            return _event_cells(obj, now)
        case "namespaces":
            return [name, obj.get("status", {}).get("phase", ""), age]
        case "leases":
            return [name, obj.get("spec", {}).get("holderIdentity", ""), age]
        case "priorityclasses":
            return [name, obj.get("value", 0), age]
    return [name, age]


def _pod_cells(pod: JsonObject, name: str, age: str) -> Row:
    spec, status = pod["spec"], pod.get("status", {})
    statuses = status.get("containerStatuses") or ()
    ready = sum(1 for entry in statuses if entry.get("ready"))
    restarts = sum(entry.get("restartCount", 0) for entry in statuses)
    return [
        name,
        f"{ready}/{len(spec['containers'])}",
        _pod_status(pod),
        str(restarts),
        age,
        status.get("podIP") or _NONE,
        spec.get("nodeName") or _NONE,
        status.get("nominatedNodeName") or _NONE,
        _NONE,
    ]


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


def _node_cells(node: JsonObject, name: str, age: str) -> Row:
    status = node.get("status", {})
    ready = next((c for c in status.get("conditions") or () if c["type"] == "Ready"), None)
    texts = {"True": "Ready", "False": "NotReady"}
    state = "Unknown" if ready is None else texts.get(ready["status"], "NotReady")
    if node.get("spec", {}).get("unschedulable"):
        state += ",SchedulingDisabled"
    prefix = "node-role.kubernetes.io/"
    labels = node["metadata"].get("labels") or {}
    roles = sorted(key.removeprefix(prefix) for key in labels if key.startswith(prefix))
    info = status.get("nodeInfo") or {}
    addresses = {entry["type"]: entry["address"] for entry in status.get("addresses") or ()}
    return [
        name,
        state,
        ",".join(roles) or _NONE,
        age,
        info.get("kubeletVersion", ""),
        addresses.get("InternalIP", _NONE),
        addresses.get("ExternalIP", _NONE),
        info.get("osImage") or "<unknown>",
        info.get("kernelVersion") or "<unknown>",
        info.get("containerRuntimeVersion") or "<unknown>",
    ]


def _event_cells(event: JsonObject, now: float) -> Row:
    about = event.get("involvedObject") or event.get("regarding") or {}
    seen = event.get("lastTimestamp") or event.get("deprecatedLastTimestamp")
    seen = seen or event.get("eventTime") or event["metadata"].get("creationTimestamp")
    shown = f"{str(about.get('kind', '')).lower()}/{about.get('name', '')}"
    message = event.get("message") or event.get("note") or ""
    since = duration_since(seen, now)
    return [since, event.get("type", ""), event.get("reason", ""), shown, message.strip()]


def _measured_cells(metrics: JsonObject, name: str) -> Row:
    usages = [entry["usage"] for entry in metrics.get("containers", (metrics,))]
    milli = sum(milli_value(parse_quantity(usage["cpu"])) for usage in usages)
    mebi = sum(whole_value(parse_quantity(usage["memory"])) for usage in usages) >> 20
    return [name, f"{milli}m", f"{mebi}Mi", metrics["window"]]


def _at_path(obj: JsonObject, column: JsonObject, now: float) -> Any:
    """Return the value at a printer column's simple JSON path."""
    value: Any = obj
    for part in str(column.get("jsonPath", "")).strip(".").split("."):
        value = value.get(part) if isinstance(value, dict) else None
    if value is None:
        return _NONE
    if column.get("type") == "date":
        return duration_since(value, now)
    return value if isinstance(value, str | int | float | bool) else encode_json(value).decode()


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
