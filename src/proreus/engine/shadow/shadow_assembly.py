"""Builds a trial of a candidate configuration from the parts of the scheduler that it reads."""

from __future__ import annotations

from msgspec.structs import replace

from proreus.base.errors import ConfigError
from proreus.base.metrics import SchedulerMetrics
from proreus.config.types import SchedulerConfiguration
from proreus.engine.environment import Environment
from proreus.engine.profile_handle import Core
from proreus.engine.profile_set import build_profiles
from proreus.engine.runtime.expansion import expand_all
from proreus.engine.runtime.find_nodes import NodeSearch
from proreus.engine.runtime.registry import Registry
from proreus.engine.shadow.shadow import ShadowLimits, ShadowTrial
from proreus.engine.shadow.shadow_handle import (
    ReadOnlyNominator,
    ShadowHandle,
    ShadowTasks,
    shadow_environment,
)
from proreus.framework.plugin import FetchingPlugin


def prepare_shadow(
    configuration: SchedulerConfiguration,
    registry: Registry,
    in_force: Environment,
    core: Core,
    limits: ShadowLimits,
) -> ShadowTrial:
    """Make the plugins of a candidate; raises ``ConfigError``, and then nothing is left over."""
    _require_no_fetching(configuration, registry, in_force)
    tasks = ShadowTasks()
    failing: list[str] = []
    environment = shadow_environment(
        in_force, SchedulerMetrics(), tasks.spawn, lambda kind, reason, note: failing.append(note)
    )
    search = NodeSearch(ReadOnlyNominator(core.queue.nominator), core.cache.node_order)
    core = replace(core, search=search)
    shared_handle = ShadowHandle("", environment, core)
    profile_set = build_profiles(configuration, registry, environment, core, shared_handle)
    # Closed with the others, which ``handle.shared`` of the configuration in force never is.
    profile_set.handles += (shared_handle,)
    return ShadowTrial(profile_set, core, environment, in_force, tasks, limits, failing)


def _require_no_fetching(
    configuration: SchedulerConfiguration, registry: Registry, environment: Environment
) -> None:
    expanded = expand_all(configuration, registry, environment.feature_gates)
    fetching = {
        name
        for profile in expanded.values()
        for name in profile.plugins
        if issubclass(registry[name], FetchingPlugin)
    }
    if fetching:
        # The pod's own attempt would have to wait for the network twice.
        names = ", ".join(sorted(fetching))
        raise ConfigError(f"plugins in processes of their own cannot run in the shadow: {names}")
