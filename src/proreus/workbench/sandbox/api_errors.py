"""Errors of the API, which become ``metav1.Status`` bodies.

Texts, reasons and details are kube-apiserver's, since clients decide by them. This module knows
nothing of HTTP beyond the status code.
"""

from typing import Any

from proreus.base.errors import ProreusError

JsonObject = dict[str, Any]


class StatusError(ProreusError):
    """A request that is rejected; ``code`` is the HTTP status code."""

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
        """Return the error as a ``metav1.Status``."""
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
    """Return the ``details`` of a Status; ``resource`` is ``plural`` or ``plural.group``."""
    plural, _, group = resource.partition(".")
    parts = {"name": name, "group": group, "kind": plural}
    return {key: value for key, value in parts.items() if value}


def not_found(resource: str, name: str) -> StatusError:
    """Return a 404 for an object that does not exist."""
    message = f'{resource} "{name}" not found'
    return StatusError(404, "NotFound", message, _details(resource, name))


def path_not_found() -> StatusError:
    """Return a 404 for a path or a resource that is not served."""
    return StatusError(404, "NotFound", "the server could not find the requested resource")


def already_exists(resource: str, name: str) -> StatusError:
    """Return a 409 for the creation of an object that exists."""
    message = f'{resource} "{name}" already exists'
    return StatusError(409, "AlreadyExists", message, _details(resource, name))


def conflict(resource: str, name: str, why: str) -> StatusError:
    """Return a 409 for a write that conflicts with the stored object."""
    message = f'Operation cannot be fulfilled on {resource} "{name}": {why}'
    return StatusError(409, "Conflict", message, _details(resource, name))


def modified(resource: str, name: str) -> StatusError:
    """Return a 409 for an update with a stale resourceVersion."""
    why = "the object has been modified; please apply your changes to the latest version"
    return conflict(resource, name, f"{why} and try again")


_FIELD_ERRORS = {
    "Required value": "FieldValueRequired",
    "Invalid value": "FieldValueInvalid",
    "Forbidden": "FieldValueForbidden",
}


def invalid(group: str, kind: str, name: str, field: str, message: str) -> StatusError:
    """Return a 422 about a field; the message begins as those of ``_FIELD_ERRORS`` do."""
    shown = f"{kind}.{group}" if group else kind
    details: JsonObject = {"name": name, "group": group, "kind": kind}
    details = {key: value for key, value in details.items() if value}
    reason = _FIELD_ERRORS[message.partition(":")[0]]
    details["causes"] = [{"reason": reason, "message": message, "field": field}]
    return StatusError(422, "Invalid", f'{shown} "{name}" is invalid: {field}: {message}', details)


def bad_request(message: str) -> StatusError:
    """Return a 400 with this message."""
    return StatusError(400, "BadRequest", message)


def expired(message: str) -> StatusError:
    """Return a 410, since the requested history has been compacted."""
    return StatusError(410, "Expired", message)


def unauthorized() -> StatusError:
    """Return a 401, since the request carries no valid bearer token."""
    return StatusError(401, "Unauthorized", "Unauthorized")


def method_not_allowed() -> StatusError:
    """Return a 405, since the resource is served, but not with this verb."""
    message = "the server does not allow this method on the requested resource"
    return StatusError(405, "MethodNotAllowed", message)


def unsupported_media_type(found: str, allowed: str) -> StatusError:
    """Return a 415; ``found`` is the request's media type, ``allowed`` lists the accepted ones."""
    message = f"the body of the request was in an unknown format ({found}) - accepted: {allowed}"
    return StatusError(415, "UnsupportedMediaType", message)


def too_many_requests(message: str, retry_after_seconds: int, details: JsonObject) -> StatusError:
    """Return a 429, which asks the client to retry after so many seconds."""
    return StatusError(429, "TooManyRequests", message, details, retry_after_seconds)
