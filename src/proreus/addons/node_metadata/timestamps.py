"""Times in the layouts of Go's ``time.Parse``, and in Python's."""

from __future__ import annotations

import re
from datetime import UTC, datetime

_TOKENS = (
    ("2006", "%Y"),
    ("January", "%B"),
    ("Jan", "%b"),
    ("Monday", "%A"),
    ("Mon", "%a"),
    ("-07:00", "%z"),
    ("Z07:00", "%z"),
    ("Z0700", "%z"),
    ("-0700", "%z"),
    ("MST", "%Z"),
    ("002", "%j"),
    ("01", "%m"),
    ("02", "%d"),
    ("_2", "%d"),
    ("15", "%H"),
    ("03", "%I"),
    ("04", "%M"),
    ("05", "%S"),
    ("06", "%y"),
    ("PM", "%p"),
    ("pm", "%p"),
    ("1", "%m"),
    ("2", "%d"),
    ("3", "%I"),
    ("4", "%M"),
    ("5", "%S"),
)
"""The parts of a time in a layout, longer names before shorter ones."""
_FRACTION_IN_LAYOUT = re.compile(r"(?<=5)[.,](?:0+|9+)(?!\d)")
_FRACTION = re.compile(r"(?<=:\d\d)[.,](\d+)", re.ASCII)
"""In a text, behind seconds; behind minutes, the time has no seconds, and is refused for that."""


def python_format(layout: str) -> str:
    """Return the Python format of a Go layout; a format with % stays."""
    if "%" in layout:
        return layout
    found, rest = "", _FRACTION_IN_LAYOUT.sub("", layout)
    while rest:
        name, directive = next(
            ((name, one) for name, one in _TOKENS if rest.startswith(name)), (rest[0], rest[0])
        )
        found, rest = found + directive, rest[len(name) :]
    return found


def seconds_of(text: str, layout: str) -> float:
    """Return a time in seconds since the epoch, in UTC unless it says otherwise.

    ``layout``: "" for RFC 3339. Raises ``ValueError``.
    """
    fraction = 0.0
    if not layout:
        found = _rfc3339(text)
    elif "%" in layout:
        found = datetime.strptime(text, layout)
    else:
        form = python_format(layout)
        # As in Go, seconds may have a fraction whether or not the layout shows one.
        if ":%S" in form:
            text, fraction = _without_fraction(text)
        found = datetime.strptime(text, form)
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp() + fraction


def _without_fraction(text: str) -> tuple[str, float]:
    match = _FRACTION.search(text)
    if match is None:
        return text, 0.0
    return text[: match.start()] + text[match.end() :], float(f"0.{match[1]}")


def _rfc3339(text: str) -> datetime:
    if "T" not in text:
        raise ValueError(f"{text!r} is no time of RFC 3339")
    return datetime.fromisoformat(text)
