"""The base class and field types of all configuration models, as strict as Go's decoder.

Field names are camelCase in files and snake_case in Python. Unknown fields, wrong types and
numbers out of range are errors; an explicit null counts as absent, as in Go. Models are frozen.
"""

from __future__ import annotations

import base64
import re
from typing import Annotated, Any, ClassVar, get_args, get_origin

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    ValidationInfo,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticCustomError

from proreus.config.durations import DurationError, format_duration, parse_duration

AS_IS = "as_is"
"""The type of errors whose text needs no path or prefix."""

WRONG_TYPE = "go_type"
"""The type of errors with Go's names of the types ``got`` and ``wanted``."""


_MAX_FLOAT32 = 3.4028235677973366e38


class ConfigModel(BaseModel):
    """Base class of a part of a configuration.

    Python code constructs it with snake_case names; files have camelCase ones.
    """

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        validate_default=False,
    )

    go_type: ClassVar[str] = ""
    """The Go type that errors name; empty: the class name."""

    @model_validator(mode="before")
    @classmethod
    def _as_go_reads(cls, data: Any) -> Any:
        """Drop nulls, and convert lists to the tuples that frozen models need.

        A null duration is kept and so an error, as in Go, whose duration type decodes itself and
        accepts only a string.
        """
        if data is None:
            return {}
        if not isinstance(data, dict):
            return data
        tuples: set[str | None] = set()
        nullable: set[str | None] = set()
        for name, field in cls.model_fields.items():
            if _is_tuple(field.annotation):
                tuples.update((name, field.alias))
            if not is_duration(field):
                nullable.update((name, field.alias))
        return {
            key: _with_tuples(value) if key in tuples else value
            for key, value in data.items()
            if value is not None or key not in nullable
        }


def _with_tuples(value: Any) -> Any:
    """Convert lists to tuples, also in a mapping; inner models convert their own."""
    if isinstance(value, dict):
        return {key: _with_tuples(entry) for key, entry in value.items()}
    return tuple(value) if isinstance(value, list) else value


def is_duration(field: FieldInfo) -> bool:
    """Return whether a field is a duration: seconds in Python, text like ``1m30s`` in files."""
    return any(getattr(part, "func", None) is _seconds for part in field.metadata)


def _is_tuple(annotation: Any) -> bool:
    return get_origin(annotation) is tuple or any(map(_is_tuple, get_args(annotation)))


def with_alias(name: str, default: Any) -> Any:
    """Return a field whose name in the file is not its camelCase one.

    With pydantic's ``Field`` itself, type checkers would require that name in Python too.
    """
    return Field(default=default, alias=name)


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


def _wrong_type(value: object, wanted: str, got: str | None = None) -> PydanticCustomError:
    return PydanticCustomError(
        WRONG_TYPE,
        "must be of type {wanted}, not {got}",
        {"got": got or json_type_name(value), "wanted": wanted},
    )


def _integer(bits: int) -> BeforeValidator:
    def check(value: object) -> object:
        wanted = f"int{bits}"
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise _wrong_type(value, wanted)
        if isinstance(value, float) or not -(1 << bits - 1) <= value < 1 << bits - 1:
            raise _wrong_type(value, wanted, f"number {value}")
        return value

    return BeforeValidator(check)


def _text(value: object) -> object:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise _wrong_type(value, "string")
    return value


def _boolean(value: object) -> object:
    if not isinstance(value, bool):
        raise _wrong_type(value, "bool")
    return value


def _number(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise _wrong_type(value, "float32")
    if abs(value) > _MAX_FLOAT32:
        raise _wrong_type(value, "float32", f"number {value}")
    return float(value)


def _seconds(value: object, info: ValidationInfo) -> object:
    if info.mode == "python" and isinstance(value, (int, float)):
        return float(value)
    if value is not None and not isinstance(value, str):
        raise _wrong_type(value, "string")
    try:
        return parse_duration(value or "")
    except DurationError as error:
        raise PydanticCustomError(AS_IS, "{text}", {"text": str(error)}) from None


def _base64(value: object) -> object:
    if isinstance(value, bytes):
        return value
    if not isinstance(value, str):
        raise _wrong_type(value, "[]uint8")
    text = value.replace("\r", "").replace("\n", "")
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        match = re.match("[A-Za-z0-9+/]*", text)
        where = match.end() if match else 0
        fault = f"illegal base64 data at input byte {where}"
        raise PydanticCustomError(AS_IS, "{text}", {"text": fault}) from None


def _to_base64(value: bytes) -> str:
    return base64.b64encode(value).decode()


Int32 = Annotated[int, _integer(32)]
Int64 = Annotated[int, _integer(64)]
Float32 = Annotated[float, BeforeValidator(_number)]
Text = Annotated[str, BeforeValidator(_text)]
Boolean = Annotated[bool, BeforeValidator(_boolean)]
Seconds = Annotated[
    float, BeforeValidator(_seconds), PlainSerializer(format_duration, return_type=str)
]
"""Seconds in Python, a Go duration such as ``1m30s`` in files."""
Base64 = Annotated[bytes, BeforeValidator(_base64), PlainSerializer(_to_base64, return_type=str)]
"""Bytes in Python, base64 in files."""
