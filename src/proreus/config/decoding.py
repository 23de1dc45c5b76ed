"""Plain data to typed configuration, with the errors of Go's decoder.

Wrong types come first and alone, as ``encoding/json`` has it; unknown fields are the complaint of
kube-scheduler's second, strict look.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar, get_args

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from proreus.config.fields import AS_IS, WRONG_TYPE, ConfigModel, json_type_name
from proreus.config.plugin_args import IN_TREE_ARGS
from proreus.config.types import API_VERSION, KIND, PluginArgs, SchedulerConfiguration
from proreus.errors import ConfigError

M = TypeVar("M", bound=ConfigModel)
Location = tuple[int | str, ...]

_GROUP = API_VERSION.partition("/")[0]
_SCHEME = "pkg/runtime/scheme.go:111"
_ARGS_KINDS = frozenset(f"{name}Args" for name in IN_TREE_ARGS)


class StrictDecodingError(ConfigError):
    """Nothing but unknown fields; ``strict_errors`` are without the common introduction."""

    def __init__(self, strict_errors: Sequence[str]) -> None:
        self.strict_errors = tuple(strict_errors)
        super().__init__("strict decoding error: " + ", ".join(strict_errors))


def decode_configuration(data: object, body: str) -> tuple[SchedulerConfiguration, tuple[str, ...]]:
    """Make a configuration of plain data; return it with complaints about unknown fields.

    Arguments of plugins stay as written. ``body`` is what to show where nothing says what the
    data is. Raises ``ConfigError`` for any other fault.
    """
    fields = _fields_of(data)
    version, kind = _version_and_kind(fields)
    if not kind:
        raise ConfigError(f"Object 'Kind' is missing in '{body}'")
    if not version:
        raise ConfigError(f"Object 'apiVersion' is missing in '{body}'")
    if version.count("/") > 1:
        raise ConfigError(f"unexpected GroupVersion string: {version}")
    if version == API_VERSION and kind in _ARGS_KINDS:
        raise ConfigError(f"couldn't decode as {KIND}, got {API_VERSION}, Kind={kind}: ")
    if (version, kind) != (API_VERSION, KIND):
        raise _not_registered(version, kind)
    return _decode(SchedulerConfiguration, fields)


def decode_args(
    plugin: str, model: type[PluginArgs], data: object
) -> tuple[PluginArgs, tuple[str, ...]]:
    """Make a plugin's arguments; return them with complaints about unknown fields."""
    try:
        fields = _fields_of(data)
        version, kind = _version_and_kind(fields)
        version, kind = version or API_VERSION, kind or f"{plugin}Args"
        if kind != f"{plugin}Args":
            if version != API_VERSION or kind not in (KIND, *_ARGS_KINDS):
                raise _not_registered(version, kind)
        elif plugin in IN_TREE_ARGS and version != API_VERSION:
            raise _not_registered(version, kind)
        else:
            return _decode(model, fields)
    except ConfigError as error:
        raise ConfigError(
            *(f"decoding args for plugin {plugin}: {problem}" for problem in error.problems)
        ) from None
    raise ConfigError(
        f"args for plugin {plugin} were not of type {plugin}Args.{_GROUP}, got {kind}.{_GROUP}"
    )


def _fields_of(data: object) -> dict[str, Any]:
    if data is None:
        return {}
    if isinstance(data, Mapping):
        return dict(data)
    raise ConfigError(
        "couldn't get version/kind; json parse error: json: cannot unmarshal "
        f"{json_type_name(data)} into an object with fields apiVersion and kind"
    )


def _version_and_kind(fields: dict[str, Any]) -> tuple[str, str]:
    """Take apiVersion and kind out of the fields."""
    found = []
    for name in ("apiVersion", "kind"):
        value = fields.pop(name, None)
        if value is not None and not isinstance(value, str):
            raise ConfigError(
                "couldn't get version/kind; json parse error: json: cannot unmarshal "
                f"{json_type_name(value)} into Go struct field .{name} of type string"
            )
        found.append(value or "")
    return found[0], found[1]


def _not_registered(version: str, kind: str) -> ConfigError:
    return ConfigError(
        f'no kind "{kind}" is registered for version "{version}" in scheme "{_SCHEME}"'
    )


def _decode(model: type[M], data: dict[str, Any]) -> tuple[M, tuple[str, ...]]:
    """Decode; unknown fields are reported and left out, so that the rest can be looked at too."""
    try:
        return _parse(model, data), ()
    except ValidationError as error:
        details = error.errors(include_url=False)
    details.sort(key=lambda detail: _position(data, detail["loc"]))
    unknown = [detail for detail in details if detail["type"] == "extra_forbidden"]
    if len(unknown) < len(details):
        raise ConfigError(
            *(_text(model, detail) for detail in details if detail["type"] != "extra_forbidden")
        )
    strict_errors = tuple(f'unknown field "{_path(detail["loc"])}"' for detail in unknown)
    known = json.loads(json.dumps(data))
    try:
        for detail in unknown:
            _delete(known, detail["loc"])
        return _parse(model, known), strict_errors
    except (LookupError, TypeError, ValidationError):
        # a plugin's own model may be of a kind (a union) where a location is no path of the data
        raise StrictDecodingError(strict_errors) from None


def _parse(model: type[M], data: object) -> M:
    """Parse in pydantic's JSON mode, where a list may become a tuple and nothing else may bend."""
    return model.model_validate_json(json.dumps(data), by_alias=True, by_name=False)


def _position(data: Any, location: Location) -> tuple[int, ...]:
    """Return where in the text a location is, as a sort key."""
    position = []
    for step in location:
        if isinstance(data, dict) and step in data:
            position.append(list(data).index(step))
            data = data[step]
        elif isinstance(data, list) and isinstance(step, int):
            position.append(step)
            data = data[step]
    return tuple(position)


def _delete(data: Any, location: Location) -> None:
    for step in location[:-1]:
        data = data[step]
    del data[location[-1]]


def _path(location: Location) -> str:
    path = ""
    for step in location:
        if isinstance(step, int):
            path += f"[{step}]"
        else:
            path += f".{step}" if path else step
    return path


def _text(model: type[ConfigModel], detail: ErrorDetails) -> str:
    location, context = detail["loc"], detail.get("ctx", {})
    match detail["type"]:
        case str(kind) if kind == AS_IS:
            return detail["msg"]
        case "missing":
            return f"{_path(location)}: Required value"
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
    """Return the innermost model on the way down the fields."""
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
    """Find the model inside ``X``, ``X | None`` or ``tuple[X, ...]``."""
    if isinstance(annotation, type) and issubclass(annotation, ConfigModel):
        return annotation
    return next((m for m in map(_model_in, get_args(annotation)) if m is not None), None)
