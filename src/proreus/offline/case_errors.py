"""Errors of recorded cases: one case is wrong, the others are evaluated."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from proreus.base.errors import ProreusError
from proreus.objects.codec import UNDECODABLE, decoder_for, describe
from proreus.objects.kinds import NODES, PODS
from proreus.objects.node import Node
from proreus.objects.pod import Pod
from proreus.objects.quantity_validation import (
    validate_node_quantities,
    validate_pod_quantities,
)
from proreus.offline.api import JsonObject


class CaseError(ProreusError):
    """A case that cannot be evaluated; the text names the field."""


class _Step(msgspec.Struct, frozen=True):
    add: JsonObject | None = None
    patch: JsonObject | None = None
    delete: JsonObject | None = None
    advance: float = 0
    schedule: int = 0


class _Case(msgspec.Struct, frozen=True, rename="camel"):
    """The fields of a case that are used as they are."""

    objects: list[JsonObject]
    pod: JsonObject | None = None
    queue: list[JsonObject] | None = None
    steps: list[_Step] | None = None
    observe: list[str] | None = None
    seen: dict[str, float] | None = None
    features: list[str] | None = None
    kubernetes_version: str | None = None


def check_fields(case: JsonObject) -> None:
    """Raise ``CaseError`` for a field of another type; objects are checked as they are added."""
    try:
        msgspec.convert(case, _Case)
    except msgspec.ValidationError as error:
        raise CaseError(describe(error)) from None


@contextmanager
def reading(place: str, obj: JsonObject | None = None) -> Iterator[None]:
    """Raise ``CaseError`` for data of a case that cannot be used.

    ``place``: where it is in the case; ``obj``: the object that is read, for its name.
    """
    try:
        yield
    # Unchecked values may be of any type, and handlers of plugins read them too.
    except (*UNDECODABLE, LookupError, TypeError, AttributeError) as error:
        missing = isinstance(error, KeyError)
        text = f"{error.args[0]}: is not known, or missing" if missing else _described(obj, error)
        raise CaseError(f"{place}{_title(obj)}: {text}") from error


def _described(obj: object, error: Exception) -> str:
    """Return the text of an error; the one of an amount that is no quantity names its field."""
    kind = obj.get("kind") if isinstance(obj, dict) else ""
    try:
        if kind == PODS.kind:
            validate_pod_quantities(decoder_for(Pod).convert(obj))
        elif kind == NODES.kind:
            validate_node_quantities(decoder_for(Node).convert(obj))
    except UNDECODABLE as named:
        return describe(named)
    return describe(error)


def _title(obj: object) -> str:
    """Return `` (Pod shop/web)``, as far as the object says so."""
    if not isinstance(obj, dict):
        return ""
    meta = obj.get("metadata")
    meta = meta if isinstance(meta, dict) else {}
    names = (meta.get("namespace"), meta.get("name"))
    name = "/".join(part for part in names if isinstance(part, str) and part)
    title = f"{obj.get('kind', '')} {name}".strip()
    return f" ({title})" if title else ""
