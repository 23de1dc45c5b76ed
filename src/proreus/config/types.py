"""KubeSchedulerConfiguration v1 as models, after ``kubescheduler.config.k8s.io/v1`` of 1.36.

Defaults that are constants are given here, other defaults in ``defaults``; the limits of values
are in ``validation``. In an instance that ``load`` returned, every default is filled in.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Annotated, Any, Protocol

from pydantic import Field

from proreus.base.feature_gates import FeatureGates
from proreus.base.kubernetes_version import Change
from proreus.config.fields import (
    Base64,
    Boolean,
    ConfigModel,
    Float32,
    Int32,
    Int64,
    PluginArgs,
    Seconds,
    Text,
    names_in_files,
)

API_VERSION = "kubescheduler.config.k8s.io/v1"
KIND = "KubeSchedulerConfiguration"
DEFAULT_SCHEDULER_NAME = "default-scheduler"
ALL_PLUGINS = "*"
"""The name that, in ``disabled``, stands for all plugins of the set."""


class PluginCatalog(Protocol):
    """The plugins that a configuration may name; ``engine.runtime.registry.Registry`` implements
    it.

    ``config`` lies below the plugins, so that their names, argument models and extension points
    reach it through this Protocol alone.
    """

    def names(self) -> Set[str]:
        """Return the names of all plugins."""
        ...

    def is_in_tree(self, name: str) -> bool:
        """Return whether a plugin is one of kube-scheduler's own; False for an unknown name."""
        ...

    def args_model(self, name: str) -> type[PluginArgs] | None:
        """Return the model of a plugin's arguments; None if it takes none or is unknown."""
        ...

    def points(self, name: str) -> Set[str]:
        """Return a plugin's extension points as spelled in the file; empty for an unknown name.

        preEnqueue, queueSort, preFilter, filter, postFilter, preScore, score, reserve, permit,
        preBind, bind, postBind, placementGenerate, placementScore, placementFeasible,
        podGroupPostFilter.
        """
        ...


class PluginRef(ConfigModel):
    """A plugin in a set; weight 0 is unset and counts as 1 where weights count."""

    go_type = "v1.Plugin"

    name: Text = ""
    weight: Int32 = 0


class PluginSet(ConfigModel):
    """The plugins enabled and disabled at an extension point; ``*`` disables all."""

    go_type = "v1.PluginSet"

    enabled: tuple[PluginRef, ...] = ()
    disabled: tuple[PluginRef, ...] = ()

    def disables(self, name: str) -> bool:
        """Return whether a plugin is disabled, by its own name or by ``*``."""
        return any(plugin.name in (name, ALL_PLUGINS) for plugin in self.disabled)


class Plugins(ConfigModel):
    """A set for each extension point; ``multi_point`` enables a plugin at all its points."""

    go_type = "v1.Plugins"

    pre_enqueue: PluginSet = PluginSet()
    queue_sort: PluginSet = PluginSet()
    pre_filter: PluginSet = PluginSet()
    filter: PluginSet = PluginSet()
    post_filter: PluginSet = PluginSet()
    pre_score: PluginSet = PluginSet()
    score: PluginSet = PluginSet()
    reserve: PluginSet = PluginSet()
    permit: PluginSet = PluginSet()
    pre_bind: PluginSet = PluginSet()
    bind: PluginSet = PluginSet()
    post_bind: PluginSet = PluginSet()
    multi_point: PluginSet = PluginSet()
    placement_generate: PluginSet = PluginSet()
    placement_score: PluginSet = PluginSet()
    placement_feasible: PluginSet = PluginSet()
    pod_group_post_filter: PluginSet = PluginSet()

    def sets(self) -> dict[str, PluginSet]:
        """Return all sets by their names in the file, ``multiPoint`` among them."""
        return {alias: getattr(self, name) for name, alias in names_in_files(Plugins).items()}

    def enabled_names(self) -> frozenset[str]:
        """Return the names of all plugins that are enabled anywhere."""
        return frozenset(ref.name for set_ in self.sets().values() for ref in set_.enabled)


class PluginConfig(ConfigModel):
    """The arguments of one plugin.

    After ``load`` ``args`` is a ``PluginArgs``, or plain data as in the file if the plugin has
    no model.
    """

    go_type = "v1.PluginConfig"

    name: Text = ""
    args: Any = None


