"""Names of nodes that come and go are those of their time, and take little."""

from __future__ import annotations

import random

from proreus.insight.decisions.node_names import NodeNames


def test_names_are_those_of_their_time() -> None:
    rng = random.Random(0)
    names = [f"n{number}" for number in range(100)]
    kept = [NodeNames(names)]
    expected = [names]
    for number in range(500):
        names = list(names)
        if rng.random() < 0.5:
            names.append(f"new{number}")
        else:  # as the table does: the last row takes the place of the one that goes
            row = rng.randrange(len(names))
            names[row] = names[-1]
            del names[-1]
        kept.append(kept[-1].followed_by(names))
        expected.append(names)
    for one, rows in zip(kept, expected, strict=True):
        assert len(one) == len(rows)
        assert one.of(range(len(rows))) == rows
        assert [one.row_of(name) for name in rows] == list(range(len(rows)))
        assert {one.row_of(name) for name in set(expected[0]) - set(rows)} <= {None}


def test_names_that_stay_are_one_object() -> None:
    names = NodeNames(["a", "b"])
    assert names.followed_by(["a", "b"]) is names
    following = names.followed_by(["a", "c"])
    assert following is not names
    assert following.followed_by(["a", "c"]) is following


def test_a_change_takes_little_of_many_nodes() -> None:
    names = [f"n{number}" for number in range(5_000)]
    current = NodeNames(names)
    size_bytes = current.retain()
    assert size_bytes > 5_000 * 8
    for number in range(50):
        names = [*names, f"new{number}"]
        current = current.followed_by(names)
        size_bytes += current.retain()
    assert size_bytes < 8 * 5_000 * 8


def test_bytes_are_in_use_until_the_last_user_has_gone() -> None:
    first = NodeNames(["a", "b"])
    second = first.followed_by(["a", "c"])
    used = second.retain() + first.retain() + second.retain()
    assert used == first.size_bytes + second.size_bytes
    used -= first.release() + second.release()
    assert used == first.size_bytes + second.size_bytes, "the second differs from the first"
    assert used == second.release()
