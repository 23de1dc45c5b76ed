"""The cases of families: recorded ones, variations of these, and those that grammars draw."""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path

from conformance.oracle.answers import JsonObject
from conformance.oracle.grammar import GRAMMARS, draw_case
from conformance.oracle.script_variations import ScriptVariations
from conformance.oracle.variations import Variations

_CASES = Path(__file__).parent.parent / "cases"
_VERSIONS = sorted(folder.name for folder in _CASES.iterdir())

SOURCES = ("variations", "grammars", "both")

Maker = Callable[[int], JsonObject]


class Families:
    """The families of a version. Recorded ones that it lacks are those of the versions before it.

    A version that is answered as the one before it, word for word, has no record of its own.
    """

    def __init__(self, version: str) -> None:
        self._version = version
        self._files = {
            path.name.removesuffix(".jsonl.gz"): path
            for older in _VERSIONS
            if older <= version
            for path in sorted((_CASES / older).iterdir())
        }

    def names(self, source: str = "both") -> list[str]:
        """Return the names of all families, or of those of one of the ``SOURCES``."""
        recorded = [] if source == "grammars" else sorted(self._files)
        return recorded + ([] if source == "variations" else [*GRAMMARS])

    def recorded(self, names: Sequence[str]) -> Mapping[str, list[JsonObject]]:
        """Return the cases that are recorded for this very version, by family."""
        own = (name for name in names if name in self._files)
        return {
            name: self._recorded[name]
            for name in own
            if self._files[name].parent.name == self._version
        }

    @cached_property
    def _recorded(self) -> Mapping[str, list[JsonObject]]:
        return {name: read(path) for name, path in sorted(self._files.items())}

    def maker(self, family: str, seed: str) -> Maker:
        """Return a function that makes the cases of a family, by number, always the same.

        Ends the program with all names if there is no such family.
        """
        named = f"{family}-{seed}"
        if family in self._files:
            scripts = _is_script(self._recorded[family])
            similar = {
                name: some for name, some in self._recorded.items() if _is_script(some) is scripts
            }
            vary = ScriptVariations if scripts else Variations
            variations = vary(f"{seed}-{family}", similar)
            return lambda number: variations.make(family, f"{named}-{number}")
        if family in GRAMMARS:
            return lambda number: draw_case(family, f"{named}-{number}")
        sys.exit(f"no family {family}; there are {', '.join(self.names())}")


def in_batches(make: Maker, count: int, size: int = 100) -> Iterator[list[JsonObject]]:
    """Yield the first cases of a maker, some at a time."""
    for start in range(0, count, size):
        yield [make(number) for number in range(start, min(start + size, count))]


def read(path: Path) -> list[JsonObject]:
    """Return the cases of a file."""
    with gzip.open(path, "rt") as lines:
        return [json.loads(line) for line in lines]


def _is_script(cases: Sequence[JsonObject]) -> bool:
    return "steps" in cases[0]
