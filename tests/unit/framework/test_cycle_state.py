"""CycleState: data of one attempt, and clones that do not change it."""

from __future__ import annotations

import pytest

from proreus.framework.cycle_state import CycleState


class Counts:
    def __init__(self, number: int) -> None:
        self.number = number

    def clone(self) -> Counts:
        return Counts(self.number)


def test_notes() -> None:
    state = CycleState()
    state.write("P", 1)

    assert state.read("P") == state.get("P") == 1
    assert state.get("other") is None
    with pytest.raises(KeyError):
        state.read("other")


def test_a_trial_copies_what_can_be_cloned_and_shares_the_rest() -> None:
    state, shared = CycleState(), [1]
    state.write("counts", Counts(1))
    state.write("shared", shared)
    state.skip_filter = frozenset({"A"})
    state.skip_score = frozenset({"B"})

    clone = state.clone()
    clone.read("counts").number += 1
    clone.write("new", 1)

    assert state.read("counts").number == 1
    assert clone.read("shared") is shared
    assert state.get("new") is None
    assert (clone.skip_filter, clone.skip_score) == ({"A"}, {"B"})
