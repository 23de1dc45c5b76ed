"""The namespaces as inter-pod terms see them.

kube-scheduler adds the namespaces that a term's namespaceSelector selects to its namespaces. Up to
1.36 it keeps the selector, and matches it against an empty set of labels later: one that only
requires labels to be absent matches the pods of every namespace.

Worked example: ``namespaces: [a]`` and ``namespaceSelector: {team: x}``, which only namespace ``b``
matches: the term selects pods of ``a`` and ``b``.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from proreus.base.known_faults import KnownFault
from proreus.base.kubernetes_version import Change
from proreus.framework.handle import Handle
from proreus.framework.pod_info import PodInfo
from proreus.framework.term_set import NO_LABELS, TermSet, TermsInNamespaces
from proreus.objects.kinds import NAMESPACES, Namespace

Labels = Mapping[str, str]


class NamespaceLabels(Struct, frozen=True, eq=False):
    """The labels of all namespaces, by name. ``everywhere_if_empty``: see ``TermSet.covering``."""

    by_name: Mapping[str, Labels]
    everywhere_if_empty: bool = False

    def of(self, pod: PodInfo) -> Labels:
        """Return the labels of a pod's namespace; none if the namespace is unknown."""
        return self.by_name.get(pod.namespace, NO_LABELS)

    def within(self, terms: TermSet) -> TermsInNamespaces:
        """Return an incoming pod's terms, about these namespaces."""
        return TermsInNamespaces(terms, self.by_name, self.everywhere_if_empty)

    def changed(self, name: str, labels: Labels | None) -> NamespaceLabels:
        """Return the labels with those of one namespace replaced; None: there is no such one."""
        others = {one: known for one, known in self.by_name.items() if one != name}
        by_name = others if labels is None else {**others, name: labels}
        return NamespaceLabels(by_name, self.everywhere_if_empty)


class Namespaces:
    """The labels of namespaces as they are now."""

    def __init__(self, handle: Handle) -> None:
        self._namespaces: Mapping[str, Namespace] = handle.store(NAMESPACES)
        self._now: NamespaceLabels | None = None
        gates = handle.feature_gates
        self._everywhere_if_empty = not (
            gates.includes(Change.NAMESPACE_SELECTOR_MERGED)
            or gates.corrects(KnownFault.NEGATIVE_NAMESPACE_SELECTOR)
        )
        handle.on_change(NAMESPACES, self._changed)

    @property
    def now(self) -> NamespaceLabels:
        """The labels, the same value until some change: counts are kept for as long."""
        if self._now is None:
            by_name = {name: one.metadata.labels for name, one in self._namespaces.items()}
            self._now = NamespaceLabels(by_name, self._everywhere_if_empty)
        return self._now

    def _changed(self, old: Namespace | None, new: Namespace | None) -> None:
        before = None if old is None else old.metadata.labels
        if new is None or before != new.metadata.labels:
            self._now = None
