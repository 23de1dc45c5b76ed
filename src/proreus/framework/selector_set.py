"""Selectors matched against the labels of one object together, three as thirty thousand.

Example: a pod has 8,000 affinity terms, ``app in (web, x0)``, ``app in (web, x1)`` and so on. For
an object with ``app=web`` one look-up finds the numbers of all 8,000, and one addition over an
array tells which of them have no other requirement left.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np

from proreus.framework.selector_index import LabelPair
from proreus.framework.verdicts import BoolArray, CodeArray
from proreus.objects.selectors import Selector

_MOST_REMEMBERED = 64

_MET, _VIOLATED = -1, 1
_NEED_LABEL = frozenset(("In", "Exists"))
_ABOUT_KEY = frozenset(("Exists", "DoesNotExist"))
_ANY_VALUE = (None,)

_Label = tuple[str, str | None]
"""A label, or (with None) any label of a key."""


class SelectorSet:
    """Selectors by their place in a sequence."""

    # A selector matches once as many requirements are met as it has that need a label (In, Exists),
    # and none is violated that excludes labels (NotIn, DoesNotExist). So a look at the labels of an
    # object is enough: what is missing is counted, beginning with the former.

    def __init__(self, selectors: Sequence[Selector]) -> None:
        self.all: BoolArray = np.ones(len(selectors), dtype=np.bool_)
        # One alone needs no index: a cluster may have thousands of such sets.
        self._only = selectors[0] if len(selectors) == 1 else None
        if self._only is not None:
            return
        self._missing: CodeArray = np.zeros(len(selectors), dtype=np.int32)
        self._found: dict[tuple[LabelPair, ...], BoolArray | None] = {}
        self._met: dict[_Label, Any] = {}
        """The numbers of the selectors by a label that meets a requirement of theirs."""
        self._violated: dict[_Label, Any] = {}
        for number, selector in enumerate(selectors):
            self._add(number, selector)
        self._keys = {key for key, _ in chain(self._met, self._violated)}
        self._without_labels = self._result(self._missing)

    def _add(self, number: int, selector: Selector) -> None:
        needed = [one for one in selector.requirements if one.operator in _NEED_LABEL]
        self._missing[number] = int(selector.nothing) + len(needed)
        for one in selector.requirements:
            by_label = self._met if one.operator in _NEED_LABEL else self._violated
            for value in _ANY_VALUE if one.operator in _ABOUT_KEY else one.values:
                by_label.setdefault((one.key, value), []).append(number)

    def matching(self, labels: Mapping[str, str]) -> BoolArray | None:
        """Return the mask of selectors that select an object with these labels.

        None if no selector does; the array ``self.all`` itself if all do.
        """
        if self._only is not None:
            return self.all if self._only.matches(labels) else None
        looked_at = tuple([(key, labels[key]) for key in labels.keys() & self._keys])
        if not looked_at:
            return self._without_labels
        if looked_at not in self._found:
            # All that matters of the labels of most objects is the same.
            if len(self._found) >= _MOST_REMEMBERED:
                self._found.clear()
            self._found[looked_at] = self._matching(looked_at)
        return self._found[looked_at]

    def _matching(self, labels: Sequence[LabelPair]) -> BoolArray | None:
        missing = None
        for key, value in labels:
            for label in ((key, None), (key, value)):
                for by_label, step in ((self._met, _MET), (self._violated, _VIOLATED)):
                    numbers = by_label.get(label)
                    if numbers is None:
                        continue
                    if type(numbers) is list:
                        numbers = by_label[label] = np.array(numbers)
                    missing = self._missing.copy() if missing is None else missing
                    # An indexed ``+=`` would count a selector once that has a label twice.
                    np.add.at(missing, numbers, step)
        return self._without_labels if missing is None else self._result(missing)

    def _result(self, missing: CodeArray) -> BoolArray | None:
        found: BoolArray = missing == 0
        selected = np.count_nonzero(found)
        if selected == len(found):
            return self.all
        return found if selected else None
