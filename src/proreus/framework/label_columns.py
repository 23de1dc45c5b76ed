"""The labels of nodes as columns: values as codes, one column a label that somebody asked for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

import numpy as np

from proreus.framework.columns import grown
from proreus.framework.interning import ABSENT, Interner
from proreus.framework.node_info import NodeInfo
from proreus.framework.verdicts import BoolArray, CodeArray
from proreus.objects.selectors import Requirement, Selector


class LabelColumn:
    """The values of one label as codes; -1 where the node does not carry it."""

    __slots__ = ("codes", "values")

    def __init__(self, capacity: int, values: Interner[str] | None = None) -> None:
        self.codes: CodeArray = np.full(capacity, ABSENT, dtype=np.int32)
        self.values: Interner[str] = Interner() if values is None else values

    def forget_unused(self, size: int) -> None:
        """Give the values that the first ``size`` rows have new codes, and forget all others.

        Hostnames of nodes that are gone would pile up for months otherwise.
        """
        codes, fresh = self.codes[:size], Interner[str]()
        renamed = np.full(len(self.values) + 1, ABSENT, dtype=np.int32)
        for code in np.unique(codes[codes != ABSENT]).tolist():
            renamed[code] = fresh.code(self.values.values[code])
        codes[:] = renamed[codes]
        self.values = fresh


class LabelColumns:
    """The columns of one table, made when they are first asked for."""

    def __init__(self) -> None:
        self._columns: dict[str, LabelColumn] = {}

    def column(self, key: str, infos: Iterable[NodeInfo], capacity: int) -> LabelColumn:
        """Return the column of a label; ``infos``: the rows, should it have to be made."""
        column = self._columns.get(key)
        if column is None:
            column = self._columns[key] = LabelColumn(capacity)
            codes, code = column.codes, column.values.code
            for row, info in enumerate(infos):
                value = info.labels.get(key)
                if value is not None:
                    codes[row] = code(value)
        return column

    def put(self, row: int, labels: Mapping[str, str], size: int, most_values: int) -> None:
        """Bring a row in step; a column with more values than that forgets those that are gone."""
        for key, column in self._columns.items():
            value = labels.get(key)
            column.codes[row] = ABSENT if value is None else column.values.code(value)
            if len(column.values) > most_values:
                column.forget_unused(size)

    def grow(self, capacity: int) -> None:
        """Make room for more rows."""
        for column in self._columns.values():
            column.codes = grown(column.codes, capacity)

    def move(self, source: int, target: int) -> None:
        """Copy a row into the place of another."""
        for column in self._columns.values():
            column.codes[target] = column.codes[source]

    def validate(self, row: int, labels: Mapping[str, str]) -> None:
        """Assert that a row is in step."""
        for key, column in self._columns.items():
            code = column.codes[row]
            value = None if code == ABSENT else column.values.values[code]
            assert value == labels.get(key), (row, key)


class Labelled(Protocol):
    """A table, or a part of one."""

    size: int

    def label(self, key: str) -> CodeArray:
        """Return a label's values as codes (-1 = absent)."""
        ...

    def label_values(self, key: str) -> Interner[str]:
        """Return the values behind the codes of a label."""
        ...


def selector_mask(nodes: Labelled, selector: Selector) -> BoolArray:
    """Return the mask of nodes whose labels a selector selects."""
    if selector.nothing:
        return np.zeros(nodes.size, dtype=np.bool_)
    mask = np.ones(nodes.size, dtype=np.bool_)
    for requirement in selector.requirements:
        mask &= _requirement_mask(nodes, requirement)
    return mask


def _requirement_mask(nodes: Labelled, requirement: Requirement) -> BoolArray:
    codes, values = nodes.label(requirement.key), nodes.label_values(requirement.key)
    match requirement.operator:
        case "Exists":
            return np.not_equal(codes, ABSENT)
        case "DoesNotExist":
            return np.equal(codes, ABSENT)
        case "In" | "NotIn":
            wanted = [c for c in map(values.find, requirement.values) if c != ABSENT]
            inside = codes == wanted[0] if len(wanted) == 1 else np.isin(codes, wanted)
            return inside if requirement.operator == "In" else ~inside
    # The answer a distinct value, then one gather; the last entry stands for absent (-1).
    answers = [requirement.matches_value(value) for value in values.values]
    return np.array([*answers, False], dtype=np.bool_)[codes]
