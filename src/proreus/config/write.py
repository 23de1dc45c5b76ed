"""Writes a configuration in the form of its file, with all defaults.

For ``--write-config-to`` and ``/configz``. The result loads to the same configuration, except that
private keys of extenders, and passwords in their URLs, are masked: whoever may read it need not be
allowed to act for proreus.
"""

from __future__ import annotations

import re
from typing import Any

import yaml

from proreus.base.feature_gates import FeatureGates
from proreus.config.fields import ConfigModel, PluginArgs, names_in_files
from proreus.config.reading import SCALARS
from proreus.config.types import (
    API_VERSION,
    KIND,
    Extender,
    ExtenderManagedResource,
    ExtenderTLSConfig,
    PluginConfig,
    SchedulerConfiguration,
    is_in_version,
)

_OMIT_ZEROS = (Extender, ExtenderManagedResource, ExtenderTLSConfig)
_NEVER_OMITTED = frozenset({"url_prefix", "name"})
MASK = "REDACTED"
"""In the place of a private key; valid base64, so that the rest of the file can still be read."""
_PASSWORD = re.compile(r"(//[^/@:]*:)[^/]*(?=@)")


def to_data(config: SchedulerConfiguration, gates: FeatureGates) -> dict[str, Any]:
    """Return the configuration as plain data, in the fields of the emulated version."""
    return {"apiVersion": API_VERSION, "kind": KIND, **_fields(config, gates)}


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


def _fields(part: ConfigModel, gates: FeatureGates) -> dict[str, Any]:
    """Return the fields that Go writes, which omits nil and empty lists."""
    dumped = part.model_dump(mode="json", by_alias=True)
    return {
        alias: _masked(part, name, _value(part, value, dumped[alias], gates))
        for name, alias in names_in_files(type(part)).items()
        if (value := getattr(part, name)) not in (None, ())
        and not _omitted(part, name, value)
        and is_in_version(type(part), alias, gates)
    }


def _masked(part: ConfigModel, name: str, value: Any) -> Any:
    """Return a written value with its secrets masked."""
    if isinstance(part, ExtenderTLSConfig) and name == "key_data":
        return MASK
    if isinstance(part, Extender) and name == "url_prefix":
        return _PASSWORD.sub(rf"\g<1>{MASK}", value)
    return value


def _omitted(part: ConfigModel, name: str, value: Any) -> bool:
    if isinstance(part, SchedulerConfiguration):
        return name == "delay_cache_until_active" and not value
    return isinstance(part, _OMIT_ZEROS) and not value and name not in _NEVER_OMITTED


def _value(owner: ConfigModel, value: Any, dumped: Any, gates: FeatureGates) -> Any:
    if isinstance(value, PluginArgs) and isinstance(owner, PluginConfig):
        return {"apiVersion": API_VERSION, "kind": f"{owner.name}Args", **_fields(value, gates)}
    if isinstance(value, ConfigModel):
        return _fields(value, gates)
    if isinstance(value, tuple):
        return [_value(owner, v, d, gates) for v, d in zip(value, dumped, strict=True)]
    if isinstance(dumped, float) and dumped.is_integer():
        return int(dumped)
    return dumped
