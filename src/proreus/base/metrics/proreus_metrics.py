"""The metrics that kube-scheduler does not have: plugins' health, reloads, the event loop.

All are named ``proreus_*``, so that none can be taken for one of kube-scheduler's.
"""

from __future__ import annotations

from proreus.base.metrics.declarations import Declarations
from proreus.base.metrics.families import exponential
from proreus.base.metrics.process_metrics import ProcessMetrics

_ALPHA = Declarations("proreus_", "ALPHA")


class ProreusMetrics(ProcessMetrics):
    """The metrics of any Kubernetes component, and proreus' own."""

    # ---- request window

    request_window = _ALPHA.computed(
        "How many writes to the apiserver may be in flight at present."
    )
    request_window_in_flight = _ALPHA.computed("Writes to the apiserver in flight.")
    request_window_waiting = _ALPHA.gauge(
        "Writes that wait for their turn; those of priority low are Events.", "priority"
    )
    request_window_shrinks_total = _ALPHA.counter(
        "How often the window was made smaller, by reason: rejected (429), unanswered (503, "
        "504, no response), latency.",
        "reason",
    )

    # ---- plugins

    plugin_failures_total = _ALPHA.counter(
        "Failures of plugins: raised (an exception), error (an Error status), "
        "invalid_answer (one that the point does not allow), slow (over the time budget).",
        "plugin",
        "extension_point",
        "reason",
    )
    plugin_skipped = _ALPHA.gauge(
        "Whether an out-of-tree plugin is disabled in its profile for the time being (1), by "
        "--plugin-failure-policy=skip.",
        "plugin",
        "profile",
    )
    plugin_file_info = _ALPHA.gauge(
        "1 for each out-of-tree plugin file in force: SHA-256 of what was loaded, and name "
        "and version of its package, if it is installed.",
        "file",
        "sha256",
        "package",
    )

    # ---- reloads

    config_reload_total = _ALPHA.counter(
        "Number of times that the configuration and plugins were loaded anew, by result "
        "(success, failure).",
        "result",
    )
    config_last_reload_successful = _ALPHA.gauge(
        "Whether the latest reload succeeded (1) or was refused (0); 1 if there was none."
    )
    config_last_reload_success_timestamp_seconds = _ALPHA.gauge(
        "When the configuration that is in force was loaded, if that was by a reload."
    )

    # ---- loop

    loop_lag_seconds = _ALPHA.histogram(
        "Seconds by which the event loop came late to what was due, looked at 10 times a second.",
        exponential(0.001, 2, 15),
    )
    event_loop_tasks = _ALPHA.computed("asyncio tasks that have not ended.")
    scheduling_cycle_age_seconds = _ALPHA.computed(
        "Seconds since the start of the scheduling cycle that is going on, 0 between cycles."
    )
    loop_blocked_total = _ALPHA.counter(
        "Times that the event loop did not turn for longer than --loop-blocked-threshold, by "
        "the plugin that kept it (empty: none).",
        "plugin",
    )

    # ---- comparisons

    cache_comparisons_total = _ALPHA.counter(
        "Comparisons of the scheduler's state with the apiserver's, by result (success; "
        "failure: something could not be compared).",
        "result",
    )
    cache_differences_total = _ALPHA.counter(
        "Objects whose state differed persistently from the apiserver's and was corrected, by "
        "structure (store, cache, columns, queue).",
        "structure",
    )

    # ---- wake ups

    scheduled_after_flush_total = _ALPHA.counter(
        "Pods that were bound at the attempt after the periodic flush alone had moved them, by "
        "each plugin that had rejected them: no event woke them.",
        "plugin",
    )

    # ---- kubelet rejections

    kubelet_rejections_total = _ALPHA.counter(
        "Bound pods of a controller that a kubelet did not admit, by its reason.", "reason"
    )
    node_avoidances_total = _ALPHA.counter(
        "Times that a controller's pods began to avoid a node whose kubelet rejected them "
        "repeatedly."
    )
    avoided_nodes = _ALPHA.computed(
        "Pairs of controller and node whose pods avoid the node at present."
    )

    # ---- overcommits

    node_overcommits_total = _ALPHA.counter(
        "Times that another scheduler's binding over-committed a node with an unstarted pod of "
        "ours."
    )
    overcommitted_nodes = _ALPHA.computed(
        "Nodes that another scheduler's binding over-committed and that still are."
    )
    overcommitting_pods_deleted_total = _ALPHA.counter(
        "Pods of ours deleted from such nodes, by --delete-overcommitting-pods."
    )

    # ---- shadow

    shadow_pods_total = _ALPHA.counter(
        "Pods about which a candidate configuration decided, next to the one in force, by "
        "outcome (same, moved, rejected, accepted, failed).",
        "outcome",
    )
    shadow_seconds_total = _ALPHA.counter("Seconds that candidate configurations took to decide.")
    shadow_trials_total = _ALPHA.counter(
        "Trials of candidate configurations that have ended, by result (adopted, passed, "
        "dropped, refused).",
        "result",
    )
    shadow_running = _ALPHA.gauge(
        "Whether a candidate configuration decides in parallel with the one in force (1)."
    )

    # ---- dry runs

    dry_runs_total = _ALPHA.counter(
        "Dry runs, by result (answered, invalid, refused: too many were under way, conflict: "
        "the nodes changed, timeout, canceled, error).",
        "result",
    )
    dry_run_duration_seconds = _ALPHA.histogram(
        "Seconds that a dry run took, waiting for its turn included.", exponential(0.001, 2, 15)
    )
    dry_runs_under_way = _ALPHA.gauge("Dry runs that run or wait for their turn.")

    def _describe(self) -> None:
        super()._describe()
        self.config_last_reload_successful.set(1)
        # A series that begins with its first event shows Prometheus no increase.
        for structure in ("store", "cache", "columns", "queue"):
            self.cache_differences_total.labels(structure)
        for result in ("success", "failure"):
            self.cache_comparisons_total.labels(result)
            self.config_reload_total.labels(result)
