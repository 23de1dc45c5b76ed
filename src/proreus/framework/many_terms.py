"""Thousands of affinity terms of one pod, matched against other pods together.

A pod has room for that many terms, and a cluster for thousands of namespaces. So the namespaces
that a namespaceSelector selects are never listed, and no term is evaluated for each group of pods.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from proreus.framework.many_selectors import ManySelectors
from proreus.framework.verdicts import BoolArray, IntArray
from proreus.objects.pod import Pod
from proreus.objects.selectors import NOTHING, Requirement, Selector

if TYPE_CHECKING:
    from proreus.framework.affinity_terms import AffinityTerm

Weighted = tuple[tuple[int, "AffinityTerm"], ...]
"""Terms, each with what a pod that it selects counts."""

Column = tuple[str, bool]
"""A topology key, and whether weights are negative: so a sum is 0 only where no pod adds to it."""

MOST_TERMS = 64
"""More terms of one pod, or requirements of one of them, are matched together."""


def many_terms(weighted: Weighted) -> ManyTerms | None:
    """Return terms of one pod to be matched together, None if they are few."""
    many = len(weighted) > MOST_TERMS
    if many or any(len(term.selector.requirements) > MOST_TERMS for _, term in weighted):
        return ManyTerms(weighted)
    return None


class ManyTerms:
    """Terms of one pod, in one list of its spec; equal ones are equal."""

    def __init__(self, weighted: Weighted) -> None:
        self.weighted = weighted
        self._hash = hash(weighted)
        terms = [term for _, term in weighted]
        columns = [(term.topology_key, weight < 0) for weight, term in weighted]
        self.columns: list[Column] = list(dict.fromkeys(columns))
        numbers = {column: number for number, column in enumerate(self.columns)}
        self._column_of = np.array([numbers[column] for column in columns], dtype=np.intp)
        # Floating-point numbers are multiplied and added faster, and are exact up to 2**53.
        self._weights = np.array([weight for weight, _ in weighted], dtype=np.float64)
        weights = {weight for weight, _ in weighted}
        self._only_weight = weights.pop() if len(weights) == 1 else None
        self._last_selected: tuple[BoolArray, BoolArray, BoolArray | None] | None = None
        self._last_sums: tuple[BoolArray, IntArray] | None = None
        self._pods = ManySelectors([term.selector for term in terms])
        self._names = ManySelectors([_selects_name(term.namespaces) for term in terms])
        self._namespaces = ManySelectors([term.namespace_selector for term in terms])
        self._everywhere = np.array([term.namespace_selector.empty for term in terms])
        self._if_empty = np.array([term.namespace_selector.matches({}) for term in terms])

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ManyTerms) and self.weighted == other.weighted

    @property
    def needed_labels(self) -> list[tuple[str, str]] | None:
        """Labels of which every selected pod has one; None if there is no such list."""
        return self._pods.needed_labels

    def covering(
        self,
        namespace: str,
        namespace_labels: Mapping[str, str] | None,
        everywhere_if_empty: bool = False,
    ) -> BoolArray | None:
        """Return which terms are about pods of a namespace; None: none of them.

        ``namespace_labels``: None if there is no such namespace. ``everywhere_if_empty``: a
        namespaceSelector that selects a namespace without labels selects all.
        """
        found = self._if_empty if everywhere_if_empty else self._everywhere
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

    def sums(self, selected: BoolArray) -> IntArray:
        """Return what a pod counts that is selected by these terms, for each of ``columns``."""
        last = self._last_sums
        if last is None or last[0] is not selected:
            last = self._last_sums = selected, self._sums(selected)
        return last[1]

    def _sums(self, selected: BoolArray) -> IntArray:
        if len(self.columns) > 1:
            columns, weights = self._column_of[selected], self._weights[selected]
            sums = np.bincount(columns, weights, minlength=len(self.columns))
            return sums.astype(np.int64)
        if self._only_weight is not None:
            return np.array([self._only_weight * int(np.count_nonzero(selected))])
        return np.array([int(self._weights.dot(selected))])


class TermsInNamespaces(Struct, frozen=True):
    """Terms, and the namespaces as they are when a pod is looked at.

    ``namespace_labels``: None for a namespace that does not exist. ``everywhere_if_empty``: as it
    was in kube-scheduler up to 1.36, see ``ManyTerms.covering``.
    """

    many: ManyTerms
    namespace_labels: Callable[[str], Mapping[str, str] | None]
    everywhere_if_empty: bool

    def covering(self, namespace: str) -> BoolArray | None:
        """Return which terms are about pods of a namespace; None: none of them."""
        labels = self.namespace_labels(namespace)
        return self.many.covering(namespace, labels, self.everywhere_if_empty)

    def selecting_pod(self, pod: Pod) -> BoolArray | None:
        """Return which terms select a pod; None: none of them."""
        covering = self.covering(pod.metadata.namespace)
        return None if covering is None else self.many.selecting(covering, pod.metadata.labels)


_NAME = "name"


def _selects_name(names: frozenset[str]) -> Selector:
    return Selector((Requirement(_NAME, "In", names),)) if names else NOTHING


def weighted(terms: Sequence[AffinityTerm]) -> Weighted:
    """Return required terms, of which each pod counts 1."""
    return tuple([(1, term) for term in terms])


def negative(terms: Weighted) -> Weighted:
    """Return terms of anti-affinity, whose weights are subtracted."""
    return tuple([(-weight, term) for weight, term in terms])
