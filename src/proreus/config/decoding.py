"""Plain data to typed configuration, with the errors of Go's decoder.

As in kube-scheduler, which decodes leniently first and strictly afterwards, a value of a wrong
type is reported alone; unknown fields are reported only if all types are right.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from proreus.base.errors import ConfigError
from proreus.base.feature_gates import FeatureGates
from proreus.config.fields import PluginArgs, json_type_name
from proreus.config.former_names import remedy_for_another_file
from proreus.config.model_decoding import StrictError, decode_model
from proreus.config.types import API_VERSION, KIND, PluginCatalog, SchedulerConfiguration

A = TypeVar("A", bound=PluginArgs)

_GROUP = API_VERSION.partition("/")[0]
_LAST_BETA = f"{_GROUP}/v1beta3"
_SCHEME = "pkg/runtime/scheme.go:111"


def decode_configuration(
    data: object, body: str, catalog: PluginCatalog, gates: FeatureGates
) -> tuple[SchedulerConfiguration, tuple[StrictError, ...]]:
    """Decode a configuration; return it with an error for each unknown field.

    Plugin arguments stay plain data. ``body`` is quoted in the error for data without ``kind`` or
    ``apiVersion``. Raises ``ConfigError`` for anything but unknown fields.
    """
    fields = _fields_of(data)
    version, kind = _version_and_kind(fields)
    if not kind:
        text = f"Object 'Kind' is missing in '{body}'"
        raise ConfigError(text, remedy=remedy_for_another_file(fields) or f"kind: write {KIND}")
    if not version:
        text = f"Object 'apiVersion' is missing in '{body}'"
        raise ConfigError(text, remedy=f"apiVersion: write {API_VERSION}")
    if version.count("/") > 1:
        raise ConfigError(f"unexpected GroupVersion string: {version}")
    if version == API_VERSION and kind in _in_tree_args_kinds(catalog):
        raise ConfigError(f"couldn't decode as {KIND}, got {API_VERSION}, Kind={kind}: ")
    if (version, kind) != (API_VERSION, KIND):
        raise _not_registered(version, kind, _remedy(version, kind))
    return decode_model(SchedulerConfiguration, fields, gates)


def decode_args(
    plugin: str, model: type[A], data: object, catalog: PluginCatalog, gates: FeatureGates
) -> tuple[A, tuple[StrictError, ...]]:
    """Decode a plugin's arguments; return them with an error for each unknown field."""
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
            return decode_model(model, fields, gates)
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


def _not_registered(version: str, kind: str, remedy: str = "") -> ConfigError:
    return ConfigError(
        f'no kind "{kind}" is registered for version "{version}" in scheme "{_SCHEME}"',
        remedy=remedy,
    )


def _remedy(version: str, kind: str) -> str:
    """Return the remedy for another version and kind."""
    if kind == "Policy":
        return (
            f"kind: write {KIND} with apiVersion {API_VERSION}, which has plugins where a Policy "
            "has predicates and priorities; see docs/plugins/README.md for their names"
        )
    texts = []
    if version != API_VERSION:
        same = ", in which all fields of v1beta3 are the same" if version == _LAST_BETA else ""
        texts.append(f"apiVersion: write {API_VERSION}{same}")
    if kind != KIND:
        texts.append(f"kind: write {KIND}")
    return " and ".join(texts)
