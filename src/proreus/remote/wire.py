"""Questions and answers as bytes: what stands in them, and whether it can be meant so.

Nothing of the network, and nothing of what comes of an answer. Arrays are JSON arrays, or base64 of
little-endian int64.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any, Literal, TypeVar

import msgspec
import numpy as np

from proreus.errors import ProreusError
from proreus.framework.status import Code, Status
from proreus.framework.verdicts import IntArray
from proreus.objects.codec import DecodeError, decode_strictly

Arrays = Literal["json", "base64"]
Wire = list[int] | str
"""An array in an answer, in either form."""

T = TypeVar("T")


class BadResponse(ProreusError):
    """An answer that is an error, or none that the protocol knows."""


class Response(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What every answer may tell: ``epoch`` moves when earlier answers do not hold any more."""

    epoch: str | None = None


class StatusBody(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A status; ``code`` is one of kube-scheduler's labels."""

    code: str = "Success"
    reasons: tuple[str, ...] = ()
    timeout_seconds: float = 0.0


class VerdictResponse(Response, frozen=True):
    """Of Reserve, Permit and PreBind."""

    status: StatusBody = StatusBody()


class PreFilterResponse(VerdictResponse, frozen=True):
    """``nodes``: the names of those that are left; None = all."""

    nodes: tuple[str, ...] | None = None


class FilterResponse(Response, frozen=True):
    """``rejected``: rows; ``status``: for each the index of its entry in ``statuses``.

    Without ``status`` the first entry is meant for all of them.
    """

    rejected: Wire = []
    status: Wire | None = None
    statuses: tuple[StatusBody, ...] = ()


class ScoreResponse(Response, frozen=True):
    """One score a row that was asked about, in that order."""

    scores: Wire


class Rejected(msgspec.Struct, frozen=True):
    """A waiting pod that is turned down."""

    uid: str
    reason: str = ""


class WaitingResponse(Response, frozen=True):
    """Which of the pods that the plugin holds may go, or may not."""

    allowed: tuple[str, ...] = ()
    rejected: tuple[Rejected, ...] = ()


class ErrorResponse(msgspec.Struct, frozen=True):
    """What a refusal may say."""

    error: str = ""


def encode(request_body: dict[str, Any]) -> bytes:
    """Return a question's body."""
    return msgspec.json.encode(request_body)


def decode(body: bytes, type_: type[T]) -> T:
    """Return an answer; raises ``BadResponse``."""
    try:
        return decode_strictly(body or b"{}", type_)
    except DecodeError as error:
        raise BadResponse(f"the answer cannot be read: {error}") from None


def array(numbers: IntArray, arrays: Arrays) -> Wire:
    """Return numbers in the form that the plugin asked for."""
    if arrays == "json":
        plain: list[int] = numbers.tolist()
        return plain
    return base64.b64encode(numbers.astype("<i8").tobytes()).decode("ascii")


def int_array(field: str, wire: Wire) -> IntArray:
    """Return what stands in an answer as an array; raises ``BadResponse``."""
    try:
        if isinstance(wire, str):
            return np.frombuffer(base64.b64decode(wire, validate=True), dtype="<i8").astype(
                np.int64
            )
        return np.array(wire, dtype=np.int64)
    except (binascii.Error, ValueError, OverflowError) as error:
        raise BadResponse(f"{field}: not an array of int64: {error}") from None


def status_of(field: str, answer: StatusBody, *allowed: Code) -> Status | None:
    """Return the status that is meant, None for Success; raises ``BadResponse``."""
    code = _CODES.get(answer.code)
    if code is None or code not in allowed:
        labels = ", ".join(one.label for one in allowed)
        raise BadResponse(
            f'{field}.code: "{answer.code}" is not allowed here, allowed are {labels}'
        )
    if code == Code.SUCCESS:
        return None
    return Status(code, answer.reasons, timeout_seconds=answer.timeout_seconds)


_CODES = {code.label: code for code in Code}
