"""URLs in CEL: parsed and formatted as by Go's ``net/url``, which Kubernetes uses.

A URL is its tagged text as Go formats it; equal bytes mean equal URLs. Texts are processed as their
UTF-8 bytes decoded as Latin-1, so that one character is one byte, as in Go.
"""

from __future__ import annotations

import re
from ipaddress import IPv6Address
from typing import NamedTuple

_URL_TAG = b"u"

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_ESCAPE = re.compile("%([0-9A-Fa-f]{2})?")
_PORT = re.compile("(:[0-9]*)?")
_USERINFO = re.compile(r"[A-Za-z0-9._:~!$&'()*+,;=%@-]*")

_UNRESERVED = r"A-Za-z0-9._~\-"
_UNSAFE_IN_PATH = re.compile(rf"[^{_UNRESERVED}$&+,/:;=@]")
_UNSAFE_IN_FRAGMENT = re.compile(rf"[^{_UNRESERVED}$&+,/:;=?@!()*]")
_UNSAFE_IN_USER = re.compile(rf"[^{_UNRESERVED}$&+,;=]")
_UNSAFE_IN_HOST = re.compile(rf"[^{_UNRESERVED}!$&'()*+,;=:\[\]<>\"]")
_NOT_ENCODED = re.compile(rf"[^{_UNRESERVED}$&+,/:;=@!'()*\[\]%]")
_NOT_ENCODED_FRAGMENT = re.compile(rf"[^{_UNRESERVED}$&+,/:;=?@!'()*\[\]%]")


class Url(NamedTuple):
    """The parts of a URL, unescaped except for ``raw_path`` and ``raw_fragment``."""

    scheme: str = ""
    opaque: str = ""
    user: str | None = None
    """User and, behind a colon, password; escaped."""
    host: str = ""
    path: str = ""
    raw_path: str = ""
    query: str = ""
    bare_question_mark: bool = False
    fragment: str = ""
    raw_fragment: str = ""
    no_authority: bool = False


# ---- functions of CEL --------------------------------------------------------------------------


def url(text: str) -> bytes:
    """Parse an absolute URI or path; raises ``ValueError``."""
    # Two parsers, as in Kubernetes: url.ParseRequestURI decides whether the text is accepted, its
    # value is that of url.Parse, which has a fragment.
    try:
        request_url(text)
        return _URL_TAG + _format_url(_parsed(_as_bytes(text))).encode("latin-1")
    except ValueError as error:
        raise ValueError(f"URL parse error during conversion from string: {error}") from None


def scheme(value: bytes) -> str:
    """Return the scheme, without the colon."""
    return _as_text(_url(value).scheme)


def host(value: bytes) -> str:
    """Return host and port."""
    return _as_text(_url(value).host)


def hostname(value: bytes) -> str:
    """Return the host without port and brackets."""
    return _as_text(_split_host(_url(value).host)[0])


def port(value: bytes) -> str:
    """Return the digits of the port."""
    return _as_text(_split_host(_url(value).host)[1])


def escaped_path(value: bytes) -> str:
    """Return the path, escaped."""
    return _as_text(_escaped_path(_url(value)))


def query(value: bytes) -> dict[str, list[str]]:
    """Return the values of each parameter of the query; malformed ones are skipped."""
    parameters: dict[str, list[str]] = {}
    for pair in _url(value).query.split("&"):
        if not pair or ";" in pair:
            continue
        key, _, content = pair.replace("+", " ").partition("=")
        try:
            key, content = _unescaped(key), _unescaped(content)
        except ValueError:
            continue
        parameters.setdefault(_as_text(key), []).append(_as_text(content))
    return parameters


def _as_bytes(text: str) -> str:
    return text.encode().decode("latin-1")


def _as_text(text: str) -> str:
    return text.encode("latin-1").decode(errors="replace")


def _url(value: bytes) -> Url:
    if value[:1] != _URL_TAG:
        raise ValueError("no such overload")
    return _parsed(value[1:].decode("latin-1"))


# ---- parsing -----------------------------------------------------------------------------------


def request_url(text: str) -> Url:
    """Parse an absolute URI or path (``url.ParseRequestURI``); raises ``ValueError``."""
    try:
        return _without_fragment(_as_bytes(text), absolute=True)
    except ValueError as error:
        raise ValueError(f'parse "{text}": {error}') from None


def _parsed(text: str) -> Url:
    """Parse any reference, with its fragment (``url.Parse``); raises ``ValueError``."""
    head, _, fragment = text.partition("#")
    try:
        parsed = _without_fragment(head, absolute=False)
        plain = _unescaped(fragment)
    except ValueError as error:
        raise ValueError(f'parse "{head}": {error}') from None
    return parsed._replace(fragment=plain, raw_fragment=fragment)


