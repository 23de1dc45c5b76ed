"""Validates a complete configuration, with kube-scheduler's order and texts of errors.

``engine.runtime.expansion`` reports the errors that show only when a profile is built (unknown
plugins, MultiPoint conflicts).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from proreus.base.feature_gates import FeatureGates
from proreus.base.kubernetes_version import Change
from proreus.config.durations import format_duration
from proreus.config.field_errors import child, duplicate, forbidden, invalid, item, required
from proreus.config.fields import PluginArgs
from proreus.config.names import is_extended_resource, label_key_problems
from proreus.config.types import (
    API_VERSION,
    ClientConnection,
    Extender,
    LeaderElection,
    PluginSet,
    ProfileConfiguration,
    SchedulerConfiguration,
)

REMOVED_PLUGINS = frozenset({"AzureDiskLimits", "CinderLimits", "EBSLimits", "GCEPDLimits"})
"""Plugins that v1 of the configuration no longer supports."""

_CHECKED_FOR_REMOVED_SINCE = {
    "placementGenerate": Change.PLACEMENTS_CONFIGURED,
    "placementScore": Change.PLACEMENTS_CONFIGURED,
}


def problems(config: SchedulerConfiguration, gates: FeatureGates) -> Iterator[str]:
    """Yield all errors of a complete configuration."""
    yield from _client_connection(config.client_connection)
    yield from _leader_election(config.leader_election)
    if config.parallelism <= 0:
        detail = "should be an integer value greater than zero"
        yield invalid("parallelism", config.parallelism, detail)
    yield from _profiles(config.profiles, gates)
    yield from _percentage("percentageOfNodesToScore", config.percentage_of_nodes_to_score)
    yield from _percentage_of_placements("", config.percentage_of_placements_to_score, gates)
    initial, longest = config.pod_initial_backoff_seconds, config.pod_max_backoff_seconds
    if initial <= 0:
        yield invalid("podInitialBackoffSeconds", initial, "must be greater than 0")
    if longest < initial:
        detail = "must be greater than or equal to PodInitialBackoffSeconds"
        yield invalid("podMaxBackoffSeconds", longest, detail)
    yield from _extenders(config.extenders)


def _client_connection(client: ClientConnection) -> Iterator[str]:
    if client.burst < 0:
        yield invalid("clientConnection.burst", client.burst, "must be non-negative")


def _leader_election(election: LeaderElection) -> Iterator[str]:
    """Check also for empty values: defaulting replaced them, but flags may set them again."""
    if not election.leader_elect:
        return
    for name, seconds in (
        ("leaseDuration", election.lease_duration_seconds),
        ("renewDeadline", election.renew_deadline_seconds),
        ("retryPeriod", election.retry_period_seconds),
    ):
        if seconds <= 0:
            where = child("leaderElection", name)
            yield invalid(where, format_duration(seconds), "must be greater than zero")
    if election.lease_duration_seconds <= election.renew_deadline_seconds:
        # The value shown is the deadline instead of the duration, as in kube-scheduler.
        shown = format_duration(election.renew_deadline_seconds)
        yield invalid("leaderElection.leaseDuration", shown, "must be greater than `RenewDeadline`")
    for name, text in (
        ("resourceLock", election.resource_lock),
        ("resourceNamespace", election.resource_namespace),
        ("resourceName", election.resource_name),
    ):
        if not text:
            yield required(child("leaderElection", name))
    if election.resource_lock != "leases":
        detail = 'resourceLock value must be "leases"'
        yield invalid("leaderElection.resourceLock", election.resource_lock, detail)


def _profiles(profiles: tuple[ProfileConfiguration, ...], gates: FeatureGates) -> Iterator[str]:
    seen: set[str] = set()
    for index, profile in enumerate(profiles):
        path = item("profiles", index)
        if not profile.name:
            yield required(child(path, "schedulerName"))
        percentage = profile.percentage_of_nodes_to_score
        yield from _percentage(child(path, "percentageOfNodesToScore"), percentage)
        share = profile.percentage_of_placements_to_score
        yield from _percentage_of_placements(path, share, gates)
        yield from _removed_plugins(path, profile, gates)
        yield from _plugin_config(path, profile, gates)
        if profile.name in seen:
            # The value is a path, of which Go's JSON shows nothing.
            yield duplicate(child(path, "schedulerName"), {})
        seen.add(profile.name)
    yield from _queue_sort(profiles)


def _percentage(path: str, percentage: int | None) -> Iterator[str]:
    if percentage is not None and not 0 <= percentage <= 100:
        yield invalid(path, percentage, "not in valid range [0-100]")


def _percentage_of_placements(
    path: str, percentage: int | None, gates: FeatureGates
) -> Iterator[str]:
    where, gate = child(path, "percentageOfPlacementsToScore"), "TopologyAwareWorkloadScheduling"
    if percentage is not None and not gates.enabled(gate):
        detail = f"percentageOfPlacementsToScore requires {gate} feature gate to be enabled"
        yield forbidden(where, detail)
    else:
        yield from _percentage(where, percentage)


def _removed_plugins(
    path: str, profile: ProfileConfiguration, gates: FeatureGates
) -> Iterator[str]:
    for name, set_ in profile.plugins.sets().items():
        since = _CHECKED_FOR_REMOVED_SINCE.get(name)
        if name == "multiPoint" or (since is not None and not gates.includes(since)):
            continue
        for index, ref in enumerate(set_.enabled):
            if ref.name in REMOVED_PLUGINS:
                yield _removed(child(path, "plugins", name, item("enabled", index)), ref.name)


def _removed(path: str, plugin: str) -> str:
    detail = f'was invalid in version "v1" (KubeSchedulerConfiguration is version "{API_VERSION}")'
    return invalid(path, plugin, detail)


def _plugin_config(path: str, profile: ProfileConfiguration, gates: FeatureGates) -> Iterator[str]:
    seen: set[str] = set()
    for index, config in enumerate(profile.plugin_config):
        where = child(path, item("pluginConfig", index))
        if config.name in seen:
            yield duplicate(where, config.name)
        seen.add(config.name)
        if config.name in REMOVED_PLUGINS:
            yield _removed(where, config.name)
        elif isinstance(config.args, PluginArgs) and not config.args.checked_at_construction:
            yield from config.args.problems(child(where, "args"), gates)


def _queue_sort(profiles: tuple[ProfileConfiguration, ...]) -> Iterator[str]:
    """Check that all profiles agree on the queue sort plugin, since they share one queue."""
    first = profiles[0].plugins.queue_sort
    if len(first.enabled) > 1:
        yield invalid(
            "profiles[0].plugins.queueSort.Enabled",
            len(first.enabled),
            "only one queue sort plugin can be enabled",
        )
    # "" if MultiPoint enables the plugin: then kube-scheduler compares args without a name.
    name = first.enabled[0].name if first.enabled else ""
    args = profiles[0].args().get(name) if name else None
    for index, profile in enumerate(profiles[1:], start=1):
        path, own = item("profiles", index), profile.plugins.queue_sort
        if own != first:
            where = child(path, "plugins", "queueSort")
            yield invalid(where, _in_go(own), "must be the same for all profiles")
        for config in profile.plugin_config:
            if config.name == name and config.args != args:
                where = child(path, "pluginConfig", "args")
                yield invalid(
                    where, str(config.args), "queueSort must be the same for all profiles"
                )


def _in_go(set_: PluginSet) -> dict[str, Any]:
    """Return a set as Go prints the struct."""
    return {
        name: [{"Name": ref.name, "Weight": ref.weight} for ref in refs] or None
        for name, refs in (("Enabled", set_.enabled), ("Disabled", set_.disabled))
    }


def _extenders(extenders: tuple[Extender, ...]) -> Iterator[str]:
    managed: set[str] = set()
    for index, extender in enumerate(extenders):
        path = item("extenders", index)
        if extender.prioritize_verb and extender.weight <= 0:
            detail = "must have a positive weight applied to it"
            yield invalid(child(path, "weight"), extender.weight, detail)
        for j, resource in enumerate(extender.managed_resources):
            where = child(path, item("managedResources", j), "name")
            yield from _extended_resource(where, resource.name)
            if resource.name in managed:
                yield invalid(where, resource.name, "duplicate extender managed resource name")
            managed.add(resource.name)
    binders = sum(1 for extender in extenders if extender.bind_verb)
    if binders > 1:
        found = f"found {binders} extenders implementing bind"
        yield invalid("extenders", found, "only one extender can implement bind")


def _extended_resource(path: str, name: str) -> Iterator[str]:
    problems = tuple(label_key_problems(path, name))
    yield from problems
    if not problems and not is_extended_resource(name):
        yield invalid(path, name, "is an invalid extended resource name")
