"""The arguments of the plugin: the ones of preemption, and the source of queues."""

from __future__ import annotations

from collections.abc import Iterator

from proreus.framework import ConfigModel, FeatureGates, Seconds, field_errors
from proreus.plugins.default_preemption import DefaultPreemptionArgs

SOURCES = ("ElasticQuota", "KAI", "Volcano")


class QueuesArgs(ConfigModel):
    """The objects that are the queues, and the weight of the past.

    ``source``: "ElasticQuota" is a tree by Koordinator's labels. ``k_value``: the part
    of the difference between a queue's weight and its past use that is made good, 0 for none.
    ``half_life``: use of that age counts half. ``reclaimer_utilization_multiplier``: by this factor
    a queue has to be more saturated than another that takes from its surplus.
    """

    source: str = ""
    k_value: float = 0.0
    half_life: Seconds = 86_400.0
    reclaimer_utilization_multiplier: float = 1.0
    refresh_period: Seconds = 60.0


class CapacitySchedulingArgs(DefaultPreemptionArgs):
    """The arguments of DefaultPreemption; its limits of candidates have no effect.

    ``queues``: by default there are no queues, but a quota a namespace.
    """

    queues: QueuesArgs | None = None

    def problems(self, path: str, gates: FeatureGates) -> Iterator[str]:
        """Check the source and the lower bounds."""
        yield from super().problems(path, gates)
        queues = self.queues
        if queues is None:
            return
        source = field_errors.child(path, "queues", "source")
        if not queues.source:
            yield field_errors.required(source)
        elif queues.source not in SOURCES:
            yield field_errors.unsupported(source, queues.source, SOURCES)
        for name, value, least in (
            ("kValue", queues.k_value, 0.0),
            ("reclaimerUtilizationMultiplier", queues.reclaimer_utilization_multiplier, 1.0),
            ("halfLife", queues.half_life, 1.0),
            ("refreshPeriod", queues.refresh_period, 1.0),
        ):
            if value < least:
                where = field_errors.child(path, "queues", name)
                yield field_errors.invalid(where, value, f"must be at least {least:g}")
