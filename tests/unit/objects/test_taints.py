"""Tolerations against taints."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proreus.objects.taints import Taint, Toleration, TolerationIndex, first_untolerated, tolerates

TAINT = Taint(key="k", value="5", effect="NoSchedule")


@pytest.mark.parametrize(
    ("toleration", "matching"),
    [
        (Toleration(), False),
        (Toleration(operator="Exists"), True),
        (Toleration(value="5"), True),
        (Toleration(key="k", value="5"), True),
        (Toleration(key="k", operator="Equal", value="5", effect="NoSchedule"), True),
        (Toleration(key="k", operator="Exists", effect="NoExecute"), False),
        (Toleration(key="K", operator="Exists"), False),
        (Toleration(key="k", operator="exists"), False),
        (Toleration(key="k", operator="Gt", value="4"), False),
        (Toleration(key="k", value="5", toleration_seconds=0), True),
    ],
)
def test_tolerates(toleration: Toleration, matching: bool) -> None:
    assert tolerates(toleration, TAINT) is matching


@pytest.mark.parametrize(
    ("operator", "wanted", "found", "matching"),
    [
        ("Gt", "4", "5", True),
        ("Gt", "5", "5", False),
        ("Lt", "6", "5", True),
        ("Lt", "-1", "-2", True),
        ("Gt", "4", "05", False),
        ("Gt", "4", "+5", False),
        ("Gt", "4", "", False),
        ("Gt", "-0", "5", False),
        ("Gt", "4", str(2**63), False),
        ("Gt", "4", str(2**63 - 1), True),
    ],
)
def test_numbers(operator: str, wanted: str, found: str, matching: bool) -> None:
    toleration = Toleration(key="k", operator=operator, value=wanted)
    taint = Taint(key="k", value=found, effect="NoSchedule")

    assert tolerates(toleration, taint, compare_numbers=True) is matching


def test_the_first_untolerated_taint_in_order() -> None:
    soft = Taint(key="soft", effect="PreferNoSchedule")
    execute = Taint(key="execute", effect="NoExecute")
    schedule = Taint(key="schedule", effect="NoSchedule")
    taints = (soft, execute, schedule)

    assert first_untolerated(taints, ()) == execute
    assert first_untolerated(taints, (Toleration(key="execute", operator="Exists"),)) == schedule
    assert first_untolerated(taints, (Toleration(operator="Exists"),)) is None
    assert first_untolerated(taints, (), frozenset({"PreferNoSchedule"})) == soft


_keys = st.sampled_from(("", "k", "l"))
_values = st.sampled_from(("", "a", "-3", "2", "02", "7", str(2**63)))
_effects = st.sampled_from(("", "NoSchedule", "NoExecute"))
_operators = st.sampled_from(("", "Equal", "Exists", "Gt", "Lt", "In"))
_tolerations = st.builds(Toleration, key=_keys, operator=_operators, value=_values, effect=_effects)


@given(
    st.lists(_tolerations, max_size=6),
    st.builds(Taint, key=_keys, value=_values, effect=_effects),
    st.booleans(),
)
def test_an_index_tolerates_what_one_of_its_tolerations_matches(
    tolerations: list[Toleration], taint: Taint, compare_numbers: bool
) -> None:
    index = TolerationIndex(tolerations)

    expected = any(tolerates(one, taint, compare_numbers) for one in tolerations)
    assert index.tolerates(taint, compare_numbers) == expected
    tolerated = expected or not taint.effect  # which is none of the hard ones
    first = index.first_untolerated([taint], compare_numbers=compare_numbers)
    assert first == (None if tolerated else taint)
