"""``find`` and ``findAll``: RE2, as in Kubernetes, so that no pattern takes long.

cel-cpp has RE2 but lends it to few functions, none of which tells where it matched all over a text.
``regex.replace`` does in a way: it puts marks around each match, between which they are read.
Python's own engine would not do: whoever may create a claim could keep it busy for ever.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import islice

from cel_expr_python import cel

_PRIVATE_USE = range(0xE000, 0xF900)
"""Characters that mean nothing by themselves, to make marks of."""


def find(text: str, pattern: str) -> str:
    """Return the first match, or nothing; raises ``ValueError`` for a bad pattern."""
    found = find_all(text, pattern)
    return found[0] if found else ""


def find_all(text: str, pattern: str, limit: int = -1) -> list[str]:
    """Return the matches, all or so many; raises ``ValueError`` for a bad pattern."""
    begin, end = islice((chr(code) for code in _PRIVATE_USE if chr(code) not in text), 2)
    marked = _replacement().eval(
        data={"text": text, "pattern": pattern, "marked": rf"{begin}\0{end}"}
    )
    if marked.type() == cel.Type.ERROR:
        raise ValueError(f"Illegal regex: {marked.value()}")
    _, *parts = marked.value().split(begin)
    found = [part.partition(end)[0] for part in parts]
    return found if limit < 0 else found[:limit]


@lru_cache(maxsize=1)
def _replacement() -> cel.Expression:
    extensions = cel.NewEnvConfigFromYaml("extensions: [{name: regex}, {name: optional}]")
    names = dict.fromkeys(("text", "pattern", "marked"), cel.Type.STRING)
    environment = cel.NewEnv(config=extensions, variables=names)
    return environment.compile("regex.replace(text, pattern, marked)")
