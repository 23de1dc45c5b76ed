"""The descriptor of a remote plugin: its name, its extension points and the data that it needs.

Decoded as strictly as a configuration file: unknown fields are errors, and all errors are reported.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal

import msgspec

from proreus.base.errors import ConfigError
from proreus.framework import events
from proreus.framework.events import ClusterEvent
from proreus.objects.codec import DecodeError, decode_strictly
from proreus.remote.columns import column_problem
from proreus.remote.pod_fields import IDENTITY, field_problem

PROTOCOL = "v1"

POINTS = ("preFilter", "filter", "score", "reserve", "permit", "preBind", "postBind")
"""The extension points that a remote plugin may have, as spelled in a configuration."""

MOST_TIMEOUT_SECONDS = 10.0
MOST_PRE_BIND_TIMEOUT_SECONDS = 600.0

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9._-]{0,62}")


class EventRegistration(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True
):
    """Events that may make a pod schedulable that the plugin rejected; any of ``actions``."""

    resource: str
    actions: tuple[str, ...] = ("All",)


class Descriptor(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True
):
    """``GET /v1/descriptor``. ``events`` None: any event may make a rejected pod schedulable.

    ``row_local``: results of Filter and Score for a node depend only on its columns and the pod's
    fields, so that they are cached. ``failure_mode``: whether a pod fails, or is scheduled without
    the plugin, while the process does not respond.
    """

    protocol: str
    name: str
    points: tuple[str, ...]
    node_columns: tuple[str, ...] = ()
    pod_fields: tuple[str, ...] = IDENTITY
    events: tuple[EventRegistration, ...] | None = None
    timeout_seconds: float = 1.0
    pre_bind_timeout_seconds: float = 30.0
    failure_mode: Literal["fail", "ignore"] = "fail"
    row_local: bool = False
    normalize: Literal["none", "highest", "lowest"] = "none"
    arrays: Literal["json", "base64"] = "json"

    @property
    def ignorable(self) -> bool:
        """Whether pods are scheduled without the plugin while it does not respond."""
        return self.failure_mode == "ignore"

    def cluster_events(self) -> Iterable[ClusterEvent]:
        """Return the events to register for the plugin."""
        if self.events is None:
            return events.ALL_EVENTS
        return [ClusterEvent(event.resource, _actions_of(event)) for event in self.events]


def read_descriptor(body: bytes, where: str) -> Descriptor:
    """Decode and validate a descriptor; raises ``ConfigError`` with all errors, after ``where``."""
    try:
        given = decode_strictly(body, dict[str, Any])
    except DecodeError as error:
        raise ConfigError(f"{where}: descriptor: {error}") from None
    descriptor, problems = _from_fields(given)
    problems += _problems(descriptor)
    if problems:
        raise ConfigError(*(f"{where}: descriptor: {problem}" for problem in problems))
    return descriptor


def _from_fields(given: Mapping[str, object]) -> tuple[Descriptor, list[str]]:
    """Return a descriptor of the fields that are right, and a text for each other field.

    A required field that is wrong has a valid value in the descriptor, which gets no second text.
    """
    values: dict[str, Any] = {"protocol": PROTOCOL, "name": "x", "points": POINTS[:1]}
    known = {field.encode_name: field for field in msgspec.structs.fields(Descriptor)}
    problems = [
        f"{name}: is unknown, allowed are {', '.join(known)}" for name in given if name not in known
    ]
    for name, field in known.items():
        if name not in given:
            if field.required:
                problems.append(f"{name}: is missing")
            continue
        try:
            values[field.name] = msgspec.convert(given[name], field.type)
        except msgspec.ValidationError as error:
            problems.append(f"{name}: {error}")
    return Descriptor(**values), problems


def changed_fields(one: Descriptor, other: Descriptor) -> list[str]:
    """Return the fields in which two descriptors differ, as JSON spells them."""
    return [
        field.encode_name
        for field in msgspec.structs.fields(Descriptor)
        if getattr(one, field.name) != getattr(other, field.name)
    ]


def empty_slot(name: str) -> Descriptor:
    """Return the descriptor of a slot without a process: it has no extension points."""
    return Descriptor(protocol=PROTOCOL, name=name, points=(), failure_mode="ignore")


def name_problem(name: str) -> str | None:
    """Return why a plugin cannot have a name, or None if it can."""
    if _NAME.fullmatch(name):
        return None
    return (
        f'"{name}" must begin with a letter, contain only letters, digits, "-", "_" or ".", and '
        "have at most 63 characters"
    )


def _problems(descriptor: Descriptor) -> Iterator[str]:
    if descriptor.protocol != PROTOCOL:
        yield f'protocol: "{descriptor.protocol}" is not supported, allowed is "{PROTOCOL}"'
    if problem := name_problem(descriptor.name):
        yield f"name: {problem}"
    if not descriptor.points:
        yield f"points: at least one is needed, allowed are {', '.join(POINTS)}"
    yield from _unknown_or_twice("points", descriptor.points, POINTS)
    for field, texts, problem_of in (
        ("nodeColumns", descriptor.node_columns, column_problem),
        ("podFields", descriptor.pod_fields, field_problem),
    ):
        for index, text in enumerate(texts):
            if problem := problem_of(text):
                yield f"{field}[{index}]: {problem}"
        yield from _unknown_or_twice(field, texts, texts)
    for index, event in enumerate(descriptor.events or ()):
        yield from _unknown_or_twice(f"events[{index}].actions", event.actions, tuple(_ACTIONS))
    for field, seconds, most in (
        ("timeoutSeconds", descriptor.timeout_seconds, MOST_TIMEOUT_SECONDS),
        (
            "preBindTimeoutSeconds",
            descriptor.pre_bind_timeout_seconds,
            MOST_PRE_BIND_TIMEOUT_SECONDS,
        ),
    ):
        if not 0 < seconds <= most:
            yield f"{field}: {seconds:g} must be more than 0 and at most {most:g}"


def _unknown_or_twice(
    field: str, texts: tuple[str, ...], allowed: tuple[str, ...]
) -> Iterator[str]:
    for index, text in enumerate(texts):
        if text not in allowed:
            yield f'{field}[{index}]: "{text}" is unknown, allowed are {", ".join(allowed)}'
        elif text in texts[:index]:
            yield f'{field}[{index}]: "{text}" is listed twice'


def _actions_of(event: EventRegistration) -> int:
    bits = 0
    for action in event.actions:
        bits |= _ACTIONS[action]
    return bits


_ACTIONS = {
    "Add": events.ADD,
    "Delete": events.DELETE,
    "Update": events.UPDATE,
    "UpdateNodeAllocatable": events.UPDATE_NODE_ALLOCATABLE,
    "UpdateNodeLabel": events.UPDATE_NODE_LABEL,
    "UpdateNodeTaint": events.UPDATE_NODE_TAINT,
    "UpdateNodeCondition": events.UPDATE_NODE_CONDITION,
    "UpdateNodeAnnotation": events.UPDATE_NODE_ANNOTATION,
    "UpdatePodLabel": events.UPDATE_POD_LABEL,
    "UpdatePodScaleDown": events.UPDATE_POD_SCALE_DOWN,
    "UpdatePodToleration": events.UPDATE_POD_TOLERATION,
    "All": events.ALL,
}
"""kube-scheduler's action types by name."""
