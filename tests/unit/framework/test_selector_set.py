"""Selectors matched together select what each of them selects."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proreus.framework import selector_set
from proreus.framework.selector_index import needs_of_any
from proreus.framework.selector_set import SelectorSet
from proreus.objects.selectors import EVERYTHING, NOTHING, Requirement, Selector

KEYS, VALUES = ["a", "b", "c"], ["x", "y", "z"]

_requirements = st.one_of(
    st.builds(
        Requirement,
        st.sampled_from(KEYS),
        st.sampled_from(["In", "NotIn"]),
        st.frozensets(st.sampled_from(VALUES), min_size=1),
    ),
    st.builds(Requirement, st.sampled_from(KEYS), st.sampled_from(["Exists", "DoesNotExist"])),
)
_selectors = st.one_of(
    st.sampled_from([NOTHING, EVERYTHING]),
    st.builds(Selector, st.lists(_requirements, max_size=4).map(tuple)),
)
_labels = st.dictionaries(st.sampled_from([*KEYS, "d"]), st.sampled_from(VALUES))


@given(selectors=st.lists(_selectors, max_size=6), objects=st.lists(_labels, max_size=4))
def test_the_same_as_one_by_one(selectors: list[Selector], objects: list[dict[str, str]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(selector_set, "_MOST_REMEMBERED", 2)
        together = SelectorSet(selectors)
        for labels in (*objects, *objects):
            found = together.matching(labels)
            expected = [one.matches(labels) for one in selectors]
            assert ([False] * len(selectors) if found is None else found.tolist()) == expected
            needs = needs_of_any(selectors)
            if needs.labels and any(expected):
                assert not labels.items().isdisjoint(needs.labels)
            elif needs.key is not None and any(expected):
                assert needs.key in labels


def test_a_selector_with_contradictory_requirements_selects_nothing() -> None:
    both = [Requirement("a", "In", frozenset((value,))) for value in "xy"]
    assert SelectorSet([Selector(tuple(both))]).matching({"a": "x"}) is None
