"""Why the apiserver says no: errors that become ``metav1.Status`` bodies.

Texts, reasons and details are the real apiserver's, since clients decide by them. What is here
knows nothing of HTTP beyond the status code.
"""

from typing import Any

from proreus.errors import ProreusError

JsonObject = dict[str, Any]


class StatusError(ProreusError):
    """A request that the apiserver refuses; ``code`` is the HTTP status."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        details: JsonObject | None = None,
        retry_after_seconds: int = 0,
    ) -> None:
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details or {}
        self.retry_after_seconds = retry_after_seconds
        super().__init__(message)

    def status(self) -> JsonObject:
        """Return the ``metav1.Status`` that tells it."""
        details = dict(self.details)
        if self.retry_after_seconds:
            details["retryAfterSeconds"] = self.retry_after_seconds
        body: JsonObject = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
        }
        if details:
            body["details"] = details
        return body | {"code": self.code}


def _details(resource: str, name: str) -> JsonObject:
    """``resource`` is ``plural`` or ``plural.group``."""
    plural, _, group = resource.partition(".")
    parts = {"name": name, "group": group, "kind": plural}
    return {key: value for key, value in parts.items() if value}


def not_found(resource: str, name: str) -> StatusError:
    """404 for an object."""
    message = f'{resource} "{name}" not found'
    return StatusError(404, "NotFound", message, _details(resource, name))


def path_not_found() -> StatusError:
    """404 for a path or a resource that is not served."""
    return StatusError(404, "NotFound", "the server could not find the requested resource")


def already_exists(resource: str, name: str) -> StatusError:
    """409 at create."""
    message = f'{resource} "{name}" already exists'
    return StatusError(409, "AlreadyExists", message, _details(resource, name))


def conflict(resource: str, name: str, why: str) -> StatusError:
    """409 for an update that does not fit what is stored."""
    message = f'Operation cannot be fulfilled on {resource} "{name}": {why}'
    return StatusError(409, "Conflict", message, _details(resource, name))


def modified(resource: str, name: str) -> StatusError:
    """409 for a stale resourceVersion."""
    why = "the object has been modified; please apply your changes to the latest version"
    return conflict(resource, name, f"{why} and try again")


def invalid(group: str, kind: str, name: str, *causes: tuple[str, str, str]) -> StatusError:
    """422; a cause is (field, reason such as FieldValueRequired, message)."""
    texts = [f"{field}: {message}" for field, _, message in causes]
    joined = texts[0] if len(texts) == 1 else "[" + ", ".join(texts) + "]"
    shown = f"{kind}.{group}" if group else kind
    details: JsonObject = {"name": name, "group": group, "kind": kind}
    details = {key: value for key, value in details.items() if value}
    details["causes"] = [
        {"reason": reason, "message": message, "field": field} for field, reason, message in causes
    ]
    return StatusError(422, "Invalid", f'{shown} "{name}" is invalid: {joined}', details)


def bad_request(message: str) -> StatusError:
    """400."""
    return StatusError(400, "BadRequest", message)


def expired(message: str) -> StatusError:
    """410: history before this is compacted."""
    return StatusError(410, "Expired", message)


def unauthorized() -> StatusError:
    """401."""
    return StatusError(401, "Unauthorized", "Unauthorized")


def method_not_allowed() -> StatusError:
    """405."""
    message = "the server does not allow this method on the requested resource"
    return StatusError(405, "MethodNotAllowed", message)


def unsupported_media_type(found: str, allowed: str) -> StatusError:
    """415."""
    message = f"the body of the request was in an unknown format ({found}) - accepted: {allowed}"
    return StatusError(415, "UnsupportedMediaType", message)


def too_many_requests(message: str, retry_after_seconds: int, details: JsonObject) -> StatusError:
    """429."""
    return StatusError(429, "TooManyRequests", message, details, retry_after_seconds)
