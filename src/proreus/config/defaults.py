"""Defaults that are not constants.

Profiles get their plugin sets merged over the default ones, and arguments for every enabled
plugin that takes any.
"""

from __future__ import annotations

from typing import TypeVar

from proreus.base.feature_gates import FeatureGates
from proreus.config.decoding import decode_args
from proreus.config.default_plugins import default_plugins, merge
from proreus.config.fields import ConfigModel, PluginArgs
from proreus.config.types import (
    DEFAULT_SCHEDULER_NAME,
    ClientConnection,
    Extender,
    PluginCatalog,
    PluginConfig,
    ProfileConfiguration,
    SchedulerConfiguration,
)

Part = TypeVar("Part", bound=ConfigModel)

DEFAULT_EXTENDER_TIMEOUT_SECONDS = 5.0
DEFAULT_QPS = 50.0
_ELECTION_ZEROS = (
    "lease_duration_seconds",
    "renew_deadline_seconds",
    "retry_period_seconds",
    "resource_lock",
    "resource_name",
    "resource_namespace",
)
_CLIENT_ZEROS = ("content_type", "burst")


def set_defaults(
    config: SchedulerConfiguration,
    catalog: PluginCatalog,
    gates: FeatureGates,
    default_qps: float = DEFAULT_QPS,
) -> SchedulerConfiguration:
    """Return the configuration with all defaults filled in; ``default_qps`` where it states none.

    A stated ``qps`` of 0 is kube-scheduler's default.
    """
    profiles = config.profiles or (ProfileConfiguration(),)
    if len(profiles) == 1 and profiles[0].scheduler_name is None:
        only = profiles[0].model_copy(update={"scheduler_name": DEFAULT_SCHEDULER_NAME})
        profiles = (only,)
    contention = config.enable_contention_profiling
    if contention is None:
        contention = config.enable_profiling
    placements = config.percentage_of_placements_to_score
    if placements is None and gates.enabled("TopologyAwareWorkloadScheduling"):
        placements = 0
    return config.model_copy(
        update={
            "enable_contention_profiling": contention,
            "percentage_of_placements_to_score": placements,
            "leader_election": _without_zeros(config.leader_election, _ELECTION_ZEROS),
            "client_connection": _complete_connection(config.client_connection, default_qps),
            "profiles": tuple(_complete_profile(p, catalog, gates) for p in profiles),
            "extenders": tuple(_complete_extender(extender) for extender in config.extenders),
        }
    )


def _complete_connection(connection: ClientConnection, default_qps: float) -> ClientConnection:
    qps = connection.qps
    if not qps:
        qps = default_qps if qps is None else DEFAULT_QPS
    return _without_zeros(connection, _CLIENT_ZEROS).model_copy(update={"qps": qps})


def _complete_profile(
    profile: ProfileConfiguration, catalog: PluginCatalog, gates: FeatureGates
) -> ProfileConfiguration:
    """Merge the plugin sets; complete the given arguments, then append default ones by name."""
    plugins = merge(default_plugins(gates), profile.plugins)
    configs = [
        config.model_copy(update={"args": config.args.with_defaults(gates)})
        if isinstance(config.args, PluginArgs)
        else config
        for config in profile.plugin_config
    ]
    for name in sorted(plugins.enabled_names() - {config.name for config in configs}):
        model = catalog.args_model(name)
        if model is not None:
            args, _ = decode_args(name, model, {}, catalog, gates)
            configs.append(PluginConfig(name=name, args=args.with_defaults(gates)))
    return profile.model_copy(update={"plugins": plugins, "plugin_config": tuple(configs)})


def _complete_extender(extender: Extender) -> Extender:
    seconds = extender.http_timeout_seconds or DEFAULT_EXTENDER_TIMEOUT_SECONDS
    return extender.model_copy(update={"http_timeout_seconds": seconds})


def _without_zeros(part: Part, names: tuple[str, ...]) -> Part:
    """Replace empty strings and zeros of the named fields by the defaults."""
    defaults = type(part)()
    update = {name: getattr(defaults, name) for name in names if not getattr(part, name)}
    return part.model_copy(update=update)
