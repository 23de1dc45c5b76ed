"""PodDisruptionBudgets as preemption sees them: which victims would violate one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol, TypeVar

from proreus.framework.pod_info import PodInfo
from proreus.objects.policy import PodDisruptionBudget
from proreus.objects.selectors import Selector, SelectorError, parse_label_selector


class Unit(Protocol):
    """Pods that are evicted together or not at all."""

    @property
    def pods(self) -> Sequence[PodInfo]:
        """The pods."""
        ...


T = TypeVar("T", bound=Unit)


class Budgets:
    """All budgets of the cluster, parsed once a preemption."""

    def __init__(self, budgets: Iterable[PodDisruptionBudget]) -> None:
        self._by_namespace: dict[str, list[tuple[PodDisruptionBudget, Selector]]] = {}
        for budget in budgets:
            try:
                selector = parse_label_selector(budget.spec.selector)
            except SelectorError:
                continue
            if not selector.empty and not selector.nothing:
                namespace = self._by_namespace.setdefault(budget.metadata.namespace, [])
                namespace.append((budget, selector))

    def split(self, victims: list[PodInfo]) -> tuple[list[PodInfo], list[PodInfo]]:
        """Part victims, in their order, into those that violate a budget and those that do not.

        Every victim uses up a disruption of each budget that matches it, also of one that is
        violated already.
        """
        if not self._by_namespace:
            return [], victims
        left: dict[str, int] = {}
        violating: list[PodInfo] = []
        others: list[PodInfo] = []
        for victim in victims:
            (violating if self._violates(victim, left) else others).append(victim)
        return violating, others

    def split_units(self, units: Iterable[T]) -> tuple[list[T], list[T]]:
        """The same for units that are evicted as a whole; a unit's first violation decides."""
        left: dict[str, int] = {}
        violating: list[T] = []
        others: list[T] = []
        for unit in units:
            violates = any(self._violates(pod, left) for pod in unit.pods)
            (violating if violates else others).append(unit)
        return violating, others

    def _violates(self, victim: PodInfo, left: dict[str, int]) -> bool:
        violated = False
        if not victim.labels:
            return False
        for budget, selector in self._by_namespace.get(victim.namespace, ()):
            if not selector.matches(victim.labels):
                continue
            if victim.name in budget.status.disrupted_pods:
                continue
            key = f"{budget.metadata.namespace}/{budget.metadata.name}"
            left[key] = left.get(key, budget.status.disruptions_allowed) - 1
            violated = violated or left[key] < 0
        return violated
