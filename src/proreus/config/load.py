"""Load a KubeSchedulerConfiguration: read, decode, fill in defaults, validate.

As strict as kube-scheduler, with its error texts; ``ConfigError.problems`` holds all errors of the
first step that found any. Profiles are built from the result by ``engine.runtime.expansion``.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from proreus.base import logs
from proreus.base.errors import ConfigError
from proreus.base.feature_gates import FeatureGates
from proreus.config import former_names, validation
from proreus.config.arg_fields import describe_args
from proreus.config.decoding import decode_args, decode_configuration
from proreus.config.defaults import DEFAULT_QPS, set_defaults
from proreus.config.fields import PluginArgs, names_in_files
from proreus.config.model_decoding import StrictDecodingError, StrictError
from proreus.config.reading import Document, read
from proreus.config.types import (
    PluginCatalog,
    PluginConfig,
    Plugins,
    ProfileConfiguration,
    SchedulerConfiguration,
)

__all__ = ["PluginCatalog", "default_configuration", "load", "load_file", "parse", "read_file"]

log = logs.logger(__name__)

JSON = "application/json"

Override = Callable[[SchedulerConfiguration], SchedulerConfiguration]


def load(
    source: str | bytes | Mapping[str, Any],
    catalog: PluginCatalog,
    gates: FeatureGates | None = None,
    override: Override | None = None,
    default_qps: float = DEFAULT_QPS,
) -> SchedulerConfiguration:
    """Return the complete, valid configuration from YAML or JSON text, or from plain data.

    ``override`` is applied between defaulting and validation: there, command-line flags take
    precedence over the file. ``default_qps`` is the rate where the file states none. Raises
    ``ConfigError``.
    """
    gates = gates or FeatureGates()
    document = Document(source) if isinstance(source, Mapping) else read(source)
    written = parse(document, catalog, source, gates)
    config = set_defaults(written, catalog, gates, default_qps)
    if override is not None:
        config = override(config)
    problems = tuple(validation.problems(config, gates))
    if problems:
        raise ConfigError(*problems, remedy=_remedy(config))
    _warn_of_idle_points(config, catalog)
    _warn_of_idle_fields(config)
    _warn_of_former_plugins(config, catalog)
    _warn_of_idle_args(config, catalog)
    return config


def load_file(
    path: str,
    catalog: PluginCatalog,
    gates: FeatureGates | None = None,
    override: Override | None = None,
) -> SchedulerConfiguration:
    """Load a file; raises ``ConfigError`` also if it cannot be opened."""
    with naming_file(path):
        return load(read_file(path), catalog, gates, override)


@contextmanager
def naming_file(path: str) -> Iterator[None]:
    """Name the file of an error in a configuration; "" for none."""
    try:
        yield
    except ConfigError as error:
        error.file = error.file or path
        raise


def read_file(path: str) -> bytes:
    """Return the content of a configuration file; raises ``ConfigError``."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise ConfigError(f"open {path}: {reason}") from None


def default_configuration(
    catalog: PluginCatalog,
    gates: FeatureGates | None = None,
    plugins: Plugins | None = None,
    default_qps: float = DEFAULT_QPS,
) -> SchedulerConfiguration:
    """Return the configuration that applies without a file, ``plugins`` merged over the default."""
    profile = ProfileConfiguration(plugins=plugins or Plugins())
    written = SchedulerConfiguration(profiles=(profile,))
    return set_defaults(written, catalog, gates or FeatureGates(), default_qps)


def parse(
    document: Document,
    catalog: PluginCatalog,
    body: str | bytes | Mapping[str, Any],
    gates: FeatureGates,
) -> SchedulerConfiguration:
    """Decode a document, plugin arguments included; only constant defaults are filled in.

    ``body`` is the document's source, for error texts.
    """
    config, unknown = decode_configuration(document.data, _shown(body), catalog, gates)
    strict_errors = (*map(StrictError, document.strict_errors), *unknown)
    profiles = []
    for index, profile in enumerate(config.profiles):
        decoded, more = _decode_plugin_config(f".profiles[{index}]", profile, catalog, gates)
        profiles.append(decoded)
        strict_errors += more
    if strict_errors:
        raise StrictDecodingError(strict_errors)
    return config.model_copy(update={"profiles": tuple(profiles)})


def _shown(body: str | bytes | Mapping[str, Any]) -> str:
    if isinstance(body, bytes):
        return body.decode(errors="replace")
    if isinstance(body, str):
        return body
    return json.dumps(body, separators=(",", ":"), ensure_ascii=False, default=str)


