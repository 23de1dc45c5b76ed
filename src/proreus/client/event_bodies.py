"""What an Event looks like on the wire, in its two forms.

events.k8s.io/v1 is what kube-scheduler writes; core/v1 serves apiservers without that group, and
the events about a Lease, which client-go's elector writes in that form anywhere.
"""

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from proreus.objects.kinds import PODS
from proreus.objects.meta import JsonObject, Resource
from proreus.objects.pod import Pod
from proreus.objects.scheduling import POD_GROUPS, PodGroup

_NOTE_BYTES = 1024
_VERB = re.compile(r"%([+\-# 0]*)(\[\d*\])?(\*|\d+)?(?:\.(\*|\d+)?)?(.?)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class ObjectReference:
    """v1.ObjectReference: what an event is about."""

    kind: str
    name: str
    namespace: str = ""
    uid: str = ""
    api_version: str = "v1"
    resource_version: str = ""

    def body(self) -> JsonObject:
        """Return the reference as the API has it."""
        fields = {
            "kind": self.kind,
            "namespace": self.namespace,
            "name": self.name,
            "uid": self.uid,
            "apiVersion": self.api_version,
            "resourceVersion": self.resource_version,
        }
        return {key: value for key, value in fields.items() if value}


def reference_to(obj: Pod | PodGroup) -> ObjectReference:
    """Return the reference to an object, in the version at hand."""
    meta = obj.metadata
    kind: Resource[Any] = POD_GROUPS if isinstance(obj, PodGroup) else PODS
    names = kind.kind, meta.name, meta.namespace, meta.uid
    return ObjectReference(*names, kind.api_version, meta.resource_version)


@dataclass(frozen=True, slots=True)
class EventKey:
    """What an event says; two that are equal (but for the note) are one event that repeats."""

    type: str
    reason: str
    action: str
    controller: str
    regarding: ObjectReference
    related: ObjectReference | None = None


def event_body(
    text: EventKey, note: str, name: str, instant: float, instance: str, *, core: bool
) -> JsonObject:
    """Return a new Event; ``instant`` in seconds since the epoch."""
    body: JsonObject = {
        "kind": "Event",
        "metadata": {"name": name, "namespace": text.regarding.namespace or "default"},
        "reason": text.reason,
        "type": text.type,
    }
    if core:
        body |= {
            "apiVersion": "v1",
            "involvedObject": text.regarding.body(),
            "message": truncate_note(note),
            "source": {"component": text.controller},
            "reportingComponent": text.controller,
            "firstTimestamp": seconds_time(instant),
            "lastTimestamp": seconds_time(instant),
            "count": 1,
        }
    else:
        body |= {
            "apiVersion": "events.k8s.io/v1",
            "eventTime": micro_time(instant),
            "reportingController": text.controller,
            "reportingInstance": instance,
            "action": text.action,
            "regarding": text.regarding.body(),
            "note": truncate_note(note),
        }
        if text.related is not None:
            body["related"] = text.related.body()
    return body


def series_patch(count: int, last_instant: float, *, core: bool) -> JsonObject:
    """Return the patch that says how often an event was seen, and when last."""
    if core:
        return {"count": count, "lastTimestamp": seconds_time(last_instant)}
    return {"series": {"count": count, "lastObservedTime": micro_time(last_instant)}}


def micro_time(instant: float) -> str:
    """Return metav1.MicroTime."""
    return datetime.fromtimestamp(instant, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def seconds_time(instant: float) -> str:
    """Return metav1.Time."""
    return datetime.fromtimestamp(instant, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def truncate_note(note: str) -> str:
    """Return a note of at most 1024 bytes: the first 1020 and " ..." of a longer one."""
    data = note.encode()
    if len(data) <= _NOTE_BYTES:
        return note
    return data[: _NOTE_BYTES - 4].decode(errors="ignore") + " ..."


def printf_without_arguments(text: str) -> str:
    """Return what Go's Sprintf makes of a format that got no arguments.

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
