"""Plain data to typed configuration, with the errors of Go's decoder.

As in kube-scheduler, which decodes leniently first and strictly afterwards, a value of a wrong
type is reported alone; unknown fields are reported only if all types are right.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar, get_args

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from proreus.config.fields import AS_IS, WRONG_TYPE, ConfigModel, json_type_name
from proreus.config.types import (
    API_VERSION,
    KIND,
    PluginArgs,
    PluginCatalog,
    SchedulerConfiguration,
)
from proreus.errors import ConfigError

M = TypeVar("M", bound=ConfigModel)
Location = tuple[int | str, ...]

_GROUP = API_VERSION.partition("/")[0]
_SCHEME = "pkg/runtime/scheme.go:111"


class StrictDecodingError(ConfigError):
    """Raised for unknown or duplicate fields; ``strict_errors`` lack the common prefix."""

    def __init__(self, strict_errors: Sequence[str]) -> None:
        self.strict_errors = tuple(strict_errors)
        super().__init__("strict decoding error: " + ", ".join(strict_errors))


def decode_configuration(
    data: object, body: str, catalog: PluginCatalog
) -> tuple[SchedulerConfiguration, tuple[str, ...]]:
    """Decode a configuration; return it with one text for each unknown field.

    Plugin arguments stay plain data. ``body`` is quoted in the error for data without ``kind`` or
    ``apiVersion``. Raises ``ConfigError`` for anything but unknown fields.
    """
    fields = _fields_of(data)
    version, kind = _version_and_kind(fields)
    if not kind:
        raise ConfigError(f"Object 'Kind' is missing in '{body}'")
    if not version:
        raise ConfigError(f"Object 'apiVersion' is missing in '{body}'")
    if version.count("/") > 1:
        raise ConfigError(f"unexpected GroupVersion string: {version}")
    if version == API_VERSION and kind in _in_tree_args_kinds(catalog):
        raise ConfigError(f"couldn't decode as {KIND}, got {API_VERSION}, Kind={kind}: ")
    if (version, kind) != (API_VERSION, KIND):
        raise _not_registered(version, kind)
    return _decode(SchedulerConfiguration, fields)


def decode_args(
    plugin: str, model: type[PluginArgs], data: object, catalog: PluginCatalog
) -> tuple[PluginArgs, tuple[str, ...]]:
    """Decode a plugin's arguments; return them with one text for each unknown field."""
    try:
        fields = _fields_of(data)
        version, kind = _version_and_kind(fields)
        version, kind = version or API_VERSION, kind or f"{plugin}Args"
        if kind != f"{plugin}Args":
            if version != API_VERSION or kind not in (KIND, *_in_tree_args_kinds(catalog)):
                raise _not_registered(version, kind)
        elif catalog.is_in_tree(plugin) and version != API_VERSION:
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


def _in_tree_args_kinds(catalog: PluginCatalog) -> frozenset[str]:
    """Return the kinds of plugin arguments in group kubescheduler.config.k8s.io."""
    return frozenset(
        f"{name}Args"
        for name in catalog.names()
        if catalog.is_in_tree(name) and catalog.args_model(name) is not None
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
    """Remove apiVersion and kind from the fields and return them, "" for an absent one."""
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
    """Decode; unknown fields are returned as texts and dropped, so that decoding can go on."""
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
        # In the model of an out-of-tree plugin a location need not be a path of the data: those
        # of a union name the member.
        raise StrictDecodingError(strict_errors) from None


def _parse(model: type[M], data: object) -> M:
    """Validate in pydantic's JSON mode, which converts lists to tuples and nothing else."""
    return model.model_validate_json(json.dumps(data), by_alias=True, by_name=False)


def _position(data: Any, location: Location) -> tuple[int, ...]:
    """Return the position of a location in the text, as a sort key."""
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
