"""The options of ``proreus run``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field

from proreus.base.feature_gates import FeatureGates
from proreus.base.kubernetes_version import DEFAULT_VERSION
from proreus.base.logs import Format
from proreus.engine.guards.avoided_nodes import AvoidanceRules
from proreus.engine.runtime.plugin_health import FailureRules
from proreus.insight.decisions.retention import DEFAULT_BUDGET_BYTES
from proreus.process.loading.load import PluginSources
from proreus.server.options import ServingOptions


class ShadowOptions(Struct, frozen=True):
    """A candidate that is tried in parallel with the one in force.

    ``config``: its file; "" for that of the process. ``plugin_folders``: instead of those of
    ``--plugin-dir``; () for the same. ``pods``, ``duration_seconds``: what ends a trial; 0: not
    that. ``sample``: the share of pods. ``adopt``: whether it comes into force if it passes.
    ``max_differences``: the share of pods that it may decide about differently.
    """

    config: str = ""
    plugin_folders: tuple[str, ...] = ()
    pods: int = 1000
    duration_seconds: float = 600.0
    sample: float = 0.1
    adopt: bool = False
    max_differences: float = 0.0


class RunOptions(Struct, frozen=True):
    """The checked flags of ``proreus run``; ``process/cli/run_flags.txt`` explains each.

    ``loop_blocked_threshold_seconds``: 0 = do not report blocking calls.
    ``cycle_stuck_threshold_seconds``: 0 = wait for a scheduling cycle for ever.
    ``cache_compare_interval_seconds``: 0 = compare the cache with the apiserver on SIGUSR2 only.
    ``plugin_blocked_exit_seconds``: how long a plugin may block the event loop, 0 = for ever;
    ``blocked_plugins_file``: where those that did are noted, "" for the default place.
    ``follow_files``: reload when the configuration or a plugin file changes; SIGHUP always does.

    ``gate_settings``: the feature gates as given. ``emulates_given_version``: the version of
    ``feature_gates`` is a flag's, not a default.

    ``kube_api_qps``, ``kube_api_burst``: None when not given. ``leader_election``: the values that
    were given on the command line, by field of ``config.types.LeaderElection``; they override the
    file. ``flags``: every flag as text, for /flagz. ``assumed_pod_expiration_seconds``: None for
    never. ``version`` is the reported git version without its v. ``plugin_endpoints``: addresses of
    plugins in processes of their own; ``plugin_slots``: names of plugins that may register later.
    ``shadow``: None without a candidate. ``record_arrivals``: the file to record in, "" for none.
    ``decision_record_bytes``: 0 = record no decisions. ``dry_runs``: whether they are answered.
    ``dashboard``: whether it is served; ``dashboard_address``: where also without authentication,
    None for nowhere.
    """

    config: str = ""
    write_config_to: str = ""
    master: str = ""
    kubeconfig: str = ""
    profiling: bool = True
    kube_api_qps: float | None = None
    kube_api_burst: int | None = None
    max_unschedulable_seconds: float = 300.0
    assumed_pod_expiration_seconds: float | None = None
    leader_election: Mapping[str, Any] = field(default_factory=dict)
    serving: ServingOptions = field(default_factory=ServingOptions)
    feature_gates: FeatureGates = field(default_factory=FeatureGates)
    gate_settings: tuple[str, ...] = ()
    emulates_given_version: bool = False
    disabled_metrics: tuple[str, ...] = ()
    show_hidden_metrics: bool = False
    allow_metric_labels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    verbosity: int = 0
    vmodule: str = ""
    logging_format: Format = "text"
    flags: Mapping[str, str] = field(default_factory=dict)
    flags_without_effect: tuple[str, ...] = ()
    version: str = f"{DEFAULT_VERSION}.0"
    plugins: PluginSources = field(default_factory=PluginSources)
    plugin_rules: FailureRules = field(default_factory=FailureRules)
    loop_blocked_threshold_seconds: float = 0.25
    cycle_stuck_threshold_seconds: float = 60.0
    cache_compare_interval_seconds: float = 300.0
    plugin_blocked_exit_seconds: float = 15.0
    blocked_plugins_file: str = ""
    plugin_endpoints: tuple[str, ...] = ()
    plugin_slots: tuple[str, ...] = ()
    follow_files: bool = True
    avoidance_rules: AvoidanceRules = field(default_factory=AvoidanceRules)
    delete_overcommitting_pods: bool = False
    shadow: ShadowOptions | None = None
    record_arrivals: str = ""
    decision_record_bytes: int = DEFAULT_BUDGET_BYTES
    dry_runs: bool = False
    dashboard: bool = False
    dashboard_address: tuple[str, int] | None = None
