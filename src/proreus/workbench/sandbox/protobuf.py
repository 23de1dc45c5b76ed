"""Kubernetes' protobuf, decode only.

Clients of client-go write it: kube-scheduler and other controllers, ``kubectl drain`` and some
forms of ``kubectl create``. ``protobuf.txt`` has the messages of the served kinds. Other kinds are
rejected with 415, and all responses are JSON, which those clients read as well.
"""

import base64
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from proreus.objects.protobuf import BYTES, MAGIC, VARINT, decode_int64, fields
from proreus.workbench.sandbox.api_errors import bad_request, unsupported_media_type
from proreus.workbench.sandbox.collection import decode_json

MEDIA_TYPE = "application/vnd.kubernetes.protobuf"

JsonObject = dict[str, Any]
Schema = dict[int, tuple[str, str]]
"""Fields by number: name, and how the value is read (a reader or the name of a message).
A name that ends in ``[]`` is a list, and one that ends in ``{}`` a map, of values read that way.
The value of one that ends in ``!`` is kept though it is zero. The fields of one called ``.`` are
those of the message itself.
"""

_TYPE_META: Schema = {1: ("apiVersion", "text"), 2: ("kind", "text")}
_UNKNOWN: Schema = {1: ("typeMeta", "TypeMeta"), 2: ("raw", "bytes")}


@cache
def _messages() -> dict[str, Schema]:
    found: dict[str, Schema] = {"TypeMeta": _TYPE_META}
    for line in Path(__file__).with_suffix(".txt").read_text().splitlines():
        if not line.startswith("#"):
            name, _, fields_ = line.partition(": ")
            parts = (re.fullmatch(r"([^=]+)=(\d+)(?::(\S+))?", part) for part in fields_.split())
            found[name] = {
                int(part[2]): (part[1], part[3] or "text") for part in parts if part is not None
            }
    return found


def _time(message: bytes, form: str = "%Y-%m-%dT%H:%M:%SZ") -> str:
    """Return a time as in JSON, "" for Go's zero time, which is an empty message."""
    if not message:
        return ""
    parts = dict(_fields(message))
    instant = datetime.fromtimestamp(parts.get(1, 0), UTC)
    return instant.replace(microsecond=parts.get(2, 0) // 1000).strftime(form)


def _int_or_string(message: bytes) -> int | str:
    kind, number, text = map(dict(_fields(message)).get, (1, 2, 3))
    return bytes(text or b"").decode() if kind else int(number or 0)


_READERS: dict[str, Callable[[Any], Any]] = {
    "text": lambda value: bytes(value).decode(),
    "base64": lambda value: base64.b64encode(value).decode(),
    "time": _time,
    "microtime": lambda value: _time(value, "%Y-%m-%dT%H:%M:%S.%fZ"),
    "int": int,
    "bool": bool,
    "bytes": bytes,
    "quantity": lambda value: bytes(dict(_fields(value)).get(1, b"0")).decode(),
    "int_or_string": _int_or_string,
    "json": lambda value: decode_json(bytes(dict(_fields(value)).get(1, b"null"))),
    "texts": lambda value: [bytes(text).decode() for _, text in _fields(value)],
}


def decode(body: bytes) -> JsonObject:
    """Return the object in a request's body.

    Raises ``StatusError`` 400 if it cannot be decoded, 415 for a kind without a schema here.
    """
    if not body.startswith(MAGIC):
        raise bad_request("the body of the request does not begin as Kubernetes' protobuf does")
    try:
        envelope = _message(body[len(MAGIC) :], _UNKNOWN)
        type_ = envelope.get("typeMeta", {})
        schema = _schema_of(type_.get("apiVersion", ""), type_.get("kind", ""))
        if schema is None:
            raise unsupported_media_type(
                f"{MEDIA_TYPE} with a {type_.get('kind')}", "application/json, application/yaml"
            )
        return {**type_, **_message(envelope.get("raw", b""), schema)}
    except (UnicodeDecodeError, ValueError, TypeError, OverflowError) as error:
        raise bad_request(f"the body of the request is not protobuf: {error}") from None


def _schema_of(api_version: str, kind: str) -> Schema | None:
    """Return the message of a kind; DeleteOptions are the same in every group."""
    group, _, version = api_version.rpartition("/")
    name = ".".join(part for part in (group.partition(".")[0], version, kind) if part)
    return _messages().get(name) or _messages().get(f"meta.{kind}")


def _message(data: bytes, schema: Schema) -> JsonObject:
    found: JsonObject = {}
    for number, value in _fields(data):
        if number not in schema:
            continue
        name, kind = schema[number]
        if name == ".":
            found |= _value(value, kind)
        elif name.endswith("{}"):
            entry = _message(value, {1: ("key", "text"), 2: ("value", kind)})
            found.setdefault(name[:-2], {})[entry.get("key", "")] = entry.get("value", "")
        elif name.endswith("[]"):
            found.setdefault(name[:-2], []).append(_value(value, kind))
        elif (read := _value(value, kind)) or name.endswith("!") or isinstance(read, dict):
            found[name.removesuffix("!")] = read
    return found


def _value(value: Any, kind: str) -> Any:
    return _READERS[kind](value) if kind in _READERS else _message(value, _messages()[kind])


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    for number, kind, content in fields(data):
        if kind == VARINT:
            yield number, decode_int64(content)
        elif kind == BYTES:
            yield number, content
