"""The metrics that differ between the versions of kube-scheduler that this process can be.

``emulate`` describes those of one version; families that a version does not have can be counted in
and are not exposed, so that no caller has to ask. The version may be known only after the first
requests to the apiserver, when the other metrics are in use already.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from proreus.base.kubernetes_version import DEFAULT_VERSION, Change, KubernetesVersion
from proreus.base.metrics.declarations import Declarations, describe
from proreus.base.metrics.families import MetricsRegistry, NewLabel, Stability, exponential
from proreus.base.metrics.proreus_metrics import ProreusMetrics

_SINCE_1_37 = Declarations("scheduler_", "ALPHA", "1.37")
_SINCE_1_38 = Declarations("scheduler_", "ALPHA", "1.38")
_INFORMERS = Declarations("", "ALPHA", "1.37")

_ENTITY = NewLabel("entity", Change.METRICS_OF_1_38, before="type")

_ATTEMPT = exponential(0.001, 2, 15)
_PLUGIN = exponential(0.00001, 1.5, 20)
_RESCORE = exponential(0.00001, 2, 12)
_SLI = exponential(0.01, 2, 20)
_INFORMER = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_INFORMER_LABELS = ("name", "group", "version", "resource")


class EntityTypes(dict[str, str]):
    """The label values of types of entities; a type that is not there is its own value."""

    def __missing__(self, type_: str) -> str:
        return type_


class VersionedMetrics(ProreusMetrics):
    """The metrics of a version. ``show_hidden`` exposes metrics that it hides as deprecated."""

    queued_entities = _SINCE_1_37.computed(
        "What waits to be scheduled, by queue: pods, and pod groups, whose pods are not counted "
        "one by one.",
        "queue",
        _ENTITY,
    )
    queue_incoming_entities_total = _SINCE_1_37.counter(
        "Entries of pods and pod groups into a queue, by what brought them there, unless it was "
        "decided before that they go there.",
        "queue",
        "event",
        _ENTITY,
    )
    pre_queueing_hint_evaluations_total = _SINCE_1_37.counter(
        "Times that a plugin named the pods which an event concerns: all_pods, narrowed or "
        "prequeueing_hint_fn_error.",
        "plugin",
        "result",
    )
    batch_rescore_attempts_total = _SINCE_1_37.counter(
        "Times that the node of the pod before was scored again for the next pod.", "profile"
    )
    batch_rescore_duration_seconds = _SINCE_1_37.histogram(
        "Seconds that scoring the node of the pod before again took.", _RESCORE, "profile"
    )
    store_schedule_results_total = _SINCE_1_38.counter(
        "Results of a scheduling attempt that were kept for the next pod, or why not.",
        "profile",
        "result",
    )
    informer_queued_items = _INFORMERS.gauge(
        "Events of the apiserver that an informer has received and not handled yet.",
        *_INFORMER_LABELS,
    )
    informer_processing_latency_seconds = _INFORMERS.histogram(
        "Seconds that an informer took to handle an event.", _INFORMER, *_INFORMER_LABELS
    )
    informer_store_resource_version = _INFORMERS.gauge(
        "The last 15 digits of the resourceVersion that an informer's store is at.",
        *_INFORMER_LABELS,
    )

    def __init__(
        self,
        disabled: Iterable[str] = (),
        allow_labels: Mapping[str, Iterable[str]] | None = None,
        version: KubernetesVersion = DEFAULT_VERSION,
        show_hidden: bool = False,
    ) -> None:
        self._show_hidden = show_hidden
        self._version = version
        self._of_version: frozenset[str] = frozenset()
        super().__init__(disabled, allow_labels)
        self.emulate(version)

    def has(self, change: Change) -> bool:
        """Return whether the version has a change."""
        return self._version.includes(change)

    def emulate(self, version: KubernetesVersion) -> None:
        """Expose the metrics of a version; to be called before a scheduler counts in them."""
        self._version = version
        for name in self._of_version:
            del self._families[name]
        before = frozenset(self._families)
        self._new = self.has(Change.METRICS_OF_1_37)
        self._hidden = 0
        self._describe_stability()
        self._describe_deprecated()
        self.counts_entities = self._new
        """Whether the version counts queued items by entity."""
        self.counts_trees = self.has(Change.METRICS_OF_1_38)
        """Whether the version counts CompositePodGroups as such, and their placements."""
        as_groups = {} if self.counts_trees else {"compositepodgroup": "podgroup"}
        self.entity_types = EntityTypes(as_groups)
        """The types under which the version counts entities."""
        describe(self, "1.37", self if self._new else MetricsRegistry())
        describe(self, "1.38", self if self.counts_trees else MetricsRegistry())
        self._of_version = frozenset(self._families) - before
        self.hidden_metrics_total.value = self._hidden
        self._count_registered()

    def _describe_stability(self) -> None:
        stability: Stability = "BETA" if self._new else "ALPHA"
        self.scheduling_algorithm_duration_seconds = self.histogram(
            "scheduler_scheduling_algorithm_duration_seconds",
            stability,
            "Seconds from the start of a scheduling cycle to the choice of a node.",
            _ATTEMPT,
        ).labels()
        self.plugin_execution_duration_seconds = self.histogram(
            "scheduler_plugin_execution_duration_seconds",
            stability,
            "Seconds that one plugin took at one extension point (sampled).",
            _PLUGIN,
            "plugin",
            "extension_point",
            "status",
        )

    def _describe_deprecated(self) -> None:
        # An ALPHA metric is hidden in the very release that deprecates it.
        hides = self._new and not self._show_hidden
        self._hidden += hides
        self.preemption_goroutines_duration_seconds = (
            MetricsRegistry() if hides else self
        ).histogram(
            "scheduler_preemption_goroutines_duration_seconds",
            "ALPHA",
            "Seconds that the removal of a preemption's victims took.",
            _SLI,
            "result",
            deprecated_version="1.37.0" if self._new else "",
        )
        if self._new:
            self._claim_creates = self.counter(
                "dynamic_resource_allocation_resourceclaim_creates_total",
                "ALPHA",
                "ResourceClaims created for extended resources.",
                "status",
                "admin_access",
                "owner_api_group",
                "owner_api_kind",
            )
        else:
            self._claim_creates = self.counter(
                "scheduler_resourceclaim_creates_total",
                "ALPHA",
                "ResourceClaims created for extended resources.",
                "status",
            )

    def count_claim_creation(self, status: str) -> None:
        """Count a ResourceClaim that was created for a pod: ``success`` or ``failure``."""
        owner = ("false", "", "Pod") if self._new else ()
        self._claim_creates.labels(status, *owner).inc()
