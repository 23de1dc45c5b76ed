"""Columns are copied one after another into blocks, and no copy overlaps another one."""

from __future__ import annotations

import numpy as np

from proreus.decisions.arena import ColumnArena


def test_copies_stay_as_they_were_while_others_follow() -> None:
    arena = ColumnArena(budget_bytes=16 * 1000)
    rng = np.random.default_rng(1)
    columns = [rng.integers(0, 256, rng.integers(0, 250)) for _ in range(50)]
    copies = [arena.copy(column, np.uint8) for column in columns]
    for column, copied in zip(columns, copies, strict=True):
        assert copied.dtype == np.uint8
        assert copied.tolist() == column.tolist()
    blocks = {id(copied.base) for copied in copies if len(copied)}
    assert 1 < len(blocks) < 10, "many columns share a block, and a new one follows a full one"


def test_a_large_column_and_one_of_wide_numbers_get_their_own_memory() -> None:
    arena = ColumnArena(budget_bytes=16 * 1000)
    large = np.arange(251) % 7
    wide = np.array([100_000, -5])
    assert arena.copy(large, np.uint8).base is None
    assert arena.copy(large, np.uint8).tolist() == large.tolist()
    assert arena.copy(wide, np.int64).tolist() == [100_000, -5]
