"""PodDisruptionBudgets as preemption sees them: which victims would violate one."""

from __future__ import annotations

from collections.abc import Iterable

from proreus.framework.pod_info import PodInfo
from proreus.objects.policy import PodDisruptionBudget
from proreus.objects.selectors import Selector, SelectorError, parse_label_selector


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
