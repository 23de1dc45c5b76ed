"""YAML that would end the process is refused, whatever its nesting looks like."""

from __future__ import annotations

import pytest
import yaml

from proreus import yaml_depth

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
        yaml_depth.load(content.encode())


def test_what_is_wide_is_read() -> None:
    content = "items:\n" + "- {a: [1, {b: 2}], c: {}}\n" * 3_000
    assert yaml_depth.load(content.encode())["items"][2_999] == {"a": [1, {"b": 2}], "c": {}}
