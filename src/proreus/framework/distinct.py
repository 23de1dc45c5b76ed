"""Evaluate each distinct value once, then gather: how columnar plugins judge interned columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from proreus.framework.verdicts import CodeArray

T = TypeVar("T")

_FEW_VALUES = 16


def once_per_value(
    codes: CodeArray, values: Sequence[T], answer: Callable[[T], int | bool]
) -> npt.NDArray[Any] | None:
    """Ask about each distinct value once and give every row the answer for its value.

    ``codes``: a value's index in ``values`` a row, none negative (as ``NodeTable.port_set``).
    None stands for an answer of 0 (False) everywhere, and is found without looking at rows where
    values are few.
    """
    if len(values) <= _FEW_VALUES:
        answers = [answer(value) for value in values]
    else:
        # Values that no row has any more stay known to the table: do not ask about those.
        present = np.bincount(codes, minlength=len(values)).tolist()
        answers = [
            answer(value) if count else False for value, count in zip(values, present, strict=True)
        ]
    return np.array(answers)[codes] if any(answers) else None
