"""Named text formats in CEL (``format.dns1123Label()`` and the like).

A format is its tagged name. ``named`` and ``validate`` return an empty value for an optional
without a value, see ``expressions.with_optionals``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from datetime import date

from proreus.config.names import label_key_errors, label_value_errors
from proreus.plugins.dynamic_resources.cel.urls import request_url

_FORMAT_TAG = b"F"

_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_OLD_LABEL = "[a-z]([-a-z0-9]*[a-z0-9])?"
_EXAMPLES = "(e.g. {}, regex used for validation is '{}')"
_LABEL_RULE = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', "
    "and must start and end with an alphanumeric character "
    + _EXAMPLES.format("'my-name',  or '123-abc'", _LABEL)
)
_SUBDOMAIN_RULE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or "
    "'.', and must start and end with an alphanumeric character "
    + _EXAMPLES.format("'example.com'", _SUBDOMAIN)
)
_OLD_LABEL_RULE = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an "
    "alphabetic character, and end with an alphanumeric character "
    + _EXAMPLES.format("'my-name',  or 'abc-123'", _OLD_LABEL)
)
_UUID = re.compile("[0-9a-f]{8}(-?[0-9a-f]{4}){3}-?[0-9a-f]{12}", re.IGNORECASE | re.ASCII)
_BASE64 = re.compile(r"([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})")
_DATE = re.compile("([0-9]{4})-([0-9]{2})-([0-9]{2})")
_TIME = re.compile("([0-9]{2}):([0-9]{2}):([0-9]{2})(.[0-9]+)?(z|[+-][0-9]{2}:[0-9]{2})")

Problems = Iterable[str]


def _too_long(text: str, limit: int) -> Problems:
    return [f"must be no more than {limit} characters"] * (len(text.encode()) > limit)


def _problems_of_label(text: str) -> Problems:
    yield from _too_long(text, 63)
    if not re.fullmatch(_LABEL, text):
        yield "must not contain dots" if re.fullmatch(_SUBDOMAIN, text) else _LABEL_RULE


def _problems_of_subdomain(text: str) -> Problems:
    yield from _too_long(text, 253)
    if not re.fullmatch(_SUBDOMAIN, text):
        yield _SUBDOMAIN_RULE


def _problems_of_old_label(text: str) -> Problems:
    yield from _too_long(text, 63)
    if not re.fullmatch(_OLD_LABEL, text):
        yield _OLD_LABEL_RULE


def _as_prefix(problems: Callable[[str], Problems]) -> Callable[[str], Problems]:
    """Accept a dash at the end, as in the prefix of a generated name."""
    # The dash and the character before it count as one letter: maskTrailingDash upstream, which
    # thereby accepts any character before the dash.
    return lambda text: problems(text[:-2] + "a" if len(text) > 1 and text.endswith("-") else text)


def _problems_of_uri(text: str) -> Problems:
    try:
        request_url(text)
    except ValueError as error:
        yield str(error)


def _is_date(text: str) -> bool:
    form = _DATE.fullmatch(text)
    if form is None:
        return False
    year, month, day = map(int, form.groups())
    try:
        date(year or 2000, month, day)  # Go has the year 0, a leap year; Python begins with 1
    except ValueError:
        return False
    return True


def _is_datetime(text: str) -> bool:
    # strfmt.IsDateTime upstream: it ignores a second "t" and what follows, and has no leap second.
    day, divider, rest = text.lower().partition("t")
    form = _TIME.fullmatch(rest.partition("t")[0])
    return bool(
        divider
        and _is_date(day)
        and form
        and form[1] <= "23"
        and form[2] <= "59"
        and form[3] <= "59"
    )


def _unless(accepted: Callable[[str], object], problem: str) -> Callable[[str], Problems]:
    return lambda text: [] if accepted(text) else [problem]


FORMATS: dict[str, Callable[[str], Problems]] = {
    "dns1123Label": _problems_of_label,
    "dns1123Subdomain": _problems_of_subdomain,
    "dns1035Label": _problems_of_old_label,
    "qualifiedName": label_key_errors,
    "dns1123LabelPrefix": _as_prefix(_problems_of_label),
    "dns1123SubdomainPrefix": _as_prefix(_problems_of_subdomain),
    "dns1035LabelPrefix": _as_prefix(_problems_of_old_label),
    "labelValue": label_value_errors,
    "uri": _problems_of_uri,
    "uuid": _unless(_UUID.fullmatch, "does not match the UUID format"),
    "byte": _unless(_BASE64.fullmatch, "invalid base64"),
    "date": _unless(_is_date, "invalid date"),
    "datetime": _unless(_is_datetime, "invalid datetime"),
}
"""By name of the format, a function that returns what is wrong with a text."""


def format_value(name: str) -> bytes:
    """Return the format of a name."""
    return _FORMAT_TAG + name.encode()


def named(name: str) -> bytes:
    """Return the format of a name; empty if there is none."""
    return format_value(name) if name in FORMATS else b""


def validate(value: bytes, text: str) -> list[str]:
    """Return the faults of a text; empty if there are none."""
    if value[:1] != _FORMAT_TAG:
        raise ValueError("no such overload")
    return list(FORMATS[bytes(value[1:]).decode()](text))
