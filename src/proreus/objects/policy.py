"""policy/v1 PodDisruptionBudget."""

from __future__ import annotations

from typing import Any

from proreus.objects.meta import ApiStruct, Resource, UnownedObjectMeta
from proreus.objects.selectors import LabelSelector


class PodDisruptionBudgetSpec(ApiStruct, frozen=True):
    """The pods that the budget protects."""

    selector: LabelSelector | None = None


class PodDisruptionBudgetStatus(ApiStruct, frozen=True):
    """The disruptions allowed now, and disruptions granted but not yet observed, by pod name."""

    disruptions_allowed: int = 0
    disrupted_pods: dict[str, Any] = {}


class PodDisruptionBudget(ApiStruct, frozen=True):
    """A PodDisruptionBudget."""

    metadata: UnownedObjectMeta = UnownedObjectMeta()
    spec: PodDisruptionBudgetSpec = PodDisruptionBudgetSpec()
    status: PodDisruptionBudgetStatus = PodDisruptionBudgetStatus()


POD_DISRUPTION_BUDGETS = Resource(
    "policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", True, PodDisruptionBudget
)
