"""Names of nodes are those of their time."""

from __future__ import annotations

from proreus.insight.decisions.record import NodeNames


def test_names_are_those_of_their_time() -> None:
    first = NodeNames(["a", "b"])
    later = first.followed_by(["a"])
    assert first.of([1, 0]) == ["b", "a"]
    assert [first.row_of(name) for name in ("a", "b", "c")] == [0, 1, None]
    assert (len(later), later.row_of("b")) == (1, None)


def test_names_that_stay_are_one_object() -> None:
    names = NodeNames(["a", "b"])
    assert names.followed_by(["a", "b"]) is names
    following = names.followed_by(["a", "c"])
    assert following is not names
    assert following.followed_by(["a", "c"]) is following


def test_bytes_are_in_use_until_the_last_user_has_gone() -> None:
    names = NodeNames(["a", "b"])
    used = names.retain() + names.retain()
    assert used == names.size_bytes
    assert names.release() == 0
    assert names.release() == used
