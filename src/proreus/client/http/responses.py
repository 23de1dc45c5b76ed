"""Responses of the apiserver, and the exceptions that error responses become.

Everything about the *meaning* of an HTTP response is here, so that ``session`` only moves bytes and
``dispatcher`` only decides about retries.
"""

import re
from typing import TypeVar

import msgspec
from msgspec import Struct

from proreus.base.errors import (
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
"""metav1.StatusReason of responses that have none."""

_ERRORS: dict[int, type[ApiError]] = {
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Gone,
}


class Unreachable(ApiError):
    """No connection could be opened: nothing was sent, so the request was not processed."""

    def __init__(self, message: str) -> None:
        super().__init__(0, "Unreachable", message)


class ResponseLost(ApiError):
    """The request may have been sent, but no complete response came: it may have been processed."""

    def __init__(self, message: str) -> None:
        super().__init__(0, "ResponseLost", message)


class ApiStatusDetails(msgspec.Struct, rename="camel"):
    """The fields of metav1.StatusDetails that the client uses."""

    retry_after_seconds: int = 0


class ApiStatus(msgspec.Struct, rename="camel"):
    """A failure as the apiserver describes it (metav1.Status)."""

    kind: str = ""
    message: str = ""
    reason: str = ""
    code: int = 0
    details: ApiStatusDetails | None = None


class HttpResponse(Struct, frozen=True):
    """A complete HTTP response; ``retry_after_seconds`` is None without a Retry-After."""

    code: int
    body: bytes
    content_type: str = "application/json"
    retry_after_seconds: float | None = None

    @property
    def ok(self) -> bool:
        """Whether the request succeeded (2xx)."""
        return 200 <= self.code < 300


_STATUS = decoder_for(ApiStatus)
_TAGS = re.compile(r"<(script|style)\b.*?</\1>|<[^>]+>", re.DOTALL | re.IGNORECASE)
_SHOWN_CHARACTERS = 200


def read_object(body: bytes, type_: type[T]) -> T:
    """Return the object in a response body; raises ``ResponseLost`` if it cannot be decoded."""
    try:
        return decoder_for(type_).decode(body)
    except DecodeError as error:
        raise ResponseLost(f"the apiserver's answer cannot be read: {error}") from error


def read_json(body: bytes) -> JsonObject:
    """Return the object in a response body as plain data; raises ``ResponseLost`` likewise."""
    return read_object(body, JsonObject)


def error_from_response(response: HttpResponse, request: str) -> ApiError:
    """Return the exception for an error response.

    ``request`` is named in its message if the response is not a Kubernetes Status.
    """
    try:
        status = _STATUS.decode(response.body)
    except DecodeError:
        status = ApiStatus()
    if status.kind == "Status":
        retry_after_seconds = response.retry_after_seconds
        if status.details and status.details.retry_after_seconds and not retry_after_seconds:
            retry_after_seconds = float(status.details.retry_after_seconds)
        return error_from_status(status, retry_after_seconds)
    return _build(
        response.code,
        REASON_BY_CODE.get(response.code, "Unknown"),
        f"{request} was answered with HTTP {response.code} and no Kubernetes Status"
        f"{_excerpt(response)}",
        response.retry_after_seconds,
    )


def error_from_status(status: ApiStatus, retry_after_seconds: float | None = None) -> ApiError:
    """Return the exception for a Status, of a response body or of a watch's ERROR event."""
    code = status.code or 500
    reason = status.reason or REASON_BY_CODE.get(code, "Unknown")
    # ERROR events of some servers have 500 or no code for an expired version; the reason decides,
    # since only ``Gone`` makes the reflector relist.
    if code != 410 and reason in ("Expired", "Gone"):
        code = 410
    return _build(code, reason, status.message or f"HTTP {code} {reason}", retry_after_seconds)


def _build(code: int, reason: str, message: str, retry_after_seconds: float | None) -> ApiError:
    if code == 429:
        return TooManyRequests(code, reason, message, retry_after_seconds or 1.0)
    return _ERRORS.get(code, ApiError)(code, reason, message)


def _excerpt(response: HttpResponse) -> str:
    """Return a description of a body that is no Status (mostly an HTML page of a proxy)."""
    text = response.body[:4096].decode("utf-8", "replace")
    html = "html" in response.content_type or text.lstrip()[:1] == "<"
    if html:
        text = _TAGS.sub(" ", text)
    text = " ".join(text.split())
    if not text:
        return f" (an empty {response.content_type} body)"
    shown = text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "…"
    return f" but an HTML page, as proxies do: {shown}" if html else f": {shown}"
