"""The table of everything that this process counts; read it as a table.

Names, types, labels, buckets and stability are kube-scheduler's; those that differ between versions
are in ``versioned_metrics``. An attribute is named like its metric without ``scheduler_``. A metric
without labels is its one child (``.inc()``), one with labels a ``Family`` (``.labels(...).inc()``),
and the type checker knows which. Families that exist for dashboards only (Go's runtime, its work
queues) are missing: docs/parity.md.
"""

from __future__ import annotations

from proreus.base.kubernetes_version import Change
from proreus.base.metrics.declarations import Declarations, describe
from proreus.base.metrics.families import NewLabel, exponential
from proreus.base.metrics.versioned_metrics import VersionedMetrics

_STABLE = Declarations("scheduler_", "STABLE")
_BETA = Declarations("scheduler_", "BETA")
_ALPHA = Declarations("scheduler_", "ALPHA")
_OF_POD_GROUPS = Declarations("scheduler_", "ALPHA", "pod groups")
_OF_PLACEMENTS = Declarations("scheduler_", "ALPHA", "placements")
_OF_GROUP_PREEMPTION = Declarations("scheduler_", "ALPHA", "group preemption")

_ENTITY = NewLabel("entity", Change.METRICS_OF_1_38)
_PREEMPTOR = NewLabel("preemptor", Change.METRICS_OF_1_38)

_ATTEMPT = exponential(0.001, 2, 15)
_SLI = exponential(0.01, 2, 20)
_POINT = exponential(0.0001, 2, 12)
_PLUGIN = exponential(0.00001, 1.5, 20)
_HINT_LOOKUP = exponential(0.00001, 2, 12)


