"""The inter-pod terms of one list of a pod's spec, matched against other pods together.

A pod has room for 15,000 terms, and a cluster for thousands of namespaces. So a set of terms is
asked at once, three terms as thousands, and the namespaces that a namespaceSelector selects are
never listed.

Example: two preferred terms about zones, ``app in (web)`` with weight 5 and ``tier in (db)`` with
7. Their one column is ``(zone, False)``. For a pod with ``app=web`` and ``tier=db``, ``selecting``
is [True, True], and its ``sums`` are [12].
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property

import numpy as np
from msgspec import Struct

from proreus.framework.selector_index import LabelNeeds, needs_of_any
from proreus.framework.selector_set import SelectorSet
from proreus.framework.verdicts import BoolArray
from proreus.objects.pod import Pod
from proreus.objects.selectors import NOTHING, Requirement, Selector

NO_LABELS: Mapping[str, str] = {}


class AffinityTerm(Struct, frozen=True, cache_hash=True, gc=False):
    """Selects pods by namespace and labels; ``topology_key`` is the node label of its domains.

    A pod is selected if its namespace is one of ``namespaces``, or if ``namespace_selector``
    selects the labels of its namespace (the labels that the caller passes for it).
    """

    namespaces: frozenset[str]
    namespace_selector: Selector
    selector: Selector
    topology_key: str


Weighted = tuple[tuple[int, AffinityTerm], ...]
"""Terms, each with the count of a pod that it selects."""

Column = tuple[str, bool]
"""A topology key, and whether weights are negative: so a sum is 0 only where no pod adds to it."""


class TermSet:
    """Terms with their weights, compared by value. ``columns``: the keys of their sums."""

    def __init__(self, weighted: Weighted = ()) -> None:
        self.weighted = weighted
        self._hash = hash(weighted)
        self.columns: list[Column] = list(dict.fromkeys(self._columns_of_terms()))
        self._last_selected: tuple[BoolArray, BoolArray, BoolArray | None] | None = None
        self._last_sums: tuple[BoolArray, list[int]] | None = None

    @classmethod
    def required(cls, terms: Iterable[AffinityTerm]) -> TermSet:
        """Return required terms, of which each pod counts 1."""
        return cls(tuple([(1, term) for term in terms]))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, TermSet) and self.weighted == other.weighted)

    def __len__(self) -> int:
        return len(self.weighted)

    def _columns_of_terms(self) -> list[Column]:
        return [(term.topology_key, weight < 0) for weight, term in self.weighted]

    # Indexed at the first use: most pods have the terms of a pod before them.

    @cached_property
    def needs(self) -> LabelNeeds:
        """The labels that every pod needs that a term selects."""
        return needs_of_any(term.selector for _, term in self.weighted)

    @cached_property
    def namespaces(self) -> frozenset[str] | None:
        """The namespaces of all terms; None if these differ, or have a selector."""
        scopes = {(term.namespaces, term.namespace_selector) for _, term in self.weighted}
        if not scopes:
            return frozenset()
        (names, selector), *others = scopes
        return names if not others and selector.nothing else None

    @property
    def depends_on_namespaces(self) -> bool:
        """Whether labels of namespaces decide which pods are selected."""
        return self.namespaces is None

    @cached_property
    def all(self) -> BoolArray:
        """The result of ``covering`` and ``selecting`` for all of the terms."""
        return self._pods.all

    @cached_property
    def _pods(self) -> SelectorSet:
        return SelectorSet([term.selector for _, term in self.weighted])

    @cached_property
    def _names(self) -> SelectorSet:
        return SelectorSet([_selects_name(term.namespaces) for _, term in self.weighted])

    @cached_property
    def _namespace_selectors(self) -> SelectorSet:
        return SelectorSet([term.namespace_selector for _, term in self.weighted])

    @cached_property
    def _everywhere(self) -> BoolArray:
        return np.array([term.namespace_selector.empty for _, term in self.weighted])

    @cached_property
    def _by_labels(self) -> BoolArray:
        selectors = [term.namespace_selector for _, term in self.weighted]
        return np.array([not (selector.nothing or selector.empty) for selector in selectors])

    @cached_property
    def _if_empty(self) -> BoolArray:
        selectors = [term.namespace_selector for _, term in self.weighted]
        return np.array([selector.matches(NO_LABELS) for selector in selectors])

    def covering(
        self,
        namespace: str,
        namespace_labels: Mapping[str, str] | None,
        everywhere_if_empty: bool = False,
    ) -> BoolArray | None:
        """Return the mask of terms about pods of a namespace, None if there are none.

        ``namespace_labels``: None if there is no such namespace. ``everywhere_if_empty``: a
        namespaceSelector that selects a namespace without labels selects all, as in kube-scheduler
        up to 1.36.
        """
        if self.namespaces is not None:
            return self.all if namespace in self.namespaces else None
        found = self._if_empty if everywhere_if_empty else self._everywhere
        for selected in (
            self._names.matching({_NAME: namespace}),
            None
            if namespace_labels is None
            else self._namespace_selectors.matching(namespace_labels),
        ):
            if selected is not None:
                found = found | selected
        if found.all():
            return self.all
        return found if found.any() else None

    def asks_labels_of(self, namespace: str, labels: Mapping[str, str]) -> bool:
        """Return whether a namespace's labels decide if a term selects pods with these labels."""
        selecting = None if self.namespaces is not None else self._pods.matching(labels)
        if selecting is None:
            return False
        asking, anyway = selecting & self._by_labels, self.covering(namespace, None)
        return bool((asking if anyway is None else asking & ~anyway).any())

    def selecting(self, covering: BoolArray | None, labels: Mapping[str, str]) -> BoolArray | None:
        """Return the mask of the covering terms that select pods with these labels.

        None if there are none.
        """
        selected = None if covering is None else self._pods.matching(labels)
        if selected is None or covering is None or covering is self.all:
            return selected
        if selected is self.all:
            return covering
        # Most groups of a namespace look alike to the terms.
        last = self._last_selected
        if last is None or last[0] is not selected or last[1] is not covering:
            both = selected & covering
            last = self._last_selected = selected, covering, both if both.any() else None
        return last[2]

    def sums(self, selected: BoolArray) -> list[int]:
        """Return the count of a pod that these terms select, for each of ``columns``."""
        if selected is self.all:
            return self._sums_of_all
        last = self._last_sums
        if last is None or last[0] is not selected:
            last = self._last_sums = selected, self._sums(selected)
        return last[1]

    @cached_property
    def _sums_of_all(self) -> list[int]:
        sums = dict.fromkeys(self.columns, 0)
        for column, (weight, _) in zip(self._columns_of_terms(), self.weighted, strict=True):
            sums[column] += weight
        return list(sums.values())

    @cached_property
    def _column_of(self) -> np.ndarray[tuple[int], np.dtype[np.intp]]:
        numbers = {column: number for number, column in enumerate(self.columns)}
        return np.array([numbers[column] for column in self._columns_of_terms()], dtype=np.intp)

    @cached_property
    def _weights(self) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        # Floating-point numbers are multiplied and added faster, and are exact up to 2**53.
        return np.array([weight for weight, _ in self.weighted], dtype=np.float64)

    def _sums(self, selected: BoolArray) -> list[int]:
        columns, weights = self._column_of[selected], self._weights[selected]
        sums = np.bincount(columns, weights, minlength=len(self.columns))
        found: list[int] = sums.astype(np.int64).tolist()
        return found

    def sums_by_key(self, selected: BoolArray) -> Iterator[tuple[str, int]]:
        """Yield topology keys with the sums that are not 0."""
        for (key, _), number in zip(self.columns, self.sums(selected), strict=True):
            if number:
                yield key, number


