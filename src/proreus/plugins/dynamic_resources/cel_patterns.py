"""Regular expressions of ``find`` and ``findAll``: RE2's language, run by Python's engine.

cel-cpp has RE2, but lends it to ``matches`` only. So RE2 says whether a pattern is one, and what
Python reads otherwise is spelt for it: ``$`` and ``\\z``, flags in the midst, classes by name,
``\\Q…\\E``. What Python cannot say (``\\p{…}``, ``(?U)``) is an error.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

from cel_expr_python import cel

_TOKEN = re.compile(
    r"(?P<quoted>\\Q(?P<literal>.*?)(\\E|\Z))"
    r"|\\x\{(?P<codepoint>[0-9A-Fa-f]+)\}"
    r"|\\(?P<escaped>.)"
    r"|\(\?(?P<flags>[ims]*(-[ims]+)?)(?P<closes>[:)])"
    r"|\(\?P?(?P<name><\w+>)"
    r"|(?P<set>\[\^?\]?(\[:\^?\w+:\]|\\.|[^\]\\])*\])"
    r"|(?P<repeat>\{\d+(,\d*)?\})"
    r"|(?P<other>.)",
    re.DOTALL,
)
_IN_SET = re.compile(r"\[:(?P<not>\^?)(?P<name>\w+):\]|(?P<escaped>\\.)|(?P<other>[\[&|~])", re.S)
_SPACE = r"\t\n\f\r "
_NAMED_SETS = {
    "alnum": "0-9A-Za-z",
    "alpha": "A-Za-z",
    "ascii": r"\x00-\x7f",
    "blank": r"\t ",
    "cntrl": r"\x00-\x1f\x7f",
    "digit": "0-9",
    "graph": "!-~",
    "lower": "a-z",
    "print": " -~",
    "punct": r"!-/:-@\[-`{-~",
    "space": r"\t\n\v\f\r ",
    "upper": "A-Z",
    "word": "0-9A-Za-z_",
    "xdigit": "0-9A-Fa-f",
}


def find(text: str, pattern: str) -> str:
    """Return the first match, or nothing; raises ``ValueError`` for a bad pattern."""
    found = _compiled(pattern).search(text)
    return found.group() if found else ""


def find_all(text: str, pattern: str, limit: int = -1) -> list[str]:
    """Return the matches, all or so many; an empty one right behind another does not count."""
    found, end = [], -1
    for match in _compiled(pattern).finditer(text):
        if match.start() != match.end() or match.end() != end:
            found.append(match.group())
        end = match.end()
    return found if limit < 0 else found[:limit]


@lru_cache(maxsize=256)
def _compiled(pattern: str) -> re.Pattern[str]:
    answer = _re2().eval(data={"pattern": pattern})
    if answer.type() == cel.Type.ERROR:
        raise ValueError(f"Illegal regex: {answer.value()}")
    try:
        return re.compile("".join(_translated(pattern)), re.ASCII)
    except re.error as error:
        raise ValueError(f"Illegal regex: {error}") from None


@lru_cache(maxsize=1)
def _re2() -> cel.Expression:
    return cel.NewEnv(variables={"pattern": cel.Type.STRING}).compile("''.matches(pattern)")


def _translated(pattern: str) -> Iterator[str]:
    """Spell a pattern for Python.

    Flags in the midst of a group hold to its end; Python wants a group of their own around what
    they hold for, which an alternative interrupts.
    """
    groups: list[list[str]] = [[]]
    multiline = [False]
    for token in _TOKEN.finditer(pattern):
        flags = token["flags"]
        if flags is not None:
            on, _, off = flags.partition("-")
            now = ("m" in on or multiline[-1]) and "m" not in off
            opening = f"(?{flags}:" if flags else "(?:"
            if token["closes"] == ":":
                groups.append([])
                multiline.append(now)
            else:
                groups[-1].append(opening)
                multiline[-1] = now
            yield opening
        elif token["other"] == "|":
            yield ")" * len(groups[-1]) + "|" + "".join(groups[-1])
        elif token["other"] == "(" or token["name"]:
            groups.append([])
            multiline.append(multiline[-1])
            yield f"(?P{token['name']}" if token["name"] else "("
        elif token["other"] == ")":
            multiline.pop()
            yield ")" * len(groups.pop()) + ")"
        else:
            yield _plain(token, multiline[-1])
    yield ")" * len(groups[-1])


def _plain(token: re.Match[str], multiline: bool) -> str:
    if token["quoted"] is not None:
        return re.escape(token["literal"])
    if token["codepoint"]:
        return re.escape(chr(int(token["codepoint"], 16)))
    if token["escaped"]:
        special = {"z": r"\Z", "s": f"[{_SPACE}]", "S": f"[^{_SPACE}]"}
        return special.get(token["escaped"], token[0])
    if token["set"]:
        head = "[^" if token["set"].startswith("[^") else "["
        body = token["set"][len(head) : -1]
        bracket = r"\]" if body.startswith("]") else ""
        return head + bracket + _IN_SET.sub(_in_set, body[bool(bracket) :]) + "]"
    if token["other"] == "$":
        return "$" if multiline else r"\Z"
    return r"\{" if token["other"] == "{" else token[0]


def _in_set(match: re.Match[str]) -> str:
    if match["name"]:
        named = _NAMED_SETS[match["name"]]
        return _complement(named) if match["not"] else named
    if match["escaped"]:
        return _SPACE if match["escaped"] == r"\s" else match["escaped"]
    return "\\" + match["other"]


def _complement(named: str) -> str:
    """Return all characters that a set does not have, as ranges."""
    inside = re.compile(f"[{named}]")
    outside = "".join(re.escape(chr(c)) for c in range(128) if not inside.match(chr(c)))
    return outside + "\\x80-\U0010ffff"
