"""Describes a plugin's arguments for people: names as in the file, types, defaults."""

from __future__ import annotations

import json
from types import UnionType
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from proreus.base.source_location import class_location
from proreus.config.durations import format_duration
from proreus.config.fields import ConfigModel, PluginArgs, Seconds, is_duration

_JSON_TYPES: dict[Any, str] = {
    int: "integer",
    float: "number",
    str: "string",
    bool: "boolean",
    bytes: "base64",
    Any: "any",
    type(None): "null",
}


class ArgField(NamedTuple):
    """An argument. ``default`` is plain data, None if it is ``required``."""

    name: str
    type: str
    default: Any
    required: bool

    def __str__(self) -> str:
        shown = "required" if self.required else f"= {_shown(self.default)}"
        return f"{self.name}: {self.type} {shown}"


def fields_of(model: type[PluginArgs]) -> tuple[ArgField, ...]:
    """Return the fields of a plugin's arguments in order of definition."""
    return tuple(
        ArgField(field.alias or name, _type(field), _default(field), field.is_required())
        for name, field in model.model_fields.items()
    )


def describe_args(model: type[PluginArgs]) -> str:
    """Return a sentence with the fields of a plugin's arguments and the place of their class."""
    file, line = class_location(model)
    listed = ", ".join(map(str, fields_of(model))) or "none"
    return f"{model.__qualname__} ({file}:{line}) has the fields {listed}"


def _type(field: FieldInfo) -> str:
    return "duration" if is_duration(field) else _named(field.annotation)


def _named(annotation: Any) -> str:
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin in (Union, UnionType):
        return " or ".join(map(_named, inner))
    if origin is Literal:
        return " or ".join(map(_shown, inner))
    if origin in (tuple, list, set, frozenset):
        return f"list of {_named(inner[0])}" if inner else "list"
    if origin is dict:
        return f"map of {_named(inner[1])}"
    if hasattr(annotation, "__metadata__"):
        return "duration" if annotation == Seconds else _named(annotation.__origin__)
    return _JSON_TYPES.get(annotation) or str(getattr(annotation, "__name__", annotation))


def _default(field: FieldInfo) -> Any:
    if field.is_required():
        return None
    value = field.get_default(call_default_factory=True, validated_data={})
    if is_duration(field) and value is not None:
        return format_duration(value)
    return _plain(value)


def _plain(value: Any) -> Any:
    """Return a default as plain data."""
    if isinstance(value, ConfigModel):
        return value.model_dump(mode="json", by_alias=True)
    if isinstance(value, (tuple, list, set, frozenset)):
        return [_plain(one) for one in value]
    if isinstance(value, dict):
        return {str(key): _plain(one) for key, one in value.items()}
    return value if isinstance(value, (int, float, str, bool, type(None))) else str(value)


def _shown(value: Any) -> str:
    match value:
        case str() if value and " " not in value:
            return value
    return json.dumps(value, ensure_ascii=False, default=str)