class ProfileConfiguration(ConfigModel):
    """One profile; ``scheduler_name`` is None only before defaulting."""

    go_type = "v1.KubeSchedulerProfile"

    scheduler_name: Text | None = None
    percentage_of_nodes_to_score: Int32 | None = None
    percentage_of_placements_to_score: Int32 | None = None
    plugins: Plugins = Plugins()
    plugin_config: tuple[PluginConfig, ...] = ()

    @property
    def name(self) -> str:
        """The profile's schedulerName, "" before defaulting."""
        return self.scheduler_name or ""

    def args(self) -> dict[str, Any]:
        """Return the arguments by plugin name."""
        return {config.name: config.args for config in self.plugin_config}


class LeaderElection(ConfigModel):
    """The Lease to hold while scheduling; empty strings and zero durations mean the defaults."""

    go_type = "v1alpha1.LeaderElectionConfiguration"

    leader_elect: Boolean = True
    lease_duration_seconds: Annotated[Seconds, Field(alias="leaseDuration")] = 15.0
    renew_deadline_seconds: Annotated[Seconds, Field(alias="renewDeadline")] = 10.0
    retry_period_seconds: Annotated[Seconds, Field(alias="retryPeriod")] = 2.0
    resource_lock: Text = "leases"
    resource_name: Text = "kube-scheduler"
    resource_namespace: Text = "kube-system"


class ClientConnection(ConfigModel):
    """The connection to the apiserver; ``qps`` and ``burst`` 0 mean the defaults.

    ``qps`` is None only before defaulting.
    """

    go_type = "v1alpha1.ClientConnectionConfiguration"

    kubeconfig: Text = ""
    accept_content_types: Text = ""
    content_type: Text = "application/vnd.kubernetes.protobuf"
    qps: Float32 | None = None
    burst: Int32 = 100


class ExtenderTLSConfig(ConfigModel):
    """TLS settings of an extender; ``*_data`` (base64 in the file) takes precedence over files."""

    go_type = "v1.ExtenderTLSConfig"

    insecure: Boolean = False
    server_name: Text = ""
    cert_file: Text = ""
    key_file: Text = ""
    ca_file: Text = ""
    cert_data: Base64 = b""
    key_data: Base64 = b""
    ca_data: Base64 = b""


class ExtenderManagedResource(ConfigModel):
    """An extended resource that an extender manages."""

    go_type = "v1.ExtenderManagedResource"

    name: Text = ""
    ignored_by_scheduler: Boolean = False


class Extender(ConfigModel):
    """An HTTP extender; an empty verb means that it does not support that call."""

    go_type = "v1.Extender"

    url_prefix: Text = ""
    filter_verb: Text = ""
    preempt_verb: Text = ""
    prioritize_verb: Text = ""
    weight: Int64 = 0
    bind_verb: Text = ""
    enable_https: Annotated[Boolean, Field(alias="enableHTTPS")] = False
    tls_config: ExtenderTLSConfig | None = None
    http_timeout_seconds: Annotated[Seconds, Field(alias="httpTimeout")] = 0.0
    node_cache_capable: Boolean = False
    managed_resources: tuple[ExtenderManagedResource, ...] = ()
    ignorable: Boolean = False


class SchedulerConfiguration(ConfigModel):
    """The whole file; ``percentage_of_nodes_to_score`` 0 means adaptive.

    ``percentage_of_placements_to_score``: likewise; None without TopologyAwareWorkloadScheduling.
    ``enable_contention_profiling`` is None only before defaulting.
    """

    go_type = "v1.KubeSchedulerConfiguration"

    parallelism: Int32 = 16
    leader_election: LeaderElection = LeaderElection()
    client_connection: ClientConnection = ClientConnection()
    enable_profiling: Boolean = True
    enable_contention_profiling: Boolean | None = None
    percentage_of_nodes_to_score: Int32 = 0
    percentage_of_placements_to_score: Int32 | None = None
    pod_initial_backoff_seconds: Int64 = 1
    pod_max_backoff_seconds: Int64 = 10
    profiles: tuple[ProfileConfiguration, ...] = ()
    extenders: tuple[Extender, ...] = ()
    delay_cache_until_active: Boolean = False


_SINCE: Mapping[tuple[type[ConfigModel], str], Change] = {
    (Plugins, "placementFeasible"): Change.PLACEMENTS_CONFIGURED,
    (Plugins, "podGroupPostFilter"): Change.POD_GROUP_ENTITIES,
    (ProfileConfiguration, "percentageOfPlacementsToScore"): Change.PLACEMENTS_CONFIGURED,
    (SchedulerConfiguration, "percentageOfPlacementsToScore"): Change.PLACEMENTS_CONFIGURED,
}
"""The fields that only versions with a change have."""


def is_in_version(model: type[ConfigModel], field: str, gates: FeatureGates) -> bool:
    """Return whether the emulated version has a field, by its name in files."""
    change = _SINCE.get((model, field))
    return change is None or gates.includes(change)
