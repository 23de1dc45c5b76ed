"""Potential victims of a node: its lower-priority pods in order, split by PodDisruptionBudgets.

Both halves are inputs of SelectVictimsOnNode. ``PodsByPriority`` is kept from one preemption to the
next, because most clusters are large and most preemptions change one node.

Worked example: pods ``a`` (priority 20), ``b`` (10) and ``c`` (10, started after ``b``) match one
budget that allows one disruption. Their order is ``a``, ``b``, ``c``; ``a`` uses the disruption up,
so that evicting ``b`` or ``c`` violates the budget and evicting ``a`` does not.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum, auto
from functools import cached_property
from typing import Protocol, TypeVar

import numpy as np

from proreus.base.bounded_cache import register
from proreus.base.feature_gates import FeatureGates
from proreus.base.kubernetes_version import Change
from proreus.framework.interning import once_per_value
from proreus.framework.node_affinity import PodNodeAffinity, node_affinity
from proreus.framework.node_info import NodeInfo
from proreus.framework.node_table import NodeTable
from proreus.framework.pod_info import NOT_STARTED, PodInfo
from proreus.framework.selector_set import SelectorSet
from proreus.framework.tolerations import toleration_index
from proreus.framework.verdicts import BoolArray, IntArray, Rows
from proreus.objects.meta import key_of
from proreus.objects.policy import PodDisruptionBudget
from proreus.objects.selectors import (
    NOTHING,
    Selector,
    SelectorError,
    parse_label_selector,
)
from proreus.objects.taints import TolerationIndex
from proreus.plugins.default_preemption.domain_victims import DomainVictim

NO_VICTIMS = "No preemption victims found for incoming pod"
"""Why a node without potential victims is no candidate."""

# Above every priority, so that a node without pods never has lower-priority ones.
_NO_PODS = 2**31


# ---- pods in the order of importance -----------------------------------------------------------


class EqualVictims(Enum):
    """The order of pods of one priority that started at the same time, or have not started.

    ``REVERSED``: pods that have not started are in reverse, since kube-scheduler took the clock's
    time for each of them at each comparison up to 1.36, so that the first one compared was always
    the older. ``LISTED``: in their order on the node, for which they count as started when they
    were listed (``Change.START_TIME_SAMPLED_ONCE``). ``BY_UID``: ``Change.EQUAL_VICTIMS_BY_UID``.
    """

    REVERSED = auto()
    LISTED = auto()
    BY_UID = auto()

    @classmethod
    def of(cls, gates: FeatureGates) -> EqualVictims:
        """Return the order of the emulated version."""
        if gates.includes(Change.EQUAL_VICTIMS_BY_UID):
            return cls.BY_UID
        return cls.LISTED if gates.includes(Change.START_TIME_SAMPLED_ONCE) else cls.REVERSED


class PodsByPriority:
    """The pods of each row of a table by importance; ``refresh`` before reading.

    An assumed pod may be in it after the watch has confirmed the pod: what is read here, priority
    and start time, is the same of both.

    ``is_grouped``: keep the rows with pods of which this is true.
    """

    def __init__(
        self,
        nodes: NodeTable,
        equal_victims: EqualVictims = EqualVictims.LISTED,
        *,
        is_grouped: Callable[[PodInfo], bool] | None = None,
    ) -> None:
        self._nodes = nodes
        self._is_grouped = is_grouped
        self._rows_with_groups: set[int] = set()
        self.equal_victims = equal_victims
        self._position = -1
        self._lowest: IntArray = np.empty(0, dtype=np.int64)
        """By row: the lowest priority of a pod."""
        self._pods_by_row: dict[int, list[PodInfo]] = {}
        register(self)

    def age(self) -> None:
        """Forget the pods of rows that have changed: they may be gone."""
        if not self._pods_by_row:
            return
        rows = self._nodes.changes_since(self._position)
        for row in list(self._pods_by_row) if rows is None else rows:
            self._pods_by_row.pop(row, None)

    def refresh(self) -> None:
        """Read the rows that have changed since the last call."""
        nodes = self._nodes
        rows = None
        if len(self._lowest) == len(nodes) and self._position >= 0:
            rows = nodes.changes_since(self._position)
        if rows is None:
            self._pods_by_row.clear()
            self._lowest = np.array([_lowest(node) for node in nodes], dtype=np.int64)
            self._rows_with_groups.clear()
            self._find_groups(range(len(nodes)))
        else:
            # Not sorted yet: of the rows that change, few are dry-run before they change again.
            for row in rows:
                self._pods_by_row.pop(row, None)
                self._lowest[row] = _lowest(nodes[row])
            self._find_groups(rows)
        self._position = nodes.position

    def _find_groups(self, rows: Iterable[int]) -> None:
        if self._is_grouped is None:
            return
        for row in rows:
            if any(map(self._is_grouped, self._nodes[row].pods.values())):
                self._rows_with_groups.add(row)
            else:
                self._rows_with_groups.discard(row)

    def rows_with_groups(self) -> set[int]:
        """Return the rows of nodes that run pods of groups; none without ``is_grouped``."""
        return self._rows_with_groups

    def has_lower_priority_pods(self, rows: Rows, priority: int) -> BoolArray:
        """Return a mask of the rows that have pods below a priority."""
        below: BoolArray = self._lowest[rows] < priority
        return below

    def lower_priority_pods(self, row: int, priority: int) -> list[PodInfo]:
        """Return the pods of a row below a priority, the most important first."""
        pods = self._pods_by_row.get(row)
        if pods is None:
            node = self._nodes[row]
            in_order = [node.pods[uid] for uid in node.order]
            pods = self._pods_by_row[row] = sorted_by_importance(in_order, self.equal_victims)
        return pods[bisect_right(pods, -priority, key=lambda pod: pod.importance[0]) :]


def sorted_by_importance(
    pods: list[PodInfo], equal_victims: EqualVictims = EqualVictims.LISTED
) -> list[PodInfo]:
    """Return pods with the highest priority first, then those that have run longest.

    Pods that have not started come last.
    """
    if equal_victims is EqualVictims.BY_UID:
        return sorted(pods, key=lambda pod: (pod.importance, pod.uid))
    ranked = []
    for place, pod in enumerate(pods):
        rank, start = pod.importance
        reverse = start == NOT_STARTED and equal_victims is EqualVictims.REVERSED
        ranked.append((rank, start, -place if reverse else place, pod))
    ranked.sort()
    return [pod for *_, pod in ranked]


def _lowest(node: NodeInfo) -> int:
    return min([pod.priority for pod in node.pods.values()], default=_NO_PODS)


class PinnedPods:
    """Finds pods that can run on no other node, by their node affinity and tolerations.

    For ``KnownFault.PINNED_VICTIM``, on the nodes of a table as they are during one preemption.
    Whether there is room elsewhere is not asked: the replacement of a pod that is not pinned can at
    least wait for it, or preempt.
    ``compare_numbers``: gate TaintTolerationComparisonOperators.
    """

    def __init__(self, nodes: NodeTable, compare_numbers: bool) -> None:
        self._nodes = nodes
        self._compare_numbers = compare_numbers
        self._known: dict[tuple[PodNodeAffinity, TolerationIndex], bool] = {}

    def is_pinned(self, pod: PodInfo) -> bool:
        """Return whether at most one node is for pods like this one."""
        key = node_affinity(pod), toleration_index(pod)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._usable_nodes(*key) <= 1
        return known

    def _usable_nodes(self, affinity: PodNodeAffinity, tolerations: TolerationIndex) -> int:
        usable = affinity.matches_all(self._nodes)
        tainted = once_per_value(
            self._nodes.taint_set,
            self._nodes.taint_sets.values,
            lambda taints: (
                tolerations.first_untolerated(taints, compare_numbers=self._compare_numbers)
                is not None
            ),
        )
        return int(np.count_nonzero(usable if tainted is None else usable & ~tainted))


# ---- PodDisruptionBudgets ----------------------------------------------------------------------


class HasPods(Protocol):
    """Pods that are evicted together or not at all."""

    @property
    def pods(self) -> Sequence[PodInfo]:
        """The pods, in the order in which they use disruptions up."""
        ...


T = TypeVar("T", bound=HasPods)


class DisruptionBudgets:
    """The PodDisruptionBudgets of the cluster, as they are when a preemption begins.

    ``stop_at_first_exhausted``: a victim that violates a budget uses up nothing of the budgets
    after that one (``Change.FIRST_EXHAUSTED_BUDGET``). ``as_disruption_controller``: an empty
    selector selects all pods, and others select pods without labels too
    (``Change.BUDGETS_SELECT_AS_CONTROLLER``).
    ``check``: called for each victim. ``pinned``: of equal priority, reprieve pods that can run on
    no other node first (``KnownFault.PINNED_VICTIM``); None means only by importance.
    """

    def __init__(
        self,
        budgets: Iterable[PodDisruptionBudget],
        *,
        stop_at_first_exhausted: bool = True,
        as_disruption_controller: bool = False,
        check: Callable[[], None] = lambda: None,
        pinned: PinnedPods | None = None,
    ) -> None:
        self._check = check
        self._pinned = pinned
        self._selectors_of: dict[str, SelectorSet] = {}
        self._budgets = tuple(budgets)
        self._stop_at_first_exhausted = stop_at_first_exhausted
        self._as_disruption_controller = as_disruption_controller

    # Most pods that fit nowhere find no victims, and so ask for no budget.
    @cached_property
    def _by_namespace(self) -> dict[str, list[tuple[str, PodDisruptionBudget]]]:
        """Budgets, each with its ``namespace/name``."""
        by_namespace: dict[str, list[tuple[str, PodDisruptionBudget]]] = {}
        for budget in self._budgets:
            of_namespace = by_namespace.setdefault(budget.metadata.namespace, [])
            of_namespace.append((key_of(budget), budget))
        return by_namespace

    def filter_pods_with_pdb_violation(
        self, victims: list[PodInfo]
    ) -> tuple[list[PodInfo], list[PodInfo]]:
        """Split victims into those that violate a budget and those that do not.

        In their order, the most important first, but for those that are pinned to their node.
        """
        if not self._budgets:
            return [], self._movable_last(victims)
        left: dict[str, int] = {}
        violating: list[PodInfo] = []
        others: list[PodInfo] = []
        for victim in victims:
            (violating if self._violates(victim, left) else others).append(victim)
        return violating, self._movable_last(others)

    def _movable_last(self, victims: list[PodInfo]) -> list[PodInfo]:
        pinned = self._pinned
        if pinned is None:
            return victims
        return sorted(victims, key=lambda pod: (-pod.priority, not pinned.is_pinned(pod)))

    @property
    def by_importance(self) -> bool:
        """Whether victims that violate no budget are in the order of their importance."""
        return self._pinned is None

    def filter_units_with_pdb_violation(self, units: Iterable[T]) -> tuple[list[T], list[T]]:
        """Split units that are evicted as a whole; a unit violates if one of its pods does."""
        left: dict[str, int] = {}
        violating: list[T] = []
        others: list[T] = []
        for unit in units:
            # `any` stops at a unit's first violation: its other pods use no disruption up.
            violates = any(self._violates(pod, left) for pod in unit.pods)
            (violating if violates else others).append(unit)
        return violating, others

    def reprieve_order(
        self, units: Iterable[DomainVictim]
    ) -> tuple[list[DomainVictim], dict[int, int]]:
        """Return units in the order in which they are reprieved, and which of them violate.

        Those that violate a budget come first, so that few of them stay victims, and among equals
        the most important. With them: how many of its pods violate one, by ``id`` of each of these.
        """
        by_importance = sorted(units, key=lambda unit: unit.importance)
        violations = self._violations(by_importance)
        if self._pinned is not None:
            by_importance.sort(key=self._movable_unit_last)
        return sorted(by_importance, key=lambda unit: id(unit) not in violations), violations

    def _movable_unit_last(self, unit: DomainVictim) -> tuple[float | str, ...]:
        assert self._pinned is not None
        # A group is put back as a whole, wherever its pods can run.
        pinned = not unit.is_group and all(map(self._pinned.is_pinned, unit.pods))
        return *unit.importance[:3], not pinned

    def _violations(self, units: Iterable[DomainVictim]) -> dict[int, int]:
        left: dict[str, int] = {}
        counts = {id(unit): sum(self._violates(pod, left) for pod in unit.pods) for unit in units}
        return {unit: count for unit, count in counts.items() if count}

    def _violates(self, victim: PodInfo, left: dict[str, int]) -> bool:
        self._check()
        violated = False
        for name, budget in self._matching(victim):
            # The eviction of this pod is counted in `disruptionsAllowed` already.
            if victim.name in budget.status.disrupted_pods:
                continue
            left[name] = left.get(name, budget.status.disruptions_allowed) - 1
            violated = violated or left[name] < 0
            if violated and self._stop_at_first_exhausted:
                break
        return violated

    def _matching(self, victim: PodInfo) -> Iterator[tuple[str, PodDisruptionBudget]]:
        """Yield the budgets that match a pod."""
        budgets = self._by_namespace.get(victim.namespace)
        # Until 1.37 a pod without labels matches no budget, not even by `DoesNotExist`.
        if budgets is None or not (victim.labels or self._as_disruption_controller):
            return
        selectors = self._selectors_of.get(victim.namespace)
        if selectors is None:
            selectors = SelectorSet([self._selector_of(one) for _, one in budgets])
            self._selectors_of[victim.namespace] = selectors
        selected = selectors.matching(victim.labels)
        if selected is not None:
            for number in np.flatnonzero(selected).tolist():
                yield budgets[number]

    def _selector_of(self, budget: PodDisruptionBudget) -> Selector:
        try:
            parsed = parse_label_selector(budget.spec.selector)
        except SelectorError:
            # kube-scheduler ignores a budget that it cannot parse: it limits no eviction.
            return NOTHING
        # To the disruption controller an empty selector matches every pod of the namespace;
        # kube-scheduler's preemption ignores such a budget until 1.37.
        return NOTHING if parsed.empty and not self._as_disruption_controller else parsed
