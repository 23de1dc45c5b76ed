"""The JSON of Events, in both API versions.

kube-scheduler writes events.k8s.io/v1; core/v1 is for apiservers without that group, and for Events
about a Lease, which client-go's leader election always writes in that version.
"""

import re
from datetime import UTC, datetime
from typing import Any

from msgspec import Struct

from proreus.base.clock import rfc3339
from proreus.base.kubernetes_version import KubernetesVersion
from proreus.objects.kinds import PODS
from proreus.objects.meta import JsonObject, Resource
from proreus.objects.pod import Pod
from proreus.objects.scheduling import (
    COMPOSITE_POD_GROUPS,
    POD_GROUPS,
    CompositePodGroup,
    PodGroup,
)

_NOTE_BYTES = 1024
_VERB = re.compile(r"%([+\-# 0]*)(\[\d*\])?(\*|\d+)?(?:\.(\*|\d+)?)?(.?)", re.DOTALL)


class ObjectReference(Struct, frozen=True):
    """v1.ObjectReference: the object that an Event is about."""

    kind: str
    name: str
    namespace: str = ""
    uid: str = ""
    api_version: str = "v1"
    resource_version: str = ""

    def body(self) -> JsonObject:
        """Return the reference as JSON; empty fields are omitted."""
        fields = {
            "kind": self.kind,
            "namespace": self.namespace,
            "name": self.name,
            "uid": self.uid,
            "apiVersion": self.api_version,
            "resourceVersion": self.resource_version,
        }
        return {key: value for key, value in fields.items() if value}


def reference_to(
    obj: Pod | PodGroup | CompositePodGroup, kubernetes_version: KubernetesVersion
) -> ObjectReference:
    """Return the reference to an object as a Kubernetes version serves it, with its current
    resourceVersion."""
    meta = obj.metadata
    kind: Resource[Any] = PODS
    if not isinstance(obj, Pod):
        kind = POD_GROUPS if isinstance(obj, PodGroup) else COMPOSITE_POD_GROUPS
    names = kind.kind, meta.name, meta.namespace, meta.uid
    api_version = kind.as_of(kubernetes_version).api_version
    return ObjectReference(*names, api_version, meta.resource_version)


class EventKey(Struct, frozen=True):
    """The identity of an Event: two Events that differ only in their notes are one Event that
    repeats.

    client-go's ``eventKey``.
    """

    type: str
    reason: str
    action: str
    controller: str
    regarding: ObjectReference
    related: ObjectReference | None = None


def event_body(
    event_key: EventKey, note: str, name: str, instant: float, instance: str, *, core: bool
) -> JsonObject:
    """Return a new Event; ``instant`` in seconds since the epoch."""
    regarding = event_key.regarding
    body: JsonObject = {
        "kind": "Event",
        "metadata": {"name": name, "namespace": regarding.namespace or "default"},
        "reason": event_key.reason,
        "type": event_key.type,
    }
    if core:
        body |= {
            "apiVersion": "v1",
            "involvedObject": regarding.body(),
            "message": truncate_note(note),
            "source": {"component": event_key.controller},
            "reportingComponent": event_key.controller,
            "firstTimestamp": rfc3339(instant),
            "lastTimestamp": rfc3339(instant),
            "count": 1,
        }
    else:
        body |= {
            "apiVersion": "events.k8s.io/v1",
            "eventTime": micro_time(instant),
            "reportingController": event_key.controller,
            "reportingInstance": instance,
            "action": event_key.action,
            "regarding": regarding.body(),
            "note": truncate_note(note),
        }
        if event_key.related is not None:
            body["related"] = event_key.related.body()
    return body


def series_patch(count: int, last_instant: float, *, core: bool) -> JsonObject:
    """Return the patch that updates an Event's count and its last time."""
    if core:
        return {"count": count, "lastTimestamp": rfc3339(last_instant)}
    return {"series": {"count": count, "lastObservedTime": micro_time(last_instant)}}


def micro_time(instant: float) -> str:
    """Return a metav1.MicroTime; ``instant`` in seconds since the epoch."""
    return datetime.fromtimestamp(instant, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def truncate_note(note: str) -> str:
    """Return the note, or the first 1020 bytes of a longer one and " ..." (the API allows 1024)."""
    data = note.encode()
    if len(data) <= _NOTE_BYTES:
        return note
    return data[: _NOTE_BYTES - 4].decode(errors="ignore") + " ..."


def printf_without_arguments(text: str) -> str:
    """Return the result of Go's Sprintf for a format without arguments.

    kube-scheduler passes the FailedScheduling message as a format, so that ``%d`` in it becomes
    ``%!d(MISSING)``.
    """
    return _VERB.sub(_missing, text)


def _missing(match: re.Match[str]) -> str:
    _, index, width, precision, verb = match.groups()
    stars = "%!(BADWIDTH)" * (width == "*") + "%!(BADPREC)" * (precision == "*")
    if not verb:
        return stars + "%!(NOVERB)"
    if verb == "%":
        return stars + "%"
    return f"{stars}%!{verb}({'BADINDEX' if index else 'MISSING'})"
