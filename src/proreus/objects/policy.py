"""policy/v1: how many pods of a set may be disrupted at a time."""

from __future__ import annotations

from typing import Any

from proreus.objects.meta import ApiStruct, ObjectMeta, Resource
from proreus.objects.selectors import LabelSelector


class PodDisruptionBudgetSpec(ApiStruct, frozen=True):
    """Which pods the budget is about."""

    selector: LabelSelector | None = None


class PodDisruptionBudgetStatus(ApiStruct, frozen=True):
    """How many disruptions are allowed now, and which were granted and not seen yet."""

    disruptions_allowed: int = 0
    disrupted_pods: dict[str, Any] = {}


class PodDisruptionBudget(ApiStruct, frozen=True):
    """A PodDisruptionBudget."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodDisruptionBudgetSpec = PodDisruptionBudgetSpec()
    status: PodDisruptionBudgetStatus = PodDisruptionBudgetStatus()


POD_DISRUPTION_BUDGETS = Resource(
    "policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", True, PodDisruptionBudget
)
