"""Times in the layouts of Go's ``time.Parse``, and in Python's."""

from __future__ import annotations

from datetime import UTC, datetime

_TOKENS = (
    ("2006", "%Y"),
    ("January", "%B"),
    ("Jan", "%b"),
    ("Monday", "%A"),
    ("Mon", "%a"),
    ("-07:00", "%z"),
    ("Z07:00", "%z"),
    ("-0700", "%z"),
    ("MST", "%Z"),
    ("01", "%m"),
    ("02", "%d"),
    ("15", "%H"),
    ("03", "%I"),
    ("04", "%M"),
    ("05", "%S"),
    ("06", "%y"),
    ("PM", "%p"),
)
"""What a layout calls each part of the time; longer names before shorter ones."""


def python_format(layout: str) -> str:
    """Return the format of a Go layout; one that is Python's (with %) stays."""
    if "%" in layout:
        return layout
    found, rest = "", layout
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
    found = datetime.strptime(text, python_format(layout)) if layout else _rfc3339(text)
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()


def _rfc3339(text: str) -> datetime:
    if "T" not in text:
        raise ValueError(f"{text!r} is no time of RFC 3339")
    return datetime.fromisoformat(text)
