"""The part of Kubernetes' protobuf that kubectl uses, decode only.

Most of kubectl speaks JSON; ``drain``, ``auth can-i`` and some forms of ``create`` use generated
clients that write protobuf. The messages below are theirs. Others are rejected with 415, and all
responses are JSON, which those clients read as well.

Source: the ``generated.proto`` files of k8s.io/api; field numbers never change.
"""

import base64
import re
from collections.abc import Callable, Iterator
from typing import Any

from proreus.base.clock import rfc3339
from proreus.objects.protobuf import BYTES, MAGIC, VARINT, decode_int64, fields
from proreus.workbench.sandbox.api_errors import bad_request, unsupported_media_type

MEDIA_TYPE = "application/vnd.kubernetes.protobuf"

JsonObject = dict[str, Any]
# A field's number in its message, and how its value is read; text unless it says otherwise.
_PROTO = """
OwnerReference: kind=1 name=3 uid=4 apiVersion=5 controller=6:bool blockOwnerDeletion=7:bool
ObjectMeta: name=1 generateName=2 namespace=3 uid=5 resourceVersion=6 generation=7:int
    creationTimestamp=8:time labels{}=11 annotations{}=12 ownerReferences[]=13:OwnerReference
    finalizers[]=14
ObjectReference: kind=1 namespace=2 name=3 uid=4 apiVersion=5
Preconditions: uid=1 resourceVersion=2
DeleteOptions: gracePeriodSeconds=1:int preconditions=2:Preconditions propagationPolicy=4 dryRun[]=5
ResourceAttributes: namespace=1 verb=2 group=3 version=4 resource=5 subresource=6 name=7
NonResourceAttributes: path=1 verb=2
SelfSubjectAccessReviewSpec: resourceAttributes=1:ResourceAttributes
    nonResourceAttributes=2:NonResourceAttributes
Namespace: metadata=1:ObjectMeta
ServiceAccount: metadata=1:ObjectMeta
ConfigMap: metadata=1:ObjectMeta data{}=2 binaryData{}=3:base64 immutable=4:bool
Secret: metadata=1:ObjectMeta data{}=2:base64 type=3 immutable=5:bool
Binding: metadata=1:ObjectMeta target=2:ObjectReference
Eviction: metadata=1:ObjectMeta deleteOptions=2:DeleteOptions
PriorityClass: metadata=1:ObjectMeta value=2:int globalDefault=3:bool description=4
    preemptionPolicy=5
SelfSubjectAccessReview: metadata=1:ObjectMeta spec=2:SelfSubjectAccessReviewSpec
TypeMeta: apiVersion=1 kind=2
Unknown: typeMeta=1:TypeMeta raw=2:bytes
"""
Schema = dict[int, tuple[str, str]]
"""Fields by number: name, and how the value is read (a reader or the name of a message).
A name that ends in ``[]`` is a list; one that ends in ``{}`` is a map with values read that way."""


def _schemas() -> Iterator[tuple[str, Schema]]:
    for message in re.findall(r"^(\w+):(.*(?:\n .*)*)", _PROTO, re.MULTILINE):
        parts = re.findall(r"(\S+)=(\d+)(?::(\w+))?", message[1])
        yield message[0], {int(number): (name, kind or "text") for name, number, kind in parts}


_MESSAGES = dict(_schemas())
_READERS: dict[str, Callable[[Any], Any]] = {
    "text": lambda value: bytes(value).decode(),
    "base64": lambda value: base64.b64encode(value).decode(),
    "time": lambda value: rfc3339(dict(_fields(value)).get(1, 0)),
    "int": int,
    "bool": bool,
    "bytes": bytes,
}


def decode(body: bytes) -> JsonObject:
    """Return the object in a request's body.

    Raises ``StatusError`` 400 if it cannot be decoded, 415 for a kind without a schema here.
    """
    if not body.startswith(MAGIC):
        raise bad_request("the body of the request does not begin as Kubernetes' protobuf does")
    try:
        envelope = _message(body[len(MAGIC) :], _MESSAGES["Unknown"])
        type_ = envelope.get("typeMeta", {})
        kind = type_.get("kind")
        if kind not in _MESSAGES:
            raise unsupported_media_type(
                f"{MEDIA_TYPE} with a {kind}", "application/json, application/yaml"
            )
        return {**type_, **_message(envelope.get("raw", b""), _MESSAGES[kind])}
    except (UnicodeDecodeError, ValueError, TypeError) as error:
        raise bad_request(f"the body of the request is not protobuf: {error}") from None


def _message(data: bytes, schema: Schema) -> JsonObject:
    found: JsonObject = {}
    for number, value in _fields(data):
        if number not in schema:
            continue
        name, kind = schema[number]
        if name.endswith("{}"):
            entry = _message(value, {1: ("key", "text"), 2: ("value", kind)})
            found.setdefault(name[:-2], {})[entry.get("key", "")] = entry.get("value", "")
        elif name.endswith("[]"):
            found.setdefault(name[:-2], []).append(_value(value, kind))
        else:
            found[name] = _value(value, kind)
    # Go's protobuf encodes an unset field as an empty string.
    return {name: value for name, value in found.items() if value != ""}


def _value(value: Any, kind: str) -> Any:
    return _READERS[kind](value) if kind in _READERS else _message(value, _MESSAGES[kind])


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    for number, kind, content in fields(data):
        if kind == VARINT:
            yield number, decode_int64(content)
        elif kind == BYTES:
            yield number, content
