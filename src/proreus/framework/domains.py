"""Sums over topology domains: a domain is the nodes that have the same value of a label.

The sums are an array by the code of the value, with one more entry at the end, always 0, for nodes
without the label: their code -1 indexes the last entry.

Example: label ``zone`` has the codes a=0, b=1; nodes have codes [0, 1, 0, -1] and 2, 1, 3, 7 pods.
``by_code`` is [5, 1, 0], and ``of(codes)`` gives each node its zone's sum: [5, 1, 5, 0].
"""

from __future__ import annotations

import numpy as np

from proreus.framework.interning import ABSENT, Interner
from proreus.framework.node_table import NodeTable
from proreus.framework.verdicts import CodeArray, IntArray


class DomainSums:
    """Counts by domain of one label. ``fork`` is cheap: the array is copied when one changes it."""

    __slots__ = ("_shared", "by_code", "values")

    def __init__(self, values: Interner[str], by_code: IntArray) -> None:
        self.values = values
        self.by_code = by_code
        self._shared = False

    @classmethod
    def empty(cls, values: Interner[str]) -> DomainSums:
        """Return sums that are all 0."""
        return cls(values, np.zeros(len(values) + 1, dtype=np.int64))

    def __getitem__(self, value: str | None) -> int:
        """Return the sum of a domain, 0 if it is not known."""
        code = ABSENT if value is None else self.values.find(value)
        return int(self.by_code[code]) if code < len(self.by_code) - 1 else 0

    def of(self, codes: CodeArray) -> IntArray:
        """Return the sum of each node's domain, 0 for nodes without the label."""
        return self.by_code[codes]

    @property
    def any(self) -> bool:
        """Whether the sum of any domain is not 0."""
        return bool(self.by_code.any())

    def add(self, value: str, step: int) -> None:
        """Add ``step`` to the sum of a domain."""
        code = self.values.code(value)
        # The interner is the node table's and may have new values since; the array grows, with the
        # entry for nodes without the label staying last.
        if code >= len(self.by_code) - 1:
            more = np.zeros(len(self.values) + 1, dtype=np.int64)
            more[: len(self.by_code) - 1] = self.by_code[:-1]
            self.by_code = more
        elif self._shared:
            self.by_code = self.by_code.copy()
        self._shared = False
        self.by_code[code] += step

    def fork(self) -> DomainSums:
        """Return a copy for a dry run."""
        # Both sides are marked: a dry run forks for each candidate node and changes few of the
        # forks, and the original may change as well.
        self._shared = True
        other = DomainSums(self.values, self.by_code)
        other._shared = True
        return other


def sum_by_domain(nodes: NodeTable, key: str, counts: CodeArray | IntArray) -> IntArray:
    """Return the sums of a column by code of a label; the last entry, for no label, is 0."""
    codes, values = nodes.label(key), nodes.label_values(key)
    # ``bincount`` takes no negative codes: shifted by one, nodes without the label are counted at
    # 0, and that count is dropped, since they are in no domain.
    sums = np.bincount(codes + 1, weights=counts, minlength=len(values) + 1)
    by_code = np.empty(len(sums), dtype=np.int64)
    by_code[:-1] = sums[1:]
    by_code[-1] = 0
    return by_code


def any_in_domain(nodes: NodeTable, key: str, counts: IntArray) -> bool:
    """Return whether any counted pod is on a node with the label."""
    counted = counts != 0
    return bool(counted.any()) and bool((counted & (nodes.label(key) != ABSENT)).any())
