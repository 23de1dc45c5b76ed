"""Builds a trial of a candidate configuration from the parts of the scheduler that it reads."""

from __future__ import annotations

from msgspec.structs import replace

from proreus.base.errors import ConfigError
from proreus.base.metrics import SchedulerMetrics
from proreus.config.types import SchedulerConfiguration
from proreus.engine.assembly import Assembly
from proreus.engine.environment import Environment
from proreus.engine.profile_set import build_profiles
from proreus.engine.runtime.expansion import expand_all
from proreus.engine.runtime.find_nodes import NodeSearch
from proreus.engine.runtime.registry import Registry
from proreus.framework.plugin import FetchingPlugin
from proreus.insight.shadow.handle import (
    ReadOnlyNominator,
    ShadowHandle,
    ShadowTasks,
    shadow_environment,
)
from proreus.insight.shadow.trial import ShadowLimits, ShadowTrial


def prepare_shadow(
    assembly: Assembly,
    configuration: SchedulerConfiguration,
    registry: Registry,
    limits: ShadowLimits,
) -> ShadowTrial:
    """Build a candidate to be tried next to the configuration in force; raises ``ConfigError``.

    The caller sets it as ``Scheduler.shadow`` once the kinds that its plugins registered are
    synced, and closes it.
    """
    in_force, core = assembly.environment, assembly.core
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
