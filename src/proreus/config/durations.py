"""Durations as Go writes them: ``1m30s``, ``500ms``, ``-1.5h``.

In configuration objects a duration is a float in seconds, in a field whose name ends in
``_seconds``. The text form is used only in files, messages and ``write``.
"""

import re
from decimal import Decimal

from proreus.base.errors import ConfigError

_UNIT_NANOSECONDS = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,  # U+00B5, the micro sign
    "μs": 1_000,  # U+03BC, the Greek letter
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "h": 3_600_000_000_000,
}
_PART = re.compile(r"([0-9]*(?:\.[0-9]*)?)([^0-9.]*)", re.ASCII)
_MAX_NANOSECONDS = 2**63 - 1


class DurationError(ConfigError):
    """Raised for an invalid duration, with the text of Go's ``time.ParseDuration``."""


def parse_duration(text: str) -> float:
    """Return the seconds of a Go duration; raises ``DurationError``."""
    negative = text.startswith("-")
    rest = text[1:] if text[:1] in ("+", "-") else text
    if rest == "0":
        return 0.0
    if not rest:
        raise DurationError(f"time: invalid duration {quote(text)}")
    nanoseconds = 0
    while rest:
        match = _PART.match(rest)
        assert match is not None  # both groups may be empty
        number, unit = match.groups()
        if number in ("", "."):
            raise DurationError(f"time: invalid duration {quote(text)}")
        if not unit:
            raise DurationError(f"time: missing unit in duration {quote(text)}")
        if unit not in _UNIT_NANOSECONDS:
            raise DurationError(f"time: unknown unit {quote(unit)} in duration {quote(text)}")
        nanoseconds += int(Decimal(number) * _UNIT_NANOSECONDS[unit])
        if nanoseconds > _MAX_NANOSECONDS + negative:
            raise DurationError(f"time: invalid duration {quote(text)}")
        rest = rest[match.end() :]
    return (-nanoseconds if negative else nanoseconds) / 1e9


def format_duration(seconds: float) -> str:
    """Write seconds as Go's ``Duration.String`` does: ``1h0m0s``, ``1.5s``, ``20ms``, ``0s``."""
    nanoseconds = abs(round(seconds * 1e9))
    sign = "-" if seconds < 0 and nanoseconds else ""
    if nanoseconds == 0:
        return "0s"
    for unit, limit in (("ns", 1_000), ("µs", 1_000_000), ("ms", 1_000_000_000)):
        if nanoseconds < limit:
            return f"{sign}{_decimal(nanoseconds, _UNIT_NANOSECONDS[unit])}{unit}"
    minutes, rest = divmod(nanoseconds, _UNIT_NANOSECONDS["m"])
    hours, minutes = divmod(minutes, 60)
    text = f"{_decimal(rest, _UNIT_NANOSECONDS['s'])}s"
    if hours:
        return f"{sign}{hours}h{minutes}m{text}"
    return f"{sign}{minutes}m{text}" if minutes else f"{sign}{text}"


def quote(text: str) -> str:
    """Quote a text as Go's ``%q`` does, for the characters that occur in configurations."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + escaped.replace("\n", "\\n").replace("\t", "\\t").replace("\r", "\\r") + '"'


def _decimal(nanoseconds: int, unit_nanoseconds: int) -> str:
    whole, fraction = divmod(nanoseconds, unit_nanoseconds)
    digits = len(str(unit_nanoseconds)) - 1
    return f"{whole}.{fraction:0{digits}d}".rstrip("0").rstrip(".") if fraction else str(whole)
