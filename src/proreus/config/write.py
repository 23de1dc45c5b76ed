"""Writes a configuration in the form of its file, with all defaults.

For ``--write-config-to`` and ``/configz``. The result loads to the same configuration, except that
private keys of extenders, and passwords in their URLs, are masked: whoever may read it need not be
allowed to act for proreus.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, cast, get_args

import yaml

from proreus.base.feature_gates import FeatureGates
from proreus.base.kubernetes_version import Change
from proreus.config.reading import SCALARS
from proreus.config.structs import ConfigStruct, fields_of, scalar_of, without_none
from proreus.config.types import (
    API_VERSION,
    KIND,
    BasePluginArgs,
    Extender,
    ExtenderManagedResource,
    ExtenderTLSConfig,
    InTreeArgs,
    PluginConfig,
    SchedulerConfiguration,
)

if TYPE_CHECKING:
    from proreus.config.fields import ConfigModel, PluginArgs

ConfigPart: TypeAlias = "ConfigStruct | ConfigModel"

_OMIT_ZEROS = (Extender, ExtenderManagedResource, ExtenderTLSConfig)
_NEVER_OMITTED = frozenset({"url_prefix", "name"})
MASK = "REDACTED"
"""In the place of a private key; valid base64, so that the rest of the file can still be read."""
_PASSWORD = re.compile(r"(//[^/@:]*:)[^/]*(?=@)")


def to_data(config: SchedulerConfiguration, gates: FeatureGates) -> dict[str, Any]:
    """Return the configuration as plain data, in the fields of the emulated version."""
    data = {"apiVersion": API_VERSION, "kind": KIND, **_fields(config)}
    if not gates.includes(Change.POD_GROUP_ENTITIES):
        for profile in data.get("profiles", ()):
            profile["plugins"].pop("podGroupPostFilter")
    return data


def to_yaml(config: SchedulerConfiguration, gates: FeatureGates) -> str:
    """Return the configuration as YAML, keys sorted."""
    text: str = yaml.dump(
        to_data(config, gates), Dumper=_Dumper, default_flow_style=False, allow_unicode=True
    )
    return text


class _Dumper(yaml.SafeDumper):
    """Also quotes strings that only Go reads as another type, such as ``y``."""


for _scalar in SCALARS:
    _Dumper.add_implicit_resolver(*_scalar)


class _Field(NamedTuple):
    """A field to write; ``dumped`` is its value as plain data, right for scalars only."""

    name: str
    alias: str
    value: Any
    dumped: Any


def _fields(part: ConfigPart) -> dict[str, Any]:
    """Return the fields that Go writes: all but nil and empty lists."""
    return {
        field.alias: _masked(part, field.name, _value(part, field.value, field.dumped))
        for field in (_of_struct(part) if isinstance(part, ConfigStruct) else _of_model(part))
        if field.value is not None and field.value != () and not _omitted(part, field)
    }


def _of_struct(struct: ConfigStruct) -> Iterator[_Field]:
    for field in fields_of(type(struct)):
        value = getattr(struct, field.name)
        yield _Field(field.name, field.alias, value, _dumped(field.type, value))


def _dumped(annotation: Any, value: Any) -> Any:
    """Return a value as plain data, a tuple's entry by entry."""
    if isinstance(value, tuple):
        return [_dumped(get_args(annotation)[0], one) for one in value]
    scalar = scalar_of(without_none(annotation))
    return value if scalar is None or value is None else scalar.write(value)


def _of_model(model: ConfigModel) -> Iterator[_Field]:
    dumped = model.model_dump(mode="json", by_alias=True)
    for name, field in type(model).model_fields.items():
        alias = field.alias or name
        yield _Field(name, alias, getattr(model, name), dumped[alias])


def _masked(part: ConfigPart, name: str, value: Any) -> Any:
    """Return a written value, without what is secret in it."""
    if isinstance(part, ExtenderTLSConfig) and name == "key_data":
        return MASK
    if isinstance(part, Extender) and name == "url_prefix":
        return _PASSWORD.sub(rf"\g<1>{MASK}", value)
    return value


def _omitted(part: ConfigPart, field: _Field) -> bool:
    if isinstance(part, SchedulerConfiguration):
        return field.name == "delay_cache_until_active" and not field.value
    return isinstance(part, _OMIT_ZEROS) and not field.value and field.name not in _NEVER_OMITTED


def _value(owner: ConfigPart, value: Any, dumped: Any) -> Any:
    if isinstance(value, BasePluginArgs) and isinstance(owner, PluginConfig):
        args = cast("InTreeArgs | PluginArgs", value)
        return {"apiVersion": API_VERSION, "kind": f"{owner.name}Args", **_fields(args)}
    if isinstance(value, ConfigStruct) or _is_model(value):
        return _fields(value)
    if isinstance(value, tuple):
        return [_value(owner, v, d) for v, d in zip(value, dumped, strict=True)]
    if isinstance(dumped, float) and dumped.is_integer():
        return int(dumped)
    return dumped


def _is_model(value: object) -> bool:
    """Return whether a value is a pydantic model, without importing pydantic."""
    return hasattr(value, "model_dump")
