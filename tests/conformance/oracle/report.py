"""Group cases whose answers differ by what differs: ten reasons instead of a thousand cases.

    PYTHONPATH=tests python -m conformance.oracle.report DIFFERENCES ...

Of each case the aspect counts that the others follow from, and of that the parts of texts that
differ, with numbers and names masked. A case that differs in several belongs to the one that most
cases share.
"""

from __future__ import annotations

import argparse
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from conformance import compare
from conformance.oracle.answers import JsonObject, differences

_FIRST = ("config", "preFilter", "filter", "error", "conditions", "groups")
_ORDER = (*_FIRST, *(one for one in (*compare.ASPECTS, "missing") if one not in _FIRST))
"""Aspects, those first that say the most of the reason."""

_VERDICTS = ("preFilter", "filter")
_NAME = re.compile(r'\\?"[^"\\]*\\?"|[\w./+-]*\d[\w./+-]*')
_PHRASES = re.compile(r", |\. ")
_LONGEST = 300


def main() -> None:
    """Print the report."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("differences", nargs="+", type=Path)
    files = parser.parse_args().differences
    print(report([json.loads(line) for file in files for line in file.read_text().splitlines()]))


def report(found: Sequence[JsonObject]) -> str:
    """Return why answers differ: a text, how many cases have it, their families, and one of them.

    ``found``: what ``fuzz`` writes.
    """
    texts = {number: set(_texts(one)) for number, one in enumerate(found)}
    lines = [f"{len(found)} cases differ:"]
    while texts:
        counts = Counter(text for some in texts.values() for text in sorted(some))
        [(text, count)] = counts.most_common(1)
        having = [number for number, some in texts.items() if text in some]
        by_family = Counter(found[number]["family"] for number in having)
        families = ", ".join(f"{name} {some}" for name, some in by_family.most_common(8))
        lines += [f"{count:5}  {text}", f"       {families}; {found[having[0]]['case']['id']}"]
        texts = {number: some for number, some in texts.items() if number not in having}
    return "\n".join(lines)


def _texts(found: JsonObject) -> Iterator[str]:
    """Yield what differs in the first aspect of a case."""
    different = differences(*found["answers"])
    for aspect in _ORDER:
        if aspect in different:
            want, got = map(_parsed, different[aspect])
            yield from _leaves(aspect, want, got, whole=aspect in _VERDICTS)
            return
    yield "nothing any more"


def _parsed(side: Any) -> Any:
    """Return what a moment of a script has; it is told as ``step 3: …``."""
    if isinstance(side, str) and re.match(r"step \d+: ", side):
        return json.loads(side.partition(": ")[2])
    return side


def _leaves(where: str, want: Any, got: Any, *, whole: bool) -> Iterator[str]:
    if isinstance(want, dict) and isinstance(got, dict):
        for key in sorted(want.keys() | got.keys()):
            if want.get(key) != got.get(key):
                yield from _leaves(
                    f"{where} {_masked(key)}", want.get(key), got.get(key), whole=whole
                )
    elif isinstance(want, list) and isinstance(got, list) and not whole:
        if len(want) == len(got):
            for one, other in zip(want, got, strict=True):
                if one != other:
                    yield from _leaves(where, one, other, whole=whole)
        else:
            yield f"{where}: {_text(_without(want, got))}, not {_text(_without(got, want))}"
    elif isinstance(want, str) and isinstance(got, str):
        ours, theirs = (_PHRASES.split(_masked(one)) for one in (got, want))
        missing, added = ", ".join(_without(theirs, ours)), ", ".join(_without(ours, theirs))
        if missing or added:
            yield f"{where}: {missing[:_LONGEST] or '…'}, not {added[:_LONGEST] or '…'}"
        else:
            yield f"{where}: other names or numbers in {_text(want)}"
    else:
        yield f"{where}: {_text(want)}, not {_text(got)}"


def _without(some: Iterable[Any], others: list[Any]) -> list[Any]:
    return [one for one in some if one not in others]


def _text(value: Any) -> str:
    return _plain(value)[:_LONGEST]


def _plain(value: Any) -> str:
    if not value and value != 0:
        return "nothing"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_plain, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{_masked(key)}: {_plain(one)}' for key, one in value.items())}}}"
    return _masked(value if isinstance(value, str) else json.dumps(value))


def _masked(text: str) -> str:
    return _NAME.sub(lambda match: '"…"' if match[0].endswith('"') else "#", text)


if __name__ == "__main__":
    main()
