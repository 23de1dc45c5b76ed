"""Thousands of affinity terms of one pod, matched against other pods together.

A pod has room for that many terms, and a cluster for thousands of namespaces. So the namespaces
that a namespaceSelector selects are never listed, and no term is evaluated for each group of pods.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
from msgspec import Struct

from proreus.framework.affinity_terms import NO_LABELS, AffinityTerm
from proreus.framework.many_selectors import ManySelectors
from proreus.framework.verdicts import BoolArray, IntArray
from proreus.objects.pod import Pod
from proreus.objects.selectors import NOTHING, Requirement, Selector

NamespaceLabels = Callable[[str], Mapping[str, str] | None]
"""Returns the labels of a namespace, None if there is no such namespace."""

Column = tuple[str, bool]
"""A topology key, and whether weights are negative: so a sum is 0 only where no pod adds to it."""


MOST_TERMS = 64
"""More terms of one pod, or requirements of one of them, are matched together."""


def are_many(terms: Iterable[AffinityTerm]) -> bool:
    """Return whether terms of one pod are to be matched together."""
    for number, term in enumerate(terms):
        if number >= MOST_TERMS or len(term.selector.requirements) > MOST_TERMS:
            return True
    return False


class WeightedTerm(Struct, frozen=True, gc=False):
    """A term, with what a pod that it selects counts."""

    term: AffinityTerm
    weight: int = 1


def _without_labels(_namespace: str) -> Mapping[str, str]:
    return NO_LABELS


class ManyTerms:
    """Terms of one pod, in one list of its spec.

    ``namespace_labels``: of the namespaces as they are when a pod is looked at.
    ``everywhere_if_empty``: a namespaceSelector that selects a namespace without labels selects
    all, as it did in kube-scheduler up to 1.36.
    """

    def __init__(
        self,
        terms: Sequence[WeightedTerm],
        namespace_labels: NamespaceLabels = _without_labels,
        everywhere_if_empty: bool = False,
    ) -> None:
        self.columns: list[Column] = []
        numbers: dict[Column, int] = {}
        for one in terms:
            column = (one.term.topology_key, one.weight < 0)
            if numbers.setdefault(column, len(numbers)) == len(self.columns):
                self.columns.append(column)
        self._column_of = np.array(
            [numbers[one.term.topology_key, one.weight < 0] for one in terms], dtype=np.intp
        )
        self._weights = np.array([one.weight for one in terms], dtype=np.int64)
        self._last_selected: tuple[BoolArray, BoolArray, BoolArray | None] | None = None
        self._last_sums: tuple[BoolArray, IntArray] | None = None
        self._namespace_labels = namespace_labels
        self._pods = ManySelectors([one.term.selector for one in terms])
        self._names = ManySelectors([_selects_name(one.term.namespaces) for one in terms])
        selectors = [one.term.namespace_selector for one in terms]
        self._namespaces = ManySelectors(selectors)
        self._everywhere = np.array(
            [one.empty or (everywhere_if_empty and one.matches({})) for one in selectors]
        )

    @property
    def needed_labels(self) -> list[tuple[str, str]] | None:
        """Labels of which every selected pod has one; None if there is no such list."""
        return self._pods.needed_labels

    def covering(self, namespace: str) -> BoolArray | None:
        """Return which terms are about pods of a namespace; None: none of them."""
        return self.covering_labels(namespace, self._namespace_labels(namespace))

    def covering_labels(
        self, namespace: str, namespace_labels: Mapping[str, str] | None
    ) -> BoolArray | None:
        """Return the same as ``covering`` for a namespace with these labels."""
        found = self._everywhere
        if found.all():
            return found
        for selected in (
            self._names.matching({_NAME: namespace}),
            None if namespace_labels is None else self._namespaces.matching(namespace_labels),
        ):
            if selected is not None:
                found = found | selected
        return found if found.any() else None

    def selecting(self, covering: BoolArray, labels: Mapping[str, str]) -> BoolArray | None:
        """Return which terms, of those that cover their namespace, select pods with these labels.

        None: none of them.
        """
        selected = self._pods.matching(labels)
        if selected is None:
            return None
        # Most groups of a namespace look alike to the terms.
        last = self._last_selected
        if last is None or last[0] is not selected or last[1] is not covering:
            both = selected & covering
            last = self._last_selected = selected, covering, both if both.any() else None
        return last[2]

    def selecting_pod(self, pod: Pod) -> BoolArray | None:
        """Return which terms select a pod; None: none of them."""
        covering = self.covering(pod.metadata.namespace)
        return None if covering is None else self.selecting(covering, pod.metadata.labels)

    def sums(self, selected: BoolArray) -> IntArray:
        """Return what a pod counts that is selected by these terms, for each of ``columns``."""
        last = self._last_sums
        if last is None or last[0] is not selected:
            last = self._last_sums = selected, self._sums(selected)
        return last[1]

    def _sums(self, selected: BoolArray) -> IntArray:
        weights = self._weights[selected]
        if len(self.columns) == 1:
            return np.array([weights.sum()])
        sums = np.bincount(self._column_of[selected], weights, minlength=len(self.columns))
        return sums.astype(np.int64)


_NAME = "name"


def _selects_name(names: frozenset[str]) -> Selector:
    return Selector((Requirement(_NAME, "In", names),)) if names else NOTHING
