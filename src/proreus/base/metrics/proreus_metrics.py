"""The metrics that kube-scheduler does not have: plugins' health, reloads, the event loop.

All are named ``proreus_*``, so that none can be taken for one of kube-scheduler's.
"""

from __future__ import annotations

from proreus.base.metrics.families import exponential
from proreus.base.metrics.process_metrics import ProcessMetrics


class ProreusMetrics(ProcessMetrics):
    """The metrics of any Kubernetes component, and proreus' own."""

    def _describe(self) -> None:
        super()._describe()
        self._describe_plugins()
        self._describe_reloads()
        self._describe_loop()
        self._describe_comparisons()
        self._describe_wake_ups()
        self._describe_kubelet_rejections()
        self._describe_overcommits()
        self._describe_shadow()
        self._describe_dry_runs()
        self._describe_request_window()

    def _describe_request_window(self) -> None:
        self.request_window = self.gauge(
            "proreus_request_window",
            "ALPHA",
            "How many writes to the apiserver may be in flight at present.",
        )
        self.request_window_in_flight = self.gauge(
            "proreus_request_window_in_flight", "ALPHA", "Writes to the apiserver in flight."
        )
        self.request_window_waiting = self.gauge(
            "proreus_request_window_waiting",
            "ALPHA",
            "Writes that wait for their turn; those of priority low are Events.",
            "priority",
        )
        self.request_window_shrinks_total = self.counter(
            "proreus_request_window_shrinks_total",
            "ALPHA",
            "How often the window was made smaller, by reason: rejected (429), unanswered (503, "
            "504, no response), latency.",
            "reason",
        )

    def _describe_plugins(self) -> None:
        self.plugin_failures_total = self.counter(
            "proreus_plugin_failures_total",
            "ALPHA",
            "Failures of plugins: raised (an exception), error (an Error status), "
            "invalid_answer (one that the point does not allow), slow (over the time budget).",
            "plugin",
            "extension_point",
            "reason",
        )
        self.plugin_skipped = self.gauge(
            "proreus_plugin_skipped",
            "ALPHA",
            "Whether an out-of-tree plugin is disabled in its profile for the time being (1), by "
            "--plugin-failure-policy=skip.",
            "plugin",
            "profile",
        )
        self.plugin_file_info = self.gauge(
            "proreus_plugin_file_info",
            "ALPHA",
            "1 for each out-of-tree plugin file in force: SHA-256 of what was loaded, and name "
            "and version of its package, if it is installed.",
            "file",
            "sha256",
            "package",
        )

    def _describe_reloads(self) -> None:
        self.config_reload_total = self.counter(
            "proreus_config_reload_total",
            "ALPHA",
            "Number of times that the configuration and plugins were loaded anew, by result "
            "(success, failure).",
            "result",
        )
        self.config_last_reload_successful = self.gauge(
            "proreus_config_last_reload_successful",
            "ALPHA",
            "Whether the latest reload succeeded (1) or was refused (0); 1 if there was none.",
        ).labels()
        self.config_last_reload_successful.set(1)
        self.config_last_reload_success_seconds = self.gauge(
            "proreus_config_last_reload_success_timestamp_seconds",
            "ALPHA",
            "When the configuration that is in force was loaded, if that was by a reload.",
        ).labels()

    def _describe_loop(self) -> None:
        self.loop_lag_seconds = self.histogram(
            "proreus_loop_lag_seconds",
            "ALPHA",
            "Seconds by which the event loop came late to what was due, looked at 10 times a "
            "second.",
            exponential(0.001, 2, 15),
        ).labels()
        self.event_loop_tasks = self.gauge(
            "proreus_event_loop_tasks", "ALPHA", "asyncio tasks that have not ended."
        )
        self.scheduling_cycle_age = self.gauge(
            "proreus_scheduling_cycle_age_seconds",
            "ALPHA",
            "Seconds since the start of the scheduling cycle that is going on, 0 between cycles.",
        )
        self.loop_blocked_total = self.counter(
            "proreus_loop_blocked_total",
            "ALPHA",
            "Times that the event loop did not turn for longer than --loop-blocked-threshold, by "
            "the plugin that kept it (empty: none).",
            "plugin",
        )

    def _describe_comparisons(self) -> None:
        self.cache_comparisons_total = self.counter(
            "proreus_cache_comparisons_total",
            "ALPHA",
            "Comparisons of the scheduler's state with the apiserver's, by result (success; "
            "failure: something could not be compared).",
            "result",
        )
        self.cache_differences_total = self.counter(
            "proreus_cache_differences_total",
            "ALPHA",
            "Objects whose state differed persistently from the apiserver's and was corrected, by "
            "structure (store, cache, columns, queue).",
            "structure",
        )

    def _describe_wake_ups(self) -> None:
        self.scheduled_after_flush_total = self.counter(
            "proreus_scheduled_after_flush_total",
            "ALPHA",
            "Pods that were bound at the attempt after the periodic flush alone had moved them, by "
            "each plugin that had rejected them: no event woke them.",
            "plugin",
        )

    def _describe_kubelet_rejections(self) -> None:
        self.kubelet_rejections_total = self.counter(
            "proreus_kubelet_rejections_total",
            "ALPHA",
            "Bound pods of a controller that a kubelet did not admit, by its reason.",
            "reason",
        )
        self.node_avoidances_total = self.counter(
            "proreus_node_avoidances_total",
            "ALPHA",
            "Times that a controller's pods began to avoid a node whose kubelet rejected them "
            "repeatedly.",
        ).labels()
        self.avoided_nodes = self.gauge(
            "proreus_avoided_nodes",
            "ALPHA",
            "Pairs of controller and node whose pods avoid the node at present.",
        )

    def _describe_overcommits(self) -> None:
        self.node_overcommits_total = self.counter(
            "proreus_node_overcommits_total",
            "ALPHA",
            "Times that another scheduler's binding over-committed a node with an unstarted pod of "
            "ours.",
        ).labels()
        self.overcommitted_nodes = self.gauge(
            "proreus_overcommitted_nodes",
            "ALPHA",
            "Nodes that another scheduler's binding over-committed and that still are.",
        )
        self.overcommitting_pods_deleted_total = self.counter(
            "proreus_overcommitting_pods_deleted_total",
            "ALPHA",
            "Pods of ours deleted from such nodes, by --delete-overcommitting-pods.",
        ).labels()

    def _describe_shadow(self) -> None:
        self.shadow_pods_total = self.counter(
            "proreus_shadow_pods_total",
            "ALPHA",
            "Pods about which a candidate configuration decided, next to the one in force, by "
            "outcome (same, moved, rejected, accepted, failed).",
            "outcome",
        )
        self.shadow_seconds_total = self.counter(
            "proreus_shadow_seconds_total",
            "ALPHA",
            "Seconds that candidate configurations took to decide.",
        ).labels()
        self.shadow_trials_total = self.counter(
            "proreus_shadow_trials_total",
            "ALPHA",
            "Trials of candidate configurations that have ended, by result (adopted, passed, "
            "dropped, refused).",
            "result",
        )
        self.shadow_running = self.gauge(
            "proreus_shadow_running",
            "ALPHA",
            "Whether a candidate configuration decides in parallel with the one in force (1).",
        ).labels()

    def _describe_dry_runs(self) -> None:
        self.dry_runs_total = self.counter(
            "proreus_dry_runs_total",
            "ALPHA",
            "Dry runs, by result (answered, invalid, refused: too many were under way, conflict: "
            "the nodes changed, timeout, canceled, error).",
            "result",
        )
        self.dry_run_duration_seconds = self.histogram(
            "proreus_dry_run_duration_seconds",
            "ALPHA",
            "Seconds that a dry run took, waiting for its turn included.",
            exponential(0.001, 2, 15),
        ).labels()
        self.dry_runs_under_way = self.gauge(
            "proreus_dry_runs_under_way", "ALPHA", "Dry runs that run or wait for their turn."
        ).labels()
