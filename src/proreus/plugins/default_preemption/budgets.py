"""PodDisruptionBudgets as preemption sees them: which victims would violate one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol, TypeVar

from proreus.framework.pod_info import PodInfo, SelectorKey
from proreus.objects.meta import key_of
from proreus.objects.policy import PodDisruptionBudget
from proreus.objects.selectors import Selector, SelectorError, parse_label_selector


class HasPods(Protocol):
    """Pods that are evicted together or not at all."""

    @property
    def pods(self) -> Sequence[PodInfo]:
        """The pods."""
        ...


T = TypeVar("T", bound=HasPods)

MatchingBudgets = tuple[tuple[str, PodDisruptionBudget], ...]
"""Budgets with their keys."""


class DisruptionBudgets:
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
        self._matching_by_look: dict[SelectorKey, MatchingBudgets] = {}

    def filter_pods_with_pdb_violation(
        self, victims: list[PodInfo]
    ) -> tuple[list[PodInfo], list[PodInfo]]:
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

    def filter_units_with_pdb_violation(self, units: Iterable[T]) -> tuple[list[T], list[T]]:
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
        for name, budget in self._matching(victim):
            if victim.name in budget.status.disrupted_pods:
                continue
            left[name] = left.get(name, budget.status.disruptions_allowed) - 1
            violated = violated or left[name] < 0
        return violated

    def _matching(self, victim: PodInfo) -> MatchingBudgets:
        """Return the budgets that mean a pod, found once for pods with the same labels."""
        known = self._matching_by_look.get(victim.selector_key)
        if known is None:
            labels = victim.labels
            known = self._matching_by_look[victim.selector_key] = tuple(
                (key_of(budget), budget)
                for budget, selector in self._by_namespace.get(victim.namespace, ())
                if labels and selector.matches(labels)
            )
        return known
