"""Sums over topology domains: the nodes that have the same value of a label.

A sum is an array by the label's code, with one more entry, always 0, for nodes that do not carry
the label: code -1 finds it there.
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
        """Return sums without anything in them."""
        return cls(values, np.zeros(len(values) + 1, dtype=np.int64))

    def __getitem__(self, value: str | None) -> int:
        """Return the count of a domain, 0 where it is not known."""
        code = ABSENT if value is None else self.values.find(value)
        return int(self.by_code[code]) if code < len(self.by_code) - 1 else 0

    def of(self, codes: CodeArray) -> IntArray:
        """Return the count of each node's domain, 0 for nodes without the label."""
        return self.by_code[codes]

    @property
    def any(self) -> bool:
        """Whether any domain counts."""
        return bool(self.by_code.any())

    def add(self, value: str, step: int) -> None:
        """Count something in or out of a domain."""
        code = self.values.code(value)
        if code >= len(self.by_code) - 1:
            more = np.zeros(len(self.values) + 1, dtype=np.int64)
            more[: len(self.by_code) - 1] = self.by_code[:-1]
            self.by_code = more
        elif self._shared:
            self.by_code = self.by_code.copy()
        self._shared = False
        self.by_code[code] += step

    def fork(self) -> DomainSums:
        """Return sums to try things on."""
        self._shared = True
        other = DomainSums(self.values, self.by_code)
        other._shared = True
        return other


def sum_by_domain(nodes: NodeTable, key: str, counts: CodeArray) -> IntArray:
    """Return the sum of a column by code of a label, an entry for absent (0) at the end."""
    codes, values = nodes.label(key), nodes.label_values(key)
    sums = np.bincount(codes + 1, weights=counts, minlength=len(values) + 1)
    by_code = np.empty(len(sums), dtype=np.int64)
    by_code[:-1] = sums[1:]
    by_code[-1] = 0
    return by_code
