"""YAML that would end the process is refused, whatever its nesting looks like."""

from __future__ import annotations

import pytest
import yaml

from proreus.base import yaml_limits

LEVELS = 1_200


def indented(line: str, line_break: str) -> str:
    return line_break.join(" " * column + line for column in range(LEVELS))


@pytest.mark.parametrize(
    "content",
    [
        "[" * LEVELS,
        "{a: " * LEVELS,
        # Two levels each: a list, and a mapping of one pair in it.
        "[a: " * (LEVELS // 2),
        "- " * LEVELS + "a",
        indented("k:", "\n"),
        # The list of a mapping may begin in its column: two levels a column.
        "-\n" + "".join(f"{' ' * (n + 1)}k:\n{' ' * (n + 1)}-\n" for n in range(LEVELS // 2)),
        *(indented("k:", line_break) for line_break in ("\r", "\x85", "\u2028", "\u2029")),
        "[" * LEVELS + "\0",
    ],
    ids=lambda content: repr(content[:8]),
)
def test_deep_nesting_is_refused(content: str) -> None:
    with pytest.raises(yaml.YAMLError, match=r"nested deeper than 1,000 levels|control characters"):
        yaml_limits.load(content.encode())


def test_wide_documents_are_read() -> None:
    content = "items:\n" + "- {a: [1, {b: 2}], c: {}}\n" * 3_000
    assert yaml_limits.load(content.encode())["items"][2_999] == {"a": [1, {"b": 2}], "c": {}}


def levels_of_aliases(levels: int) -> str:
    """Return a text of few lines that stands for ten to the power of ``levels`` values."""
    lines = ["a0: &a0 [" + "x, " * 10 + "]"]
    lines += [f"a{n}: &a{n} [" + f"*a{n - 1}, " * 10 + "]" for n in range(1, levels)]
    return "\n".join(lines)


@pytest.mark.parametrize(
    "content",
    [
        levels_of_aliases(9),
        # Merged mappings are copied.
        "a: &a {" + ", ".join(f"k{n}: 1" for n in range(1_000)) + "}\nb:\n" + "- {<<: *a}\n" * 200,
        # One text of a megabyte, many times.
        f"a: &a {'x' * 1_000_000}\nb: [" + "*a, " * 200 + "]",
    ],
    ids=["levels", "merged", "long text"],
)
def test_aliases_that_stand_for_too_much_are_refused(content: str) -> None:
    with pytest.raises(yaml.YAMLError, match="document contains excessive aliasing"):
        yaml_limits.load(content.encode())


@pytest.mark.parametrize("content", ["a: &a [*a]", "a: &a {b: {c: *a}}", "&a [&a [*a]]"])
def test_a_value_that_contains_itself_is_refused(content: str) -> None:
    with pytest.raises(yaml.YAMLError, match="anchor 'a' value contains itself"):
        yaml_limits.load(content.encode())


def test_some_aliases_are_read() -> None:
    assert yaml_limits.load(b"a: &a [1]\nb: *a\nc: {<<: &m {x: 1}, y: *m}") == {
        "a": [1],
        "b": [1],
        "c": {"x": 1, "y": {"x": 1}},
    }
    assert yaml_limits.load(levels_of_aliases(4).encode())["a3"][9][9][9] == ["x"] * 10


def test_an_anchor_is_of_its_document() -> None:
    content = "a: &a [1]\n---\nb: &a {c: 1}\nd: *a\n"
    yaml_limits.check(content.encode())
