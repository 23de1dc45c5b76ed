"""The arguments of the plugin: those of preemption, and where a tree of queues comes from."""

from __future__ import annotations

from collections.abc import Iterator

from proreus.framework import ConfigModel, FeatureGates, Seconds, field_errors
from proreus.plugins.default_preemption import DefaultPreemptionArgs

SOURCES = ("ElasticQuota", "KAI", "Volcano")


class QueuesArgs(ConfigModel):
    """Which objects are the queues, and how much the past counts.

    ``source``: "ElasticQuota" is a tree by Koordinator's labels. ``k_value``: how much of the
    difference between a queue's weight and its past use is made good, 0: nothing;
    ``half_life``: so long ago use counts half. ``reclaimer_utilization_multiplier``: by this factor
    a queue has to be more saturated than another that takes from its surplus.
    """

    source: str = ""
    k_value: float = 0.0
    half_life: Seconds = 86_400.0
    reclaimer_utilization_multiplier: float = 1.0
    refresh_period: Seconds = 60.0


class CapacitySchedulingArgs(DefaultPreemptionArgs):
    """Those of DefaultPreemption are taken; all nodes are looked at whatever they say.

    ``queues``: by default there are no queues, but a quota a namespace.
    """

    queues: QueuesArgs | None = None

    def problems(self, path: str, gates: FeatureGates) -> Iterator[str]:
        """Check the source, and what has to be positive."""
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
