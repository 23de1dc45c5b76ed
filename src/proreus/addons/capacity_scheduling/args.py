"""The arguments of the plugin: the ones of preemption, and the source of queues."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from proreus.framework import ConfigModel, Seconds
from proreus.plugins.default_preemption import DefaultPreemptionArgs


class QueuesArgs(ConfigModel):
    """The objects that are the queues, and the weight of the past.

    ``source``: "ElasticQuota" is a tree by Koordinator's labels. ``k_value``: the part
    of the difference between a queue's weight and its past use that is made good, 0 for none.
    ``half_life``: use of that age counts half. ``reclaimer_utilization_multiplier``: by this factor
    a queue has to be more saturated than another that takes from its surplus.
    """

    source: Literal["ElasticQuota", "KAI", "Volcano"]
    k_value: float = Field(0.0, ge=0)
    half_life: Seconds = Field(86_400.0, ge=1)
    reclaimer_utilization_multiplier: float = Field(1.0, ge=1)
    refresh_period: Seconds = Field(60.0, ge=1)


class CapacitySchedulingArgs(DefaultPreemptionArgs):
    """The arguments of DefaultPreemption; its limits of candidates have no effect.

    ``queues``: by default there are no queues, but a quota a namespace.
    """

    queues: QueuesArgs | None = None
