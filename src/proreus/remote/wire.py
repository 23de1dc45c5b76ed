"""Encodes requests, and decodes and validates responses.

Arrays are JSON arrays, or base64 of little-endian int64.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any, Literal, TypeVar

import msgspec
import numpy as np

from proreus.base.errors import ProreusError
from proreus.framework.status import Code, Status
from proreus.framework.verdicts import IntArray
from proreus.objects.codec import DecodeError, decode_strictly

Arrays = Literal["json", "base64"]
Wire = list[int] | str
"""An array in a body, in either form."""

T = TypeVar("T")


class BadResponse(ProreusError):
    """A response that is an error, or that violates the protocol."""


class Response(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Any response: ``epoch`` changes when earlier results are no longer valid."""

    epoch: str | None = None


class StatusBody(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A status; ``code`` is one of kube-scheduler's code names."""

    code: str = "Success"
    reasons: tuple[str, ...] = ()
    timeout_seconds: float = 0.0


class VerdictResponse(Response, frozen=True):
    """The response of Reserve, Permit and PreBind."""

    status: StatusBody = StatusBody()


class PreFilterResponse(VerdictResponse, frozen=True):
    """``nodes`` names the eligible nodes; None means all nodes."""

    nodes: tuple[str, ...] | None = None


class FilterResponse(Response, frozen=True):
    """``rejected``: rows; ``status``: for each of them its index in ``statuses``.

    Without ``status``, the first entry of ``statuses`` applies to all rejected rows.
    """

    rejected: Wire = []
    status: Wire | None = None
    statuses: tuple[StatusBody, ...] = ()


class ScoreResponse(Response, frozen=True):
    """One score per requested row, in the order of the request."""

    scores: Wire


class Rejected(msgspec.Struct, frozen=True):
    """A waiting pod that the plugin rejects."""

    uid: str
    reason: str = ""


class WaitingResponse(Response, frozen=True):
    """Decisions on the waiting pods of the plugin, by UID."""

    allowed: tuple[str, ...] = ()
    rejected: tuple[Rejected, ...] = ()


class ErrorResponse(msgspec.Struct, frozen=True):
    """The body of an error response."""

    error: str = ""


def encode(request_body: dict[str, Any]) -> bytes:
    """Return the body of a request."""
    return msgspec.json.encode(request_body)


def decode(body: bytes, type_: type[T]) -> T:
    """Return the response in a body; raises ``BadResponse``."""
    try:
        return decode_strictly(body or b"{}", type_)
    except DecodeError as error:
        raise BadResponse(f"the answer cannot be read: {error}") from None


def array(numbers: IntArray, arrays: Arrays) -> Wire:
    """Return numbers in the form that the plugin requested."""
    if arrays == "json":
        plain: list[int] = numbers.tolist()
        return plain
    return base64.b64encode(numbers.astype("<i8").tobytes()).decode("ascii")


def int_array(field: str, wire: Wire) -> IntArray:
    """Return the array in a field of a response; raises ``BadResponse``."""
    try:
        if isinstance(wire, str):
            return np.frombuffer(base64.b64decode(wire, validate=True), dtype="<i8").astype(
                np.int64
            )
        return np.array(wire, dtype=np.int64)
    except (binascii.Error, ValueError, OverflowError) as error:
        raise BadResponse(f"{field}: not an array of int64: {error}") from None


def status_of(field: str, body: StatusBody, *allowed: Code) -> Status | None:
    """Return a status, None for Success; raises ``BadResponse`` for a code not ``allowed``."""
    code = _CODES.get(body.code)
    if code is None or code not in allowed:
        labels = ", ".join(one.label for one in allowed)
        raise BadResponse(f'{field}.code: "{body.code}" is not allowed here, allowed are {labels}')
    if code == Code.SUCCESS:
        return None
    return Status(code, body.reasons, timeout_seconds=body.timeout_seconds)


def verdict_of(response: VerdictResponse, *allowed: Code) -> Status | None:
    """Return the status of a response, or None; raises ``BadResponse``, also for an Error."""
    status = status_of("status", response.status, *allowed)
    if status is not None and status.code == Code.ERROR:
        raise BadResponse(status.message)
    return status


_CODES = {code.label: code for code in Code}