def _decode_plugin_config(
    path: str, profile: ProfileConfiguration, catalog: PluginCatalog, gates: FeatureGates
) -> tuple[ProfileConfiguration, tuple[StrictError, ...]]:
    """Decode arguments by their plugin's model; keep plain data if the plugin has no model."""
    configs: list[PluginConfig] = []
    strict_errors: tuple[StrictError, ...] = ()
    for index, config in enumerate(profile.plugin_config):
        model = catalog.args_model(config.name)
        in_tree = catalog.is_in_tree(config.name)
        if model is not None:
            where = f"decoding {path}.pluginConfig[{index}]"
            hint = "" if in_tree else f"; {describe_args(model)}"
            try:
                args, unknown = decode_args(
                    config.name, model, _with_effect(config, model), catalog, gates
                )
            except ConfigError as error:
                problems = (f"{where}: {problem}{hint}" for problem in error.problems)
                raise ConfigError(*problems) from None
            if unknown:
                inner = StrictDecodingError(unknown)
                outer = f"strict decoding error: decoding args for plugin {config.name}: {inner}"
                strict_errors += (StrictError(f"{where}: {outer}{hint}", inner.remedy),)
            config = config.model_copy(update={"args": args})
        elif config.args and not in_tree and config.name in catalog.names():
            text = (
                f"decoding {path}.pluginConfig[{index}]: plugin {config.name} takes no args; "
                "a plugin has those that a class Args in it describes"
            )
            strict_errors += (StrictError(text),)
        configs.append(config)
    return profile.model_copy(update={"plugin_config": tuple(configs)}), strict_errors


def _with_effect(config: PluginConfig, model: type[PluginArgs]) -> Any:
    """Return the arguments that have an effect, with a warning for each of the others."""
    if not isinstance(config.args, Mapping):
        return config.args
    known = {name: config.args[name] for name in config.args}
    for name, why in model.arguments_without_effect.items():
        if name in known:
            del known[name]
            log.warning("Argument without effect", plugin=config.name, argument=name, why=why)
    return known


def _remedy(config: SchedulerConfiguration) -> str:
    """Return clauses about plugins that v1 no longer has and equal profiles; "" for none."""
    names = Counter(profile.name for profile in config.profiles)
    equal = (f'{n} profiles have schedulerName "{name}"' for name, n in names.items() if n > 1)
    named = {one.name for profile in config.profiles for one in profile.plugin_config}
    named = named.union(*(profile.plugins.enabled_names() for profile in config.profiles))
    removed = sorted(named & validation.REMOVED_PLUGINS)
    successors = (f"instead of {name} {former_names.PLUGINS[name]}" for name in removed)
    return "; ".join((*successors, *equal))


def _warn_of_former_plugins(config: SchedulerConfiguration, catalog: PluginCatalog) -> None:
    """Warn of former plugins where unknown names are no error: arguments, and disabled plugins."""
    for profile in config.profiles:
        disabled = (ref.name for set_ in profile.plugins.sets().values() for ref in set_.disabled)
        names = dict.fromkeys((*(one.name for one in profile.plugin_config), *disabled))
        for name in names:
            if name in former_names.PLUGINS and name not in catalog.names():
                instead = former_names.PLUGINS[name]
                text = "This plugin does not exist any more"
                log.warning(text, profile=profile.name, plugin=name, remedy=instead)


def _warn_of_idle_args(config: SchedulerConfiguration, catalog: PluginCatalog) -> None:
    """Warn of arguments for a plugin that is not there, or that the profile does not enable."""
    for profile in config.profiles:
        enabled = profile.plugins.enabled_names()
        for name in (one.name for one in profile.plugin_config):
            # The defaults bring arguments for plugins of kube-scheduler that a profile disables.
            if name in enabled or catalog.is_in_tree(name) or name in former_names.PLUGINS:
                continue
            remedy = "enable the plugin in this profile"
            if name not in catalog.names():
                similar = former_names.similar_plugin(name, catalog.names())
                remedy = f"did you mean {similar}?" if similar else "no plugin has this name"
            text = "Plugin arguments without effect"
            log.warning(text, profile=profile.name, plugin=name, remedy=remedy)


def _warn_of_idle_fields(config: SchedulerConfiguration) -> None:
    """Warn of fields that are set to another value than kube-scheduler's, and have no effect."""
    default, client = SchedulerConfiguration(), config.client_connection
    if config.parallelism != default.parallelism:
        why = "one thread evaluates all nodes at once, as columns"
        log.warning("Field without effect", field="parallelism", why=why)
    for name in ("content_type", "accept_content_types"):
        if getattr(client, name) not in (getattr(default.client_connection, name), JSON):
            field = f"clientConnection.{names_in_files(type(client))[name]}"
            log.warning("Field without effect", field=field, why="proreus speaks JSON")


def _warn_of_idle_points(config: SchedulerConfiguration, catalog: PluginCatalog) -> None:
    for profile in config.profiles:
        for point, plugins in profile.plugins.sets().items():
            for ref in plugins.enabled:
                model = catalog.args_model(ref.name)
                if model is not None and point in model.points_without_effect:
                    text = "Plugin without effect at an extension point"
                    log.warning(text, profile=profile.name, plugin=ref.name, point=point)
