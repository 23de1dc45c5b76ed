"""The base classes and field types of the arguments of out-of-tree plugins and add-ons.

pydantic models, as strict as Go's decoder. Unknown fields, wrong types and numbers out of range are
errors; an explicit null counts as absent, as in Go. Models are frozen. Imported only where a plugin
needs it: kube-scheduler's own configuration consists of ``structs``.
"""

from __future__ import annotations

from collections.abc import Iterable
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
from proreus.config.structs import json_type_name
from proreus.config.types import BasePluginArgs

AS_IS = "as_is"
"""The type of errors whose text needs no path or prefix."""

WRONG_TYPE = "go_type"
"""The type of errors with Go's names of the types ``got`` and ``wanted``."""


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


class PluginArgs(ConfigModel, BasePluginArgs):
    """Base class of the frozen pydantic model that a plugin has as its ``Args``.

    Fields are snake_case here and camelCase in the file; a default makes a field optional. Unknown
    fields and wrong types are refused before ``problems`` is called. The file may also contain
    ``apiVersion`` and ``kind`` (``<PluginName>Args``); they are not fields of the model.
    """

    def with_defaults(self, gates: FeatureGates) -> Self:
        """Return the arguments with those defaults that depend on other fields or on gates."""
        return self

    def problems(self, path: str, gates: FeatureGates) -> Iterable[str]:
        """Yield one sentence for each invalid value, made with ``field_errors``.

        ``path`` leads to the arguments: ``invalid(child(path, "maxSkew"), 0, "must be > 0")``.
        """
        return ()


def _seconds(value: object, info: ValidationInfo) -> object:
    if info.mode == "python" and isinstance(value, (int, float)):
        return float(value)
    if value is not None and not isinstance(value, str):
        context = {"got": json_type_name(value), "wanted": "string"}
        raise PydanticCustomError(WRONG_TYPE, "must be of type {wanted}, not {got}", context)
    try:
        return parse_duration(value or "")
    except DurationError as error:
        raise PydanticCustomError(AS_IS, "{text}", {"text": str(error)}) from None


Seconds = Annotated[
    float, BeforeValidator(_seconds), PlainSerializer(format_duration, return_type=str)
]
"""Seconds in Python, a Go duration such as ``1m30s`` in files."""
