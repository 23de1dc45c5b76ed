"""Plain data to the pydantic models of ``fields``, with the errors of Go's decoder.

All values of wrong types are reported together, in the order of the data.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar, get_args

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from proreus.base.errors import ConfigError
from proreus.base.feature_gates import FeatureGates
from proreus.config.field_errors import child, invalid, item
from proreus.config.fields import (
    AS_IS,
    WRONG_TYPE,
    ConfigModel,
    json_type_name,
    names_in_files,
)
from proreus.config.former_names import remedy_for_field
from proreus.config.types import is_in_version

M = TypeVar("M", bound=ConfigModel)
Location = tuple[int | str, ...]

_LIMITS = {
    "greater_than": "must be > {gt}",
    "greater_than_equal": "must be >= {ge}",
    "less_than": "must be < {lt}",
    "less_than_equal": "must be <= {le}",
}
"""By type of pydantic's errors."""


class StrictError(NamedTuple):
    """An unknown or duplicate field: kube-scheduler's text, and what to write instead."""

    text: str
    remedy: str = ""


class StrictDecodingError(ConfigError):
    """Raised for unknown or duplicate fields."""

    def __init__(self, strict_errors: Sequence[StrictError]) -> None:
        texts = ", ".join(error.text for error in strict_errors)
        remedies = dict.fromkeys(error.remedy for error in strict_errors if error.remedy)
        super().__init__(f"strict decoding error: {texts}", remedy="; ".join(remedies))


def decode_model(
    model: type[M], data: Mapping[str, Any], gates: FeatureGates
) -> tuple[M, tuple[StrictError, ...]]:
    """Decode; return the model with an error for each unknown field, which is left out.

    A field that the emulated version does not have yet is unknown. Raises ``ConfigError`` for wrong
    types.
    """
    newer = list(_newer_fields(model, data, gates))
    known = _without(data, newer)
    try:
        return _parse(model, known), _strict_errors(model, data, newer)
    except ValidationError as error:
        details = error.errors(include_url=False)
    details.sort(key=lambda detail: _position(data, detail["loc"]))
    unknown = [detail["loc"] for detail in details if detail["type"] == "extra_forbidden"]
    if len(unknown) < len(details):
        raise ConfigError(
            *(_text(model, detail) for detail in details if detail["type"] != "extra_forbidden")
        )
    strict_errors = _strict_errors(model, data, newer + unknown)
    try:
        return _parse(model, _without(known, unknown)), strict_errors
    except (LookupError, TypeError, ValidationError):
        # In the model of an out-of-tree plugin a location need not be a path of the data: those
        # of a union name the member.
        raise StrictDecodingError(strict_errors) from None


def _parse(model: type[M], data: object) -> M:
    """Validate in pydantic's JSON mode, which converts lists to tuples and nothing else."""
    return model.model_validate_json(_json(data), by_alias=True, by_name=False)


def _json(data: object) -> str:
    return json.dumps(data, default=dict)  # of any Mapping


def _position(data: Any, location: Location) -> tuple[int, ...]:
    """Return the position of a location in the text, as a sort key; missing fields come last."""
    position = []
    for step in location:
        if isinstance(data, Mapping):
            position.append(list(data).index(step) if step in data else len(data))
            data = data.get(step)
        elif isinstance(data, list) and isinstance(step, int):
            position.append(step)
            data = data[step]
    return tuple(position)


def _newer_fields(
    model: type[ConfigModel], data: Any, gates: FeatureGates, location: Location = ()
) -> Iterator[Location]:
    """Yield the locations of fields that the emulated version does not have yet."""
    if isinstance(data, list):
        for index, entry in enumerate(data):
            yield from _newer_fields(model, entry, gates, (*location, index))
    if not isinstance(data, Mapping):
        return
    for name, value in data.items():
        inner = _model_in(_annotation(model, name))
        if not is_in_version(model, name, gates):
            yield (*location, name)
        elif inner is not None:
            yield from _newer_fields(inner, value, gates, (*location, name))


def _strict_errors(
    model: type[ConfigModel], data: Any, unknown: list[Location]
) -> tuple[StrictError, ...]:
    in_order = sorted(unknown, key=lambda location: _position(data, location))
    return tuple(_unknown_field(model, location) for location in in_order)


def _unknown_field(model: type[ConfigModel], location: Location) -> StrictError:
    path = _path(location)
    struct = _struct_at(model, tuple(step for step in location[:-1] if isinstance(step, str)))
    remedy = remedy_for_field(path, names_in_files(struct).values())
    return StrictError(f'unknown field "{path}"', remedy)


def _without(data: Mapping[str, Any], locations: list[Location]) -> Mapping[str, Any]:
    """Return data without some fields; raises ``LookupError`` or ``TypeError`` for no path."""
    if not locations:
        return data
    left: dict[str, Any] = json.loads(_json(data))
    for *steps, last in locations:
        part: Any = left
        for step in steps:
            part = part[step]
        del part[last]
    return left


def _path(location: Location) -> str:
    path = ""
    for step in location:
        path = item(path, step) if isinstance(step, int) else child(path, step)
    return path


def _text(model: type[ConfigModel], detail: ErrorDetails) -> str:
    location, context = detail["loc"], detail.get("ctx", {})
    match detail["type"]:
        case str(kind) if kind == AS_IS:
            return detail["msg"]
        case "missing":
            return f"{_path(location)}: Required value"
        case str(kind) if kind in _LIMITS:
            return invalid(_path(location), detail["input"], _LIMITS[kind].format(**context))
        case str(kind) if kind == WRONG_TYPE:
            got, wanted = context["got"], context["wanted"]
        case "model_type" | "model_attributes_type" | "tuple_type" | "dict_type":
            got = json_type_name(detail["input"])
            wanted = _go_type_at(model, location)
        case _:
            return f"{_path(location)}: {detail['msg']}"
    steps = tuple(step for step in location if isinstance(step, str))
    struct, names = _struct_at(model, steps[:-1]), ".".join(steps)
    struct_name = (struct.go_type or struct.__name__).rpartition(".")[2]
    return (
        f"json: cannot unmarshal {got} into Go struct field {struct_name}.{names} of type {wanted}"
    )


def _struct_at(model: type[ConfigModel], steps: tuple[str, ...]) -> type[ConfigModel]:
    """Return the innermost model on a path of field names."""
    for step in steps:
        inner = _model_in(_annotation(model, step))
        if inner is None:
            break
        model = inner
    return model


def _go_type_at(model: type[ConfigModel], location: Location) -> str:
    names = [step for step in location if isinstance(step, str)]
    if not names:
        return model.go_type or model.__name__
    struct = _struct_at(model, tuple(names[:-1]))
    annotation = _annotation(struct, names[-1])
    inner = _model_in(annotation)
    element = (inner.go_type or inner.__name__) if inner else "string"
    in_list = "tuple[" in str(annotation) and not isinstance(location[-1], int)
    return f"[]{element}" if in_list else element


def _annotation(model: type[ConfigModel], alias: str) -> Any:
    for field in model.model_fields.values():
        if field.alias == alias:
            return field.annotation
    return None


def _model_in(annotation: Any) -> type[ConfigModel] | None:
    """Return the model inside ``X``, ``X | None`` or ``tuple[X, ...]``."""
    if isinstance(annotation, type) and issubclass(annotation, ConfigModel):
        return annotation
    return next((m for m in map(_model_in, get_args(annotation)) if m is not None), None)