class TermsInNamespaces(Struct, frozen=True, eq=False):
    """Terms, with the labels of the namespaces as they are when pods are counted.

    ``namespaces``: labels by namespace, a mapping that no event changes. ``everywhere_if_empty``:
    see ``TermSet.covering``. Equal ones select the same pods: terms that do not depend on
    namespaces are equal whatever these are.
    """

    terms: TermSet
    namespaces: Mapping[str, Mapping[str, str]]
    everywhere_if_empty: bool

    def __hash__(self) -> int:
        return hash(self.terms)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TermsInNamespaces) or self.terms != other.terms:
            return False
        return not self.terms.depends_on_namespaces or (
            self.namespaces is other.namespaces
            and self.everywhere_if_empty == other.everywhere_if_empty
        )

    def selecting(self, namespace: str, labels: Mapping[str, str]) -> BoolArray | None:
        """Return the mask of terms that select pods of a namespace and labels, None if none do."""
        known = self.namespaces.get(namespace)
        covering = self.terms.covering(namespace, known, self.everywhere_if_empty)
        return self.terms.selecting(covering, labels)

    def selecting_pod(self, pod: Pod) -> BoolArray | None:
        """Return the mask of terms that select a pod, None if none do."""
        return self.selecting(pod.metadata.namespace, pod.metadata.labels)

    def all_select(self, pod: Pod) -> bool:
        """Return whether there are terms, and all of them select a pod."""
        return bool(self.terms) and self.selecting_pod(pod) is self.terms.all


class TermCount(Struct, frozen=True, cache_hash=True):
    """Counts the pods that inter-pod terms select, by the weights of these terms.

    ``number``: of the terms' column that is counted; None to count 1 for a pod that all select.
    """

    terms: TermsInNamespaces
    number: int | None

    @property
    def namespaces(self) -> frozenset[str] | None:
        """Namespaces that every selected pod is in one of; None if it may be any."""
        return self.terms.terms.namespaces

    @property
    def needs(self) -> LabelNeeds:
        """The labels that every selected pod needs."""
        return self.terms.terms.needs

    def weigh(self, namespace: str, labels: Mapping[str, str], terminating: bool) -> int:
        """Return the count of a pod with these properties."""
        selecting = self.terms.selecting(namespace, labels)
        if selecting is None:
            return 0
        if self.number is None:
            return int(selecting is self.terms.terms.all)
        return self.terms.terms.sums(selecting)[self.number]


_NAME = "name"


def _selects_name(names: frozenset[str]) -> Selector:
    return Selector((Requirement(_NAME, "In", names),)) if names else NOTHING