class SchedulerMetrics(VersionedMetrics):
    """All metrics of one scheduler process; a test makes its own."""

    # ---- attempts

    schedule_attempts_total = _STABLE.counter(
        "Attempts to schedule a pod, by outcome: scheduled, unschedulable (no node, or a "
        "plugin turned the pod down) or error (something went wrong inside).",
        "result",
        "profile",
    )
    scheduling_attempt_duration_seconds = _STABLE.histogram(
        "Seconds that one attempt took: scheduling cycle and binding cycle.",
        _ATTEMPT,
        "result",
        "profile",
    )
    event_handling_duration_seconds = _ALPHA.histogram(
        "Seconds that the cache and the queue took to digest a change in the cluster.",
        _POINT,
        "event",
    )
    pod_scheduling_sli_duration_seconds = _BETA.histogram(
        "Seconds from a pod's first entry into the active queue until it was bound.",
        _SLI,
        "attempts",
    )
    pod_scheduling_attempts = _STABLE.histogram(
        "Attempts that a pod needed until it was bound.", exponential(1, 2, 5)
    )
    pod_scheduled_after_flush_total = _ALPHA.counter(
        "Pods bound after the periodic flush of unschedulable pods had moved them."
    )

    # ---- framework

    framework_extension_point_duration_seconds = _STABLE.histogram(
        "Seconds that all plugins of an extension point took together.",
        _POINT,
        "extension_point",
        "status",
        "profile",
    )
    plugin_evaluation_total = _BETA.counter(
        "Evaluations that a plugin made at an extension point.",
        "plugin",
        "extension_point",
        "profile",
    )
    permit_wait_duration_seconds = _BETA.histogram(
        "Seconds that a pod waited on permit.", _ATTEMPT, "result"
    )
    goroutines = _BETA.gauge(
        "Pieces of work going on now, by operation, e.g. binding.", "operation"
    )

    # ---- queue

    pending_pods = _STABLE.gauge(
        "Pods that wait, by queue: active (to be tried next), backoff (tried and to be tried "
        "again soon), unschedulable (tried, waiting for a change) and gated (not ready); "
        "from 1.37 on also incomplete and pending (pods of pod groups).",
        "queue",
    )
    queue_incoming_pods_total = _STABLE.counter(
        "Entries of pods into a queue, by what brought them there.", "queue", "event"
    )
    inflight_events = _ALPHA.gauge(
        "Events kept for pods that are being scheduled, and those pods (PodPopped).", "event"
    )
    unschedulable_pods = _BETA.gauge(
        "Pods that a plugin keeps from being scheduled; a pod counts for each such plugin.",
        "plugin",
        "profile",
    )
    queueing_hint_execution_duration_seconds = _ALPHA.histogram(
        "Seconds that a plugin took to say whether an event may help a pod.",
        _PLUGIN,
        "plugin",
        "event",
        "hint",
    )
    cache_size = _ALPHA.gauge("Nodes, pods and assumed pods in the cache.", "type")

    # ---- preemption

    preemption_attempts_total = _STABLE.counter("Attempts to preempt pods.")
    preemption_victims = _STABLE.histogram("Victims of one preemption.", exponential(1, 2, 7))
    preemption_goroutines_execution_total = _ALPHA.counter(
        "Removals of a preemption's victims.", "result"
    )

    # ---- batching

    batch_attempts_total = _ALPHA.counter(
        "Attempts to take over what was found out for the pod before, by outcome.",
        "profile",
        "result",
    )
    batch_cache_flushed_total = _ALPHA.counter(
        "Times that what was found out for the pod before was dropped, by reason.",
        "profile",
        "reason",
    )
    get_node_hint_duration_seconds = _ALPHA.histogram(
        "Seconds that the look-up of a node hint took.", _HINT_LOOKUP, "hinted", "profile"
    )
    store_schedule_results_duration_seconds = _ALPHA.histogram(
        "Seconds that keeping an attempt's results for the next pod took.", _HINT_LOOKUP, "profile"
    )

    # ---- api calls

    async_api_call_execution_total = _ALPHA.counter(
        "Asynchronous API calls.", "call_type", "result"
    )
    async_api_call_execution_duration_seconds = _ALPHA.histogram(
        "Seconds that an asynchronous API call took.", _ATTEMPT, "call_type", "result"
    )
    pending_async_api_calls = _ALPHA.gauge(
        "Asynchronous API calls that wait for their turn.", "call_type"
    )

    # ---- resources

    dra_bindingconditions_allocations_total = _ALPHA.counter(
        "Allocations of devices with binding conditions.", "profile", "driver", "status"
    )
    dra_bindingconditions_wait_duration_seconds = _ALPHA.histogram(
        "Seconds waited for a device's binding conditions.",
        exponential(0.1, 2, 14),
        "profile",
        "driver",
        "status",
    )
    volume_binder_cache_requests_total = _ALPHA.counter(
        "Requests to the volume binder's cache.", "operation"
    )
    volume_scheduling_stage_error_total = _ALPHA.counter(
        "Errors of volume scheduling, by stage.", "operation"
    )

    # ---- pod groups

    podgroup_schedule_attempts_total = _OF_POD_GROUPS.counter(
        "Attempts to schedule a pod group, by outcome: scheduled, unschedulable, "
        "waiting_on_preemption or error.",
        "result",
        "profile",
        _ENTITY,
    )
    podgroup_scheduling_attempt_duration_seconds = _OF_POD_GROUPS.histogram(
        "Seconds that one attempt to schedule a pod group took.",
        _ATTEMPT,
        "result",
        "profile",
        _ENTITY,
    )
    podgroup_scheduling_algorithm_duration_seconds = _OF_POD_GROUPS.histogram(
        "Seconds that the search for nodes for a whole pod group took.",
        _ATTEMPT,
        NewLabel("profile", Change.METRICS_OF_1_38),
        _ENTITY,
    )
    generated_placements_total = _OF_PLACEMENTS.counter(
        "Placements that were generated for pod groups.", "profile", _ENTITY
    )
    placement_evaluations_total = _OF_PLACEMENTS.counter(
        "Placements in which a pod group was tried: feasible or infeasible.",
        "result",
        "profile",
        _ENTITY,
    )
    placement_evaluation_duration_seconds = _OF_PLACEMENTS.histogram(
        "Seconds that it took to try a pod group in one placement.",
        exponential(0.001, 2, 15),
        "result",
        "profile",
        _ENTITY,
    )
    workload_preemption_attempts_total = _OF_GROUP_PREEMPTION.counter(
        "Attempts to preempt pods for a pod group, by the status that they ended with.",
        _PREEMPTOR,
        "result",
    )
    workload_preemption_victims = _OF_GROUP_PREEMPTION.histogram(
        "Pods that were chosen as victims of one preemption by a pod group.",
        exponential(1, 2, 11),
        _PREEMPTOR,
    )
    preemption_workload_disruptions = _OF_GROUP_PREEMPTION.histogram(
        "Pod groups that lose pods by one preemption, by what preempts; since Kubernetes 1.38 "
        "units that are evicted, by kind: a whole group, or a pod by itself.",
        exponential(1, 2, 11),
        "preemptor",
        NewLabel("victim", Change.METRICS_OF_1_38),
    )
    preemption_evaluation_duration_seconds = _OF_GROUP_PREEMPTION.histogram(
        "Seconds that it took to find the victims of a preemption.",
        exponential(0.001, 2, 16),
        "preemptor",
        "result",
    )
    preemption_execution_duration_seconds = _OF_GROUP_PREEMPTION.histogram(
        "Seconds that it took to evict the victims of a preemption.",
        exponential(0.001, 2, 16),
        "preemptor",
        "result",
    )
    preemption_pdb_violations_total = _OF_GROUP_PREEMPTION.counter(
        "PodDisruptionBudgets that preemptions violated, by what preempts.", "preemptor"
    )

    def _describe(self) -> None:
        super()._describe()
        for queue in ("active", "backoff", "gated", "unschedulable"):
            self.pending_pods.labels(queue)

    def describe_pod_groups(self) -> None:
        """Add the counts of PodGroups, which exist only with gate GenericWorkload."""
        describe(self, "pod groups")

    def describe_placements(self) -> None:
        """Add the counts of the placements of PodGroups."""
        describe(self, "placements")

    def describe_group_preemption(self) -> None:
        """Add the counts of preemptions by and of pod groups.

        Both the cycle of groups and a plugin that evicts pods of groups ask for it.
        """
        describe(self, "group preemption")
