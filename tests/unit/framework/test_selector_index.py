"""Selectors found by the labels of an object, however many labels that has."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from proreus.framework.selector_index import SelectorIndex, needs_of_any
from proreus.objects.selectors import Requirement, Selector

_keys, _values = st.sampled_from("abc"), st.sampled_from("xyz")
_requirements = st.one_of(
    st.builds(Requirement, _keys, st.just("In"), st.frozensets(_values, min_size=1)),
    st.builds(Requirement, _keys, st.sampled_from(("Exists", "DoesNotExist"))),
)
_selectors = st.builds(Selector, st.lists(_requirements, max_size=3).map(tuple))


_sets = st.lists(_selectors, min_size=1, max_size=3)


@given(st.lists(_sets, max_size=8), st.dictionaries(_keys, _values), st.integers(0, 50))
def test_what_may_select_an_object_is_found_once(
    sets: list[list[Selector]], labels: dict[str, str], others: int
) -> None:
    index: SelectorIndex[int] = SelectorIndex()
    for number, selectors in enumerate(sets):
        index.add(needs_of_any(selectors), number)

    found = Counter(index.candidates(labels | {f"other-{n}": "" for n in range(others)}))

    assert set(found.values()) <= {1}
    selecting = {n for n, some in enumerate(sets) if any(one.matches(labels) for one in some)}
    assert found.keys() >= selecting
    assert found == Counter(index.candidates(labels))

    for number, selectors in enumerate(sets):
        index.discard(needs_of_any(selectors), number)
    assert len(index) == 0
