"""A configuration back into the form of its file, with every default explicit.

For ``--write-config-to`` and ``/configz``; what comes out loads again to the same configuration.
"""

from __future__ import annotations

from typing import Any

import yaml

from proreus.config.fields import ConfigModel
from proreus.config.reading import SCALARS
from proreus.config.types import (
    API_VERSION,
    KIND,
    Extender,
    ExtenderManagedResource,
    ExtenderTLSConfig,
    PluginArgs,
    PluginConfig,
    SchedulerConfiguration,
)

_ZEROS_LEFT_OUT = (Extender, ExtenderManagedResource, ExtenderTLSConfig)
_ALWAYS_THERE = frozenset({"url_prefix", "name"})


def to_data(config: SchedulerConfiguration) -> dict[str, Any]:
    """Return the configuration as plain data that JSON and YAML can say."""
    return {"apiVersion": API_VERSION, "kind": KIND, **_fields(config)}


def to_yaml(config: SchedulerConfiguration) -> str:
    """Return the configuration as YAML, keys sorted."""
    text: str = yaml.dump(
        to_data(config), Dumper=_Dumper, default_flow_style=False, allow_unicode=True
    )
    return text


class _Dumper(yaml.SafeDumper):
    """Quotes also those texts that only Go would take for something else, such as ``y``."""


for _scalar in SCALARS:
    _Dumper.add_implicit_resolver(*_scalar)


def _fields(model: ConfigModel) -> dict[str, Any]:
    """Return the fields that Go would write: not those that are nil or an empty list."""
    dumped = model.model_dump(mode="json", by_alias=True)
    written: dict[str, Any] = {}
    for name, field in type(model).model_fields.items():
        value, alias = getattr(model, name), field.alias or name
        if value is None or value == () or _left_out(model, name, value):
            continue
        written[alias] = _value(model, value, dumped[alias])
    return written


def _left_out(model: ConfigModel, name: str, value: object) -> bool:
    if isinstance(model, SchedulerConfiguration):
        return name == "delay_cache_until_active" and not value
    return isinstance(model, _ZEROS_LEFT_OUT) and not value and name not in _ALWAYS_THERE


def _value(owner: ConfigModel, value: Any, dumped: Any) -> Any:
    """Return a field's value; ``dumped`` is pydantic's opinion, right for scalars."""
    if isinstance(value, PluginArgs) and isinstance(owner, PluginConfig):
        return {"apiVersion": API_VERSION, "kind": f"{owner.name}Args", **_fields(value)}
    if isinstance(value, ConfigModel):
        return _fields(value)
    if isinstance(value, tuple):
        return [_value(owner, v, d) for v, d in zip(value, dumped, strict=True)]
    if isinstance(dumped, float) and dumped.is_integer():
        return int(dumped)
    return dumped