def _without_fragment(text: str, *, absolute: bool) -> Url:
    if _CONTROL.search(text):
        raise ValueError("net/url: invalid control character in URL")
    if not text and absolute:
        raise ValueError("empty url")
    if text == "*":
        return Url(path="*")
    if text.startswith(":"):
        raise ValueError("missing protocol scheme")
    form = _SCHEME.match(text)
    found = Url(scheme=form[1].lower()) if form else Url()
    rest, question_mark, raw_query = text[form.end() if form else 0 :].partition("?")
    # Kept, since the text must come out as it went in: ForceQuery in Go.
    bare = bool(question_mark and not raw_query)
    found = found._replace(query=raw_query, bare_question_mark=bare)

    if not rest.startswith("/"):
        if found.scheme:
            return found._replace(opaque=rest)
        if absolute:
            raise ValueError("invalid URI for request")
        if ":" in rest.partition("/")[0]:
            raise ValueError("first path segment in URL cannot contain colon")
    may_have_host = found.scheme or (not absolute and not rest.startswith("///"))
    if may_have_host and rest.startswith("//"):
        authority, slash, path = rest[2:].partition("/")
        found = _with_authority(found, authority)
        rest = slash + path
    elif found.scheme and rest.startswith("/"):
        found = found._replace(no_authority=True)
    return found._replace(path=_unescaped(rest), raw_path=rest)


def _with_authority(found: Url, authority: str) -> Url:
    userinfo, at, where = authority.rpartition("@")
    named = found._replace(host=_parsed_host(found.scheme, where))
    if not at:
        return named
    if not _USERINFO.fullmatch(userinfo):
        raise ValueError("net/url: invalid userinfo")
    parts = [_unescaped(part) for part in userinfo.split(":", 1)]
    return named._replace(user=":".join(_escaped(part, _UNSAFE_IN_USER) for part in parts))


def _parsed_host(scheme: str, text: str) -> str:
    bracket = text.rfind("[")
    if bracket > 0:
        raise ValueError("invalid IP-literal")
    if bracket == 0:
        return _parsed_ip_literal(text)
    colon = text.find(":")
    if colon >= 0 and scheme not in ("http", "https"):
        colon = text.rfind(":")  # lists of hosts with ports, as in database URLs
    if colon >= 0 and not _PORT.fullmatch(text[colon:]):
        raise ValueError(f'invalid port "{text[colon:]}" after host')
    return _unescaped_host(text)


def _parsed_ip_literal(text: str) -> str:
    end = text.rfind("]")
    if end < 0:
        raise ValueError("missing ']' in host")
    if not _PORT.fullmatch(text[end + 1 :]):
        raise ValueError(f'invalid port "{text[end + 1 :]}" after host')
    address, percent, zone = text[1:end].partition("%25")
    name = _unescaped_host(address) + _unescaped_zone(percent + zone)
    try:
        IPv6Address(name)
    except ValueError as error:
        raise ValueError(f"invalid host: {error}") from None
    return f"[{name}]{text[end + 1 :]}"


def _unescaped_host(text: str) -> str:
    """Unescape a host, in which only non-ASCII bytes and the percent sign may be escaped."""
    for escape in _ESCAPE.finditer(text):
        if escape[1] and escape[1] < "8" and escape[1] != "25":
            raise ValueError(f'invalid URL escape "{escape[0]}"')
    return _unescaped(_without_wrong_characters(text))


def _unescaped_zone(text: str) -> str:
    """Unescape a zone, in which spaces and characters that need no escape may be escaped."""
    for escape in _ESCAPE.finditer(text):
        if escape[1] not in (None, "20", "25") and _UNSAFE_IN_HOST.match(chr(int(escape[1], 16))):
            raise ValueError(f'invalid URL escape "{escape[0]}"')
    return _unescaped(_without_wrong_characters(text))


def _without_wrong_characters(text: str) -> str:
    wrong = next((c for c in _UNSAFE_IN_HOST.findall(text) if c < "\x80" and c != "%"), None)
    if wrong is not None:
        raise ValueError(f'invalid character "{wrong}" in host name')
    return text


def _unescaped(text: str) -> str:
    def byte(escape: re.Match[str]) -> str:
        if escape[1] is None:
            cut = text[escape.start() : escape.start() + 3]
            raise ValueError(f'invalid URL escape "{cut}"')
        return chr(int(escape[1], 16))

    return _ESCAPE.sub(byte, text)


# ---- formatting --------------------------------------------------------------------------------


def _escaped(text: str, unsafe: re.Pattern[str]) -> str:
    return unsafe.sub(lambda match: f"%{ord(match[0]):02X}", text)


def _escaped_path(parsed: Url) -> str:
    if parsed.path == "*":
        return "*"
    if _NOT_ENCODED.search(parsed.raw_path):
        return _escaped(parsed.path, _UNSAFE_IN_PATH)
    return parsed.raw_path


def _split_host(text: str) -> tuple[str, str]:
    name, colon, digits = text.rpartition(":")
    if not colon or not _PORT.fullmatch(colon + digits):
        name, digits = text, ""
    if name.startswith("[") and name.endswith("]"):
        name = name[1:-1]
    return name, digits


def _format_url(parsed: Url) -> str:
    text = f"{parsed.scheme}:" if parsed.scheme else ""
    if parsed.opaque:
        text += parsed.opaque
    else:
        path = _escaped_path(parsed)
        named = parsed.host or parsed.user is not None
        if named or (parsed.scheme and not parsed.no_authority and path):
            text += "//"
        if parsed.user is not None:
            text += f"{parsed.user}@"
        text += _escaped(parsed.host, _UNSAFE_IN_HOST)
        text += path
    if parsed.query or parsed.bare_question_mark:
        text += f"?{parsed.query}"
    if parsed.fragment:
        plain = _NOT_ENCODED_FRAGMENT.search(parsed.raw_fragment) is None
        text += "#" + (
            parsed.raw_fragment if plain else _escaped(parsed.fragment, _UNSAFE_IN_FRAGMENT)
        )
    return text
