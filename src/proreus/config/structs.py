"""The base class and field types of kube-scheduler's own part of the configuration.

Field names are camelCase in files and snake_case in Python. These are msgspec's Structs, while
``fields`` has pydantic models, because each start of the scheduler needs them, and pydantic and its
models take almost a tenth of a second. ``struct_decoding`` reads them, as strict as Go's decoder.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterator
from types import NoneType
from typing import Annotated, Any, ClassVar, get_args, get_type_hints
from weakref import WeakKeyDictionary

import msgspec
from msgspec import Struct

from proreus.base.errors import ConfigError
from proreus.config.durations import format_duration, parse_duration

_MAX_FLOAT32 = 3.4028235677973366e38


class ConfigStruct(Struct, frozen=True, rename="camel", omit_defaults=True):
    """Base class of a part of a configuration."""

    go_type: ClassVar[str] = ""
    """The Go type that errors name."""


class WrongType(Exception):
    """Raised for a value of a type that Go does not decode into a field, with Go's names."""

    def __init__(self, got: str, wanted: str) -> None:
        super().__init__(got, wanted)
        self.got = got
        self.wanted = wanted


class Scalar(Struct, frozen=True):
    """How a field without parts is read from a file and written to one.

    ``read`` returns the value in Python; raises ``WrongType``, or ``ConfigError`` with a whole
    sentence. ``keeps_null``: an explicit null is read too, instead of counting as absent.
    """

    read: Callable[[object], Any]
    write: Callable[[Any], object] = lambda value: value
    keeps_null: bool = False


class Field(Struct, frozen=True):
    """A field: its name in Python and in files, its type with annotations.

    ``default``: ``msgspec.NODEFAULT`` for a required one.
    """

    name: str
    alias: str
    type: Any
    default: Any

    @property
    def required(self) -> bool:
        """Whether a file must give it."""
        return self.default is msgspec.NODEFAULT


_fields: WeakKeyDictionary[type[ConfigStruct], tuple[Field, ...]] = WeakKeyDictionary()
"""By class; weak, since each reload of an out-of-tree plugin makes its classes anew."""


def fields_of(struct: type[ConfigStruct]) -> tuple[Field, ...]:
    """Return the fields in order of definition."""
    found = _fields.get(struct)
    if found is None:
        hints = get_type_hints(struct, include_extras=True)
        found = _fields[struct] = tuple(
            Field(field.name, field.encode_name, hints[field.name], _default_of(field))
            for field in msgspec.structs.fields(struct)
        )
    return found


def _default_of(field: msgspec.structs.FieldInfo) -> Any:
    no_factory = field.default_factory is msgspec.NODEFAULT
    return field.default if no_factory else field.default_factory()


def scalar_of(annotation: Any) -> Scalar | None:
    """Return how a type of this module is read and written; None for any other annotation."""
    metadata: Iterator[Any] = iter(getattr(annotation, "__metadata__", ()))
    return next((part for part in metadata if isinstance(part, Scalar)), None)


def without_none(annotation: Any) -> Any:
    """Return the X of ``X | None``, and any other annotation as it is."""
    members = get_args(annotation)
    if NoneType not in members or len(members) > 2:
        return annotation
    return next(member for member in members if member is not NoneType)


def json_type_name(value: object) -> str:
    """Return the JSON type of a value as named in the errors of ``encoding/json``."""
    match value:
        case bool():
            return "bool"
        case int() | float():
            return "number"
        case str():
            return "string"
        case dict():
            return "object"
        case list() | tuple():
            return "array"
    return "null"


def _integer(bits: int) -> Scalar:
    wanted = f"int{bits}"

    def read(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise WrongType(json_type_name(value), wanted)
        if isinstance(value, float) or not -(1 << bits - 1) <= value < 1 << bits - 1:
            raise WrongType(f"number {value}", wanted)
        return value

    return Scalar(read)


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise WrongType(json_type_name(value), "float32")
    if abs(value) > _MAX_FLOAT32:
        raise WrongType(f"number {value}", "float32")
    return float(value)


def _text(value: object) -> str:
    if value is None:  # in a list or mapping
        return ""
    if not isinstance(value, str):
        raise WrongType(json_type_name(value), "string")
    return value


def _boolean(value: object) -> bool:
    if not isinstance(value, bool):
        raise WrongType(json_type_name(value), "bool")
    return value


def _seconds(value: object) -> float:
    if value is not None and not isinstance(value, str):
        raise WrongType(json_type_name(value), "string")
    return parse_duration(value or "")


def _base64(value: object) -> bytes:
    if not isinstance(value, str):
        raise WrongType(json_type_name(value), "[]uint8")
    text = value.replace("\r", "").replace("\n", "")
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        match = re.match("[A-Za-z0-9+/]*", text)
        where = match.end() if match else 0
        raise ConfigError(f"illegal base64 data at input byte {where}") from None


def _to_base64(value: bytes) -> str:
    return base64.b64encode(value).decode()


Int32 = Annotated[int, _integer(32)]
Int64 = Annotated[int, _integer(64)]
Float32 = Annotated[float, Scalar(_number)]
Text = Annotated[str, Scalar(_text)]
Boolean = Annotated[bool, Scalar(_boolean)]
# Go's duration type decodes itself, and accepts only a string: null is an error.
Seconds = Annotated[float, Scalar(_seconds, format_duration, keeps_null=True)]
"""Seconds in Python, a Go duration such as ``1m30s`` in files."""
Base64 = Annotated[bytes, Scalar(_base64, _to_base64)]
"""Bytes in Python, base64 in files."""
