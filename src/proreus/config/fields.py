"""The base classes and field types of the configuration and of plugin arguments.

pydantic models, as strict as Go's decoder. Unknown fields, wrong types and numbers out of range are
errors; an explicit null counts as absent, as in Go. Models are frozen. Field names are camelCase in
files and snake_case in Python.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Self, get_args, get_origin

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    PlainSerializer,
    ValidationInfo,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticCustomError

from proreus.base.feature_gates import FeatureGates
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
        fields = {
            key: field for name, field in cls.model_fields.items() for key in (name, field.alias)
        }
        return {
            key: _with_tuples(value) if key in fields and _is_tuple(fields[key]) else value
            for key, value in data.items()
            if value is not None or key not in fields or is_duration(fields[key])
        }


def _with_tuples(value: Any) -> Any:
    """Convert lists to tuples, also in a mapping; inner models convert their own."""
    if isinstance(value, dict):
        return {key: _with_tuples(entry) for key, entry in value.items()}
    return tuple(value) if isinstance(value, list) else value


def _is_tuple(field: FieldInfo) -> bool:
    return _contains_tuple(field.annotation)


def _contains_tuple(annotation: Any) -> bool:
    return get_origin(annotation) is tuple or any(map(_contains_tuple, get_args(annotation)))


def is_duration(field: FieldInfo) -> bool:
    """Return whether a field is a duration: seconds in Python, text like ``1m30s`` in files."""
    return any(getattr(part, "func", None) is _seconds for part in field.metadata)


def names_in_files(model: type[ConfigModel]) -> dict[str, str]:
    """Return the fields' names in files by their names in Python, in order of definition."""
    return {name: field.alias or name for name, field in model.model_fields.items()}


class PluginArgs(ConfigModel):
    """Base class of the frozen pydantic model that a plugin has as its ``Args``.

    Fields are snake_case here and camelCase in the file; a default makes a field optional. Unknown
    fields and wrong types are refused before ``problems`` is called. The file may also contain
    ``apiVersion`` and ``kind`` (``<PluginName>Args``); they are not fields of the model.
    """

    checked_at_construction: ClassVar[bool] = False
    """Whether the plugin's constructor calls ``problems``, rather than validation of the file.

    kube-scheduler does so for NodeResourcesFitArgs: errors in the arguments of a plugin that no
    profile enables are not reported.
    """

    arguments_without_effect: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """Arguments that a plugin of this name has in another project, and why they have no effect
    here. They are accepted, with a warning."""

    points_without_effect: ClassVar[frozenset[str]] = frozenset()
    """Extension points that a plugin of this name has in another project, and does not need here.
    It may be enabled there, with a warning."""

    def with_defaults(self, gates: FeatureGates) -> Self:
        """Return the arguments with those defaults that depend on other fields or on gates."""
        return self

    def problems(self, path: str, gates: FeatureGates) -> Iterable[str]:
        """Yield one sentence for each invalid value, made with ``field_errors``.

        ``path`` leads to the arguments: ``invalid(child(path, "maxSkew"), 0, "must be > 0")``.
        """
        return ()


# ---- field types that read as Go's do ---------------------------------------------------------


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


def _wrong_type(got: str, wanted: str) -> PydanticCustomError:
    context = {"got": got, "wanted": wanted}
    return PydanticCustomError(WRONG_TYPE, "must be of type {wanted}, not {got}", context)


def _integer(bits: int) -> BeforeValidator:
    wanted, limit = f"int{bits}", 1 << bits - 1

    def read(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise _wrong_type(json_type_name(value), wanted)
        if isinstance(value, float) or not -limit <= value < limit:
            raise _wrong_type(f"number {value}", wanted)
        return value

    return BeforeValidator(read)


def _float32(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise _wrong_type(json_type_name(value), "float32")
    if abs(value) > _MAX_FLOAT32:
        raise _wrong_type(f"number {value}", "float32")
    return float(value)


def _text(value: object) -> str:
    if value is None:  # in a list or mapping
        return ""
    if not isinstance(value, str):
        raise _wrong_type(json_type_name(value), "string")
    return value


def _boolean(value: object) -> bool:
    if not isinstance(value, bool):
        raise _wrong_type(json_type_name(value), "bool")
    return value


def _seconds(value: object, info: ValidationInfo) -> object:
    if info.mode == "python" and isinstance(value, (int, float)):
        return float(value)
    if value is not None and not isinstance(value, str):
        raise _wrong_type(json_type_name(value), "string")
    try:
        return parse_duration(value or "")
    except DurationError as error:
        raise PydanticCustomError(AS_IS, "{text}", {"text": str(error)}) from None


def _bytes(value: object) -> bytes:
    if isinstance(value, bytes):
        return value
    if not isinstance(value, str):
        raise _wrong_type(json_type_name(value), "[]uint8")
    text = value.replace("\r", "").replace("\n", "")
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        match = re.match("[A-Za-z0-9+/]*", text)
        found = f"illegal base64 data at input byte {match.end() if match else 0}"
        raise PydanticCustomError(AS_IS, "{text}", {"text": found}) from None


def _to_base64(value: bytes) -> str:
    return base64.b64encode(value).decode()


Int32 = Annotated[int, _integer(32)]
Int64 = Annotated[int, _integer(64)]
Float32 = Annotated[float, BeforeValidator(_float32)]
Text = Annotated[str, BeforeValidator(_text)]
Boolean = Annotated[bool, BeforeValidator(_boolean)]
Seconds = Annotated[
    float, BeforeValidator(_seconds), PlainSerializer(format_duration, return_type=str)
]
"""Seconds in Python, a Go duration such as ``1m30s`` in files."""
Base64 = Annotated[bytes, BeforeValidator(_bytes), PlainSerializer(_to_base64, return_type=str)]
"""Bytes in Python, base64 in files."""
