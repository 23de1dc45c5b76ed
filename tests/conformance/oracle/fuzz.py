"""Compare proreus's decisions with kube-scheduler's on random cases.

    PYTHONPATH=tests python -m conformance.oracle.fuzz ORACLE [FAMILY ...] [--kubernetes 1.37]
        [--cases N] [--seed S]

A family is one of the recorded ones of that version, whose cases are varied, or one of the
grammars, which draw new cases; the default is all of them (``--from`` selects which). ORACLE is the
program that is built from this folder for the version; first of all it must answer the recorded
cases as recorded. proreus emulates the version. Cases that differ are written to a file, a line
each, with both answers; ``minimise`` reduces them.
"""

from __future__ import annotations

import argparse
import gzip
import json
import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from conformance.oracle.answers import JsonObject, ask, differences, left_to_chance, own
from conformance.oracle.grammar import GRAMMARS, draw_case
from conformance.oracle.script_variations import ScriptVariations
from conformance.oracle.variations import Variations

CASES = Path(__file__).parent.parent / "cases"
VERSIONS = sorted(folder.name for folder in CASES.iterdir())
_BATCH = 100
_PARTS = ("case", "kube-scheduler", "proreus")


def main() -> int:
    """Compare and report; exit with 1 where answers differ."""
    options = _options()
    logging.disable(logging.CRITICAL)  # odd cases would log a lot
    recorded = _recorded_families(options.kubernetes)
    sources = {"variations": [*recorded], "grammars": [*GRAMMARS], "both": [*recorded, *GRAMMARS]}
    wanted = options.families or sources[options.source]
    for family in recorded.keys() & {*wanted}:
        _check_oracle(options.oracle, family, recorded[family])
    different = 0
    with options.out.open("w") as out:
        for family in wanted:
            found = chance = 0
            for one in _differing(options, _maker(family, options, recorded)):
                if left_to_chance(options.oracle, *one):
                    chance += 1
                    continue
                found += 1
                out.write(json.dumps(dict(zip(_PARTS, one, strict=True))) + "\n")
                out.flush()
            different += found
            summary = f"{options.cases:6} cases, {found} differ, {chance} are left to chance"
            print(f"{family:18}{summary}", flush=True)
    if different:
        print(f"see {options.out}")
    return 1 if different else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("oracle", type=Path)
    parser.add_argument("families", nargs="*", metavar="FAMILY")
    sources = ("variations", "grammars", "both")
    parser.add_argument("--kubernetes", choices=VERSIONS, default=VERSIONS[-1])
    parser.add_argument("--from", dest="source", choices=sources, default="both")
    parser.add_argument("--cases", type=int, default=200, help="a family (default: 200)")
    parser.add_argument("--seed", default="0")
    parser.add_argument("--out", type=Path, default=Path("differences.jsonl"))
    return parser.parse_intermixed_args()


def _recorded_families(version: str) -> dict[str, list[JsonObject]]:
    """Return the cases of all families, by name.

    A family that a version answers as the one before it did is recorded for that one only.
    """
    files = {
        path.name.removesuffix(".jsonl.gz"): path
        for older in VERSIONS[: VERSIONS.index(version) + 1]
        for path in sorted((CASES / older).iterdir())
    }
    return {name: list(_read(path)) for name, path in sorted(files.items())}


def _read(path: Path) -> Iterator[JsonObject]:
    with gzip.open(path, "rt") as lines:
        yield from map(json.loads, lines)


def _check_oracle(oracle: Path, family: str, cases: Sequence[JsonObject]) -> None:
    answers = ask(oracle, cases)
    wrong = sum(1 for case in cases if differences(case["expect"], answers[case["id"]]))
    if wrong:
        sys.exit(f"{family}: the oracle answers {wrong} recorded cases otherwise; wrong version?")


def _maker(
    family: str, options: argparse.Namespace, recorded: dict[str, list[JsonObject]]
) -> Callable[[int], JsonObject]:
    """Return a function that makes the cases of a family, by number."""
    named, stated = f"{family}-{options.seed}", {"kubernetesVersion": options.kubernetes}
    if family in recorded:
        scripts = _is_script(recorded[family])
        similar = {name: some for name, some in recorded.items() if _is_script(some) is scripts}
        vary = ScriptVariations if scripts else Variations
        variations = vary(f"{options.seed}-{family}", similar)
        return lambda number: variations.make(family, f"{named}-{number}") | stated
    if family in GRAMMARS:
        return lambda number: draw_case(family, f"{named}-{number}", options.kubernetes) | stated
    sys.exit(f"no family {family}; there are {', '.join((*recorded, *GRAMMARS))}")


def _is_script(cases: Sequence[JsonObject]) -> bool:
    return "steps" in cases[0]


def _differing(
    options: argparse.Namespace, make: Callable[[int], JsonObject]
) -> Iterator[tuple[JsonObject, JsonObject, JsonObject]]:
    """Yield cases with different answers, with both of them."""
    for start in range(0, options.cases, _BATCH):
        cases = [make(n) for n in range(start, min(start + _BATCH, options.cases))]
        theirs = ask(options.oracle, cases)
        for case in cases:
            want, got = theirs[case["id"]], own(case)
            if differences(want, got):
                yield case, want, got


if __name__ == "__main__":
    sys.exit(main())
