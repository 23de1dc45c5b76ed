"""The part of Kubernetes' protobuf that kubectl uses, decode only.

Most of kubectl speaks JSON; ``drain``, ``auth can-i`` and some forms of ``create`` use generated
clients that write protobuf. The messages below are theirs. Others are rejected with 415, and all
responses are JSON, which those clients read as well.

Source: the ``generated.proto`` files of k8s.io/api; field numbers never change.
"""

import base64
from collections.abc import Callable, Iterator
from typing import Any

from proreus.base.clock import rfc3339
from proreus.objects.protobuf import BYTES, MAGIC, VARINT, decode_int64, fields
from proreus.workbench.sandbox.api_errors import bad_request, unsupported_media_type

MEDIA_TYPE = "application/vnd.kubernetes.protobuf"

JsonObject = dict[str, Any]
Schema = dict[int, tuple[str, Any]]
"""Fields by number: name, and how the value is read (a reader or the Schema of a message).
A name that ends in ``[]`` is a list; one that ends in ``{}`` is a map with values read that way."""


def _text(value: Any) -> str:
    return bytes(value).decode()


def _base64(value: Any) -> str:
    return base64.b64encode(value).decode()


def _time(value: Any) -> str:
    fields = dict(_fields(value))
    return rfc3339(fields.get(1, 0))


_OWNER: Schema = {
    1: ("kind", _text),
    3: ("name", _text),
    4: ("uid", _text),
    5: ("apiVersion", _text),
    6: ("controller", bool),
    7: ("blockOwnerDeletion", bool),
}
_METADATA: Schema = {
    1: ("name", _text),
    2: ("generateName", _text),
    3: ("namespace", _text),
    5: ("uid", _text),
    6: ("resourceVersion", _text),
    7: ("generation", int),
    8: ("creationTimestamp", _time),
    11: ("labels{}", _text),
    12: ("annotations{}", _text),
    13: ("ownerReferences[]", _OWNER),
    14: ("finalizers[]", _text),
}
_REFERENCE: Schema = {
    1: ("kind", _text),
    2: ("namespace", _text),
    3: ("name", _text),
    4: ("uid", _text),
    5: ("apiVersion", _text),
}
_DELETE_OPTIONS: Schema = {
    1: ("gracePeriodSeconds", int),
    2: ("preconditions", {1: ("uid", _text), 2: ("resourceVersion", _text)}),
    4: ("propagationPolicy", _text),
    5: ("dryRun[]", _text),
}
_RESOURCE_ATTRIBUTES: Schema = {
    1: ("namespace", _text),
    2: ("verb", _text),
    3: ("group", _text),
    4: ("version", _text),
    5: ("resource", _text),
    6: ("subresource", _text),
    7: ("name", _text),
}
_ACCESS: Schema = {
    1: ("resourceAttributes", _RESOURCE_ATTRIBUTES),
    2: ("nonResourceAttributes", {1: ("path", _text), 2: ("verb", _text)}),
}
_MESSAGES: dict[str, Schema] = {
    "Namespace": {1: ("metadata", _METADATA)},
    "ServiceAccount": {1: ("metadata", _METADATA)},
    "ConfigMap": {
        1: ("metadata", _METADATA),
        2: ("data{}", _text),
        3: ("binaryData{}", _base64),
        4: ("immutable", bool),
    },
    "Secret": {
        1: ("metadata", _METADATA),
        2: ("data{}", _base64),
        3: ("type", _text),
        5: ("immutable", bool),
    },
    "Binding": {1: ("metadata", _METADATA), 2: ("target", _REFERENCE)},
    "Eviction": {1: ("metadata", _METADATA), 2: ("deleteOptions", _DELETE_OPTIONS)},
    "DeleteOptions": _DELETE_OPTIONS,
    "PriorityClass": {
        1: ("metadata", _METADATA),
        2: ("value", int),
        3: ("globalDefault", bool),
        4: ("description", _text),
        5: ("preemptionPolicy", _text),
    },
    "SelfSubjectAccessReview": {1: ("metadata", _METADATA), 2: ("spec", _ACCESS)},
}


def decode(body: bytes) -> JsonObject:
    """Return the object in a request's body.

    Raises ``StatusError`` 400 if it cannot be decoded, 415 for a kind without a schema here.
    """
    if not body.startswith(MAGIC):
        raise bad_request("the body of the request does not begin as Kubernetes' protobuf does")
    try:
        envelope = _message(
            body[len(MAGIC) :],
            {1: ("type", {1: ("apiVersion", _text), 2: ("kind", _text)}), 2: ("raw", bytes)},
        )
        type_ = envelope.get("type", {})
        schema = _MESSAGES.get(type_.get("kind", ""))
        if schema is None:
            raise unsupported_media_type(
                f"{MEDIA_TYPE} with a {type_.get('kind')}", "application/json, application/yaml"
            )
        return {**type_, **_message(envelope.get("raw", b""), schema)}
    except (UnicodeDecodeError, ValueError, TypeError) as error:
        raise bad_request(f"the body of the request is not protobuf: {error}") from None


def _message(data: bytes, schema: Schema) -> JsonObject:
    found: JsonObject = {}
    for number, value in _fields(data):
        if number not in schema:
            continue
        name, kind = schema[number]
        if name.endswith("{}"):
            entry = _message(value, {1: ("key", _text), 2: ("value", kind)})
            found.setdefault(name[:-2], {})[entry.get("key", "")] = entry.get("value", "")
        elif name.endswith("[]"):
            found.setdefault(name[:-2], []).append(_value(value, kind))
        else:
            found[name] = _value(value, kind)
    # Go's protobuf encodes an unset field as an empty string.
    return {name: value for name, value in found.items() if value != ""}


def _value(value: Any, kind: Schema | Callable[[Any], Any]) -> Any:
    return _message(value, kind) if isinstance(kind, dict) else kind(value)


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    for number, kind, content in fields(data):
        if kind == VARINT:
            yield number, decode_int64(content)
        elif kind == BYTES:
            yield number, content
