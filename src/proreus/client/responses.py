"""What the apiserver answered, and the error that an unhappy answer is.

Everything about the *meaning* of an HTTP answer is here, so that ``session`` only moves bytes and
``dispatcher`` only decides whether to try again.
"""

import re
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from proreus.errors import (
    ApiError,
    Conflict,
    Forbidden,
    Gone,
    NotFound,
    TooManyRequests,
    Unauthorized,
)
from proreus.objects.codec import DecodeError, decoder_for
from proreus.objects.meta import JsonObject

T = TypeVar("T")

REASON_BY_CODE = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    406: "NotAcceptable",
    409: "Conflict",
    410: "Gone",
    413: "RequestEntityTooLarge",
    415: "UnsupportedMediaType",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}
"""metav1.StatusReason for answers that bring none."""

_ERRORS: dict[int, type[ApiError]] = {
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Gone,
}


class Unreachable(ApiError):
    """No connection came about, so nothing was sent: the request has certainly not happened."""

    def __init__(self, message: str) -> None:
        super().__init__(0, "Unreachable", message)


class ResponseLost(ApiError):
    """The request may have been sent, but no whole answer came back: it may have happened."""

    def __init__(self, message: str) -> None:
        super().__init__(0, "ResponseLost", message)


class ApiStatusDetails(msgspec.Struct, rename="camel"):
    """metav1.ApiStatusDetails, as far as it is acted upon."""

    retry_after_seconds: int = 0


class ApiStatus(msgspec.Struct, rename="camel"):
    """metav1.Status: how the apiserver words a failure."""

    kind: str = ""
    message: str = ""
    reason: str = ""
    code: int = 0
    details: ApiStatusDetails | None = None


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """A whole HTTP answer; ``retry_after_seconds`` is None where the server named no time."""

    code: int
    body: bytes
    content_type: str = "application/json"
    retry_after_seconds: float | None = None

    @property
    def ok(self) -> bool:
        """Whether the request was done."""
        return 200 <= self.code < 300


_STATUS = decoder_for(ApiStatus)
_JSON_OBJECT = decoder_for(JsonObject)
_TAGS = re.compile(r"<(script|style)\b.*?</\1>|<[^>]+>", re.DOTALL | re.IGNORECASE)
_SHOWN_CHARACTERS = 200


def read_object(body: bytes, type_: type[T]) -> T:
    """Return the object in an answer; raises ``ResponseLost`` for what is none."""
    try:
        return decoder_for(type_).decode(body)
    except DecodeError as error:
        raise _unreadable(error) from error


def read_json(body: bytes) -> JsonObject:
    """Return the object in an answer as plain data; raises ``ResponseLost`` for what is none."""
    try:
        return _JSON_OBJECT.decode(body)
    except DecodeError as error:
        raise _unreadable(error) from error


def _unreadable(error: DecodeError) -> ResponseLost:
    return ResponseLost(f"the apiserver's answer cannot be read: {error}")


def error_from_response(answer: HttpResponse, request: str) -> ApiError:
    """Return the error that ``answer`` stands for; ``request`` is named where nobody else does."""
    try:
        status = _STATUS.decode(answer.body)
    except DecodeError:
        status = ApiStatus()
    if status.kind == "Status":
        if status.details and status.details.retry_after_seconds and not answer.retry_after_seconds:
            return error_from_status(status, float(status.details.retry_after_seconds))
        return error_from_status(status, answer.retry_after_seconds)
    return _build(
        answer.code,
        REASON_BY_CODE.get(answer.code, "Unknown"),
        f"{request} was answered with HTTP {answer.code} and no Kubernetes Status"
        f"{_excerpt(answer)}",
        answer.retry_after_seconds,
    )


def error_from_status(status: ApiStatus, retry_after_seconds: float | None = None) -> ApiError:
    """Return the error that a Status stands for, be it a body or an ERROR event of a watch."""
    code = status.code or 500
    reason = status.reason or REASON_BY_CODE.get(code, "Unknown")
    if code != 410 and reason in ("Expired", "Gone"):
        code = 410
    return _build(code, reason, status.message or f"HTTP {code} {reason}", retry_after_seconds)


def _build(code: int, reason: str, message: str, retry_after_seconds: float | None) -> ApiError:
    if code == 429:
        return TooManyRequests(code, reason, message, retry_after_seconds or 1.0)
    return _ERRORS.get(code, ApiError)(code, reason, message)


def _excerpt(answer: HttpResponse) -> str:
    """Say what kind of text came instead (a proxy's HTML page, mostly), and its gist."""
    text = answer.body[:4096].decode("utf-8", "replace")
    html = "html" in answer.content_type or text.lstrip()[:1] == "<"
    if html:
        text = _TAGS.sub(" ", text)
    text = " ".join(text.split())
    if not text:
        return f" (an empty {answer.content_type} body)"
    shown = text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "…"
    return f" but an HTML page, as proxies do: {shown}" if html else f": {shown}"
