"""The table of everything that this process counts; read it as a table.

Names, types, labels, buckets and stability are kube-scheduler's; those that differ between versions
are in ``versioned_metrics``. An attribute is named like its metric without ``scheduler_``. A metric
without labels is its one child (``.inc()``), one with labels a ``Family`` (``.labels(...).inc()``),
and the type checker knows which. Families that exist for dashboards only (Go's runtime, its work
queues) are missing: docs/parity.md.
"""

from __future__ import annotations

from proreus.base.metrics.families import exponential
from proreus.base.metrics.versioned_metrics import VersionedMetrics

_ATTEMPT = exponential(0.001, 2, 15)
_SLI = exponential(0.01, 2, 20)
_POINT = exponential(0.0001, 2, 12)
_PLUGIN = exponential(0.00001, 1.5, 20)
_HINT_LOOKUP = exponential(0.00001, 2, 12)


class SchedulerMetrics(VersionedMetrics):
    """All metrics of one scheduler process; a test makes its own."""

    def _describe(self) -> None:
        super()._describe()
        self._describe_attempts()
        self._describe_framework()
        self._describe_queue()
        self._describe_preemption()
        self._describe_batching()
        self._describe_api_calls()
        self._describe_resources()

    def _describe_attempts(self) -> None:
        self.schedule_attempts_total = self.counter(
            "scheduler_schedule_attempts_total",
            "STABLE",
            "Attempts to schedule a pod, by outcome: scheduled, unschedulable (no node, or a "
            "plugin turned the pod down) or error (something went wrong inside).",
            "result",
            "profile",
        )
        self.scheduling_attempt_duration_seconds = self.histogram(
            "scheduler_scheduling_attempt_duration_seconds",
            "STABLE",
            "Seconds that one attempt took: scheduling cycle and binding cycle.",
            _ATTEMPT,
            "result",
            "profile",
        )
        self.event_handling_duration_seconds = self.histogram(
            "scheduler_event_handling_duration_seconds",
            "ALPHA",
            "Seconds that the cache and the queue took to digest a change in the cluster.",
            _POINT,
            "event",
        )
        self.pod_scheduling_sli_duration_seconds = self.histogram(
            "scheduler_pod_scheduling_sli_duration_seconds",
            "BETA",
            "Seconds from a pod's first entry into the active queue until it was bound.",
            _SLI,
            "attempts",
        )
        self.pod_scheduling_attempts = self.histogram(
            "scheduler_pod_scheduling_attempts",
            "STABLE",
            "Attempts that a pod needed until it was bound.",
            exponential(1, 2, 5),
        ).labels()
        self.pod_scheduled_after_flush_total = self.counter(
            "scheduler_pod_scheduled_after_flush_total",
            "ALPHA",
            "Pods bound after the periodic flush of unschedulable pods had moved them.",
        ).labels()
        self._counts_group_preemption = False

    def describe_pod_groups(self) -> None:
        """Add the counts of PodGroups, which exist only with gate GenericWorkload."""
        self.podgroup_schedule_attempts_total = self.counter(
            "scheduler_podgroup_schedule_attempts_total",
            "ALPHA",
            "Attempts to schedule a pod group, by outcome: scheduled, unschedulable, "
            "waiting_on_preemption or error.",
            "result",
            "profile",
        )
        self.podgroup_scheduling_attempt_duration_seconds = self.histogram(
            "scheduler_podgroup_scheduling_attempt_duration_seconds",
            "ALPHA",
            "Seconds that one attempt to schedule a pod group took.",
            _ATTEMPT,
            "result",
            "profile",
        )
        self.podgroup_scheduling_algorithm_duration_seconds = self.histogram(
            "scheduler_podgroup_scheduling_algorithm_duration_seconds",
            "ALPHA",
            "Seconds that the search for nodes for a whole pod group took.",
            _ATTEMPT,
        ).labels()

    def describe_placements(self) -> None:
        """Add the counts of the placements of PodGroups."""
        self.generated_placements_total = self.counter(
            "scheduler_generated_placements_total",
            "ALPHA",
            "Placements that were generated for pod groups.",
            "profile",
        )
        self.placement_evaluations_total = self.counter(
            "scheduler_placement_evaluations_total",
            "ALPHA",
            "Placements in which a pod group was tried: feasible or infeasible.",
            "result",
            "profile",
        )
        self.placement_evaluation_duration_seconds = self.histogram(
            "scheduler_placement_evaluation_duration_seconds",
            "ALPHA",
            "Seconds that it took to try a pod group in one placement.",
            exponential(0.001, 2, 15),
            "result",
            "profile",
        )

    def describe_group_preemption(self) -> None:
        """Add the counts of preemptions by and of pod groups.

        Both the cycle of groups and a plugin that evicts pods of groups ask for it.
        """
        if self._counts_group_preemption:
            return
        self._counts_group_preemption = True
        self.workload_preemption_attempts_total = self.counter(
            "scheduler_workload_preemption_attempts_total",
            "ALPHA",
            "Attempts to preempt pods for a pod group, by the status that they ended with.",
            "result",
        )
        self.workload_preemption_victims = self.histogram(
            "scheduler_workload_preemption_victims",
            "ALPHA",
            "Pods that were chosen as victims of one preemption by a pod group.",
            exponential(1, 2, 11),
        ).labels()
        self.preemption_workload_disruptions = self.histogram(
            "scheduler_preemption_workload_disruptions",
            "ALPHA",
            "Pod groups that lose pods by one preemption, by what preempts.",
            exponential(1, 2, 11),
            "preemptor",
        )
        self.preemption_evaluation_duration_seconds = self.histogram(
            "scheduler_preemption_evaluation_duration_seconds",
            "ALPHA",
            "Seconds that it took to find the victims of a preemption.",
            exponential(0.001, 2, 16),
            "preemptor",
            "result",
        )
        self.preemption_execution_duration_seconds = self.histogram(
            "scheduler_preemption_execution_duration_seconds",
            "ALPHA",
            "Seconds that it took to evict the victims of a preemption.",
            exponential(0.001, 2, 16),
            "preemptor",
            "result",
        )
        self.preemption_pdb_violations_total = self.counter(
            "scheduler_preemption_pdb_violations_total",
            "ALPHA",
            "PodDisruptionBudgets that preemptions violated, by what preempts.",
            "preemptor",
        )

    def _describe_framework(self) -> None:
        self.framework_extension_point_duration_seconds = self.histogram(
            "scheduler_framework_extension_point_duration_seconds",
            "STABLE",
            "Seconds that all plugins of an extension point took together.",
            _POINT,
            "extension_point",
            "status",
            "profile",
        )
        self.plugin_evaluation_total = self.counter(
            "scheduler_plugin_evaluation_total",
            "BETA",
            "Evaluations that a plugin made at an extension point.",
            "plugin",
            "extension_point",
            "profile",
        )
        self.permit_wait_duration_seconds = self.histogram(
            "scheduler_permit_wait_duration_seconds",
            "BETA",
            "Seconds that a pod waited on permit.",
            _ATTEMPT,
            "result",
        )
        self.goroutines = self.gauge(
            "scheduler_goroutines",
            "BETA",
            "Pieces of work going on now, by operation, e.g. binding.",
            "operation",
        )

    def _describe_queue(self) -> None:
        self.pending_pods = self.gauge(
            "scheduler_pending_pods",
            "STABLE",
            "Pods that wait, by queue: active (to be tried next), backoff (tried and to be tried "
            "again soon), unschedulable (tried, waiting for a change) and gated (not ready); "
            "from 1.37 on also incomplete and pending (pods of pod groups).",
            "queue",
        )
        for queue in ("active", "backoff", "gated", "unschedulable"):
            self.pending_pods.labels(queue)
        self.queue_incoming_pods_total = self.counter(
            "scheduler_queue_incoming_pods_total",
            "STABLE",
            "Entries of pods into a queue, by what brought them there.",
            "queue",
            "event",
        )
        self.inflight_events = self.gauge(
            "scheduler_inflight_events",
            "ALPHA",
            "Events kept for pods that are being scheduled, and those pods (PodPopped).",
            "event",
        )
        self.unschedulable_pods = self.gauge(
            "scheduler_unschedulable_pods",
            "BETA",
            "Pods that a plugin keeps from being scheduled; a pod counts for each such plugin.",
            "plugin",
            "profile",
        )
        self.queueing_hint_execution_duration_seconds = self.histogram(
            "scheduler_queueing_hint_execution_duration_seconds",
            "ALPHA",
            "Seconds that a plugin took to say whether an event may help a pod.",
            _PLUGIN,
            "plugin",
            "event",
            "hint",
        )
        self.cache_size = self.gauge(
            "scheduler_cache_size",
            "ALPHA",
            "Nodes, pods and assumed pods in the cache.",
            "type",
        )

    def _describe_preemption(self) -> None:
        self.preemption_attempts_total = self.counter(
            "scheduler_preemption_attempts_total", "STABLE", "Attempts to preempt pods."
        ).labels()
        self.preemption_victims = self.histogram(
            "scheduler_preemption_victims",
            "STABLE",
            "Victims of one preemption.",
            exponential(1, 2, 7),
        ).labels()
        self.preemption_goroutines_execution_total = self.counter(
            "scheduler_preemption_goroutines_execution_total",
            "ALPHA",
            "Removals of a preemption's victims.",
            "result",
        )

    def _describe_batching(self) -> None:
        self.batch_attempts_total = self.counter(
            "scheduler_batch_attempts_total",
            "ALPHA",
            "Attempts to take over what was found out for the pod before, by outcome.",
            "profile",
            "result",
        )
        self.batch_cache_flushed_total = self.counter(
            "scheduler_batch_cache_flushed_total",
            "ALPHA",
            "Times that what was found out for the pod before was dropped, by reason.",
            "profile",
            "reason",
        )
        self.get_node_hint_duration_seconds = self.histogram(
            "scheduler_get_node_hint_duration_seconds",
            "ALPHA",
            "Seconds that the look-up of a node hint took.",
            _HINT_LOOKUP,
            "hinted",
            "profile",
        )
        self.store_schedule_results_duration_seconds = self.histogram(
            "scheduler_store_schedule_results_duration_seconds",
            "ALPHA",
            "Seconds that keeping an attempt's results for the next pod took.",
            _HINT_LOOKUP,
            "profile",
        )

    def _describe_api_calls(self) -> None:
        self.async_api_call_execution_total = self.counter(
            "scheduler_async_api_call_execution_total",
            "ALPHA",
            "Asynchronous API calls.",
            "call_type",
            "result",
        )
        self.async_api_call_execution_duration_seconds = self.histogram(
            "scheduler_async_api_call_execution_duration_seconds",
            "ALPHA",
            "Seconds that an asynchronous API call took.",
            _ATTEMPT,
            "call_type",
            "result",
        )
        self.pending_async_api_calls = self.gauge(
            "scheduler_pending_async_api_calls",
            "ALPHA",
            "Asynchronous API calls that wait for their turn.",
            "call_type",
        )

    def _describe_resources(self) -> None:
        self.dra_bindingconditions_allocations_total = self.counter(
            "scheduler_dra_bindingconditions_allocations_total",
            "ALPHA",
            "Allocations of devices with binding conditions.",
            "profile",
            "driver",
            "status",
        )
        self.dra_bindingconditions_wait_duration_seconds = self.histogram(
            "scheduler_dra_bindingconditions_wait_duration_seconds",
            "ALPHA",
            "Seconds waited for a device's binding conditions.",
            exponential(0.1, 2, 14),
            "profile",
            "driver",
            "status",
        )
        self.volume_binder_cache_requests_total = self.counter(
            "scheduler_volume_binder_cache_requests_total",
            "ALPHA",
            "Requests to the volume binder's cache.",
            "operation",
        )
        self.volume_scheduling_stage_error_total = self.counter(
            "scheduler_volume_scheduling_stage_error_total",
            "ALPHA",
            "Errors of volume scheduling, by stage.",
            "operation",
        )
