"""Compare proreus's decisions with kube-scheduler's on random cases, or two versions of that.

    PYTHONPATH=tests python -m conformance.oracle.fuzz ORACLE [FAMILY ...] [--against ORACLE]
        [--cases N] [--seed S]

A family is one of the recorded ones, whose cases are varied, or one of the grammars, which draw new
cases; the default is all of them (``--from`` selects which). ORACLE is the program ``oracle-1.38``
that is built from this folder for a version; first of all it must answer the recorded cases of its
version as recorded. proreus emulates the version. Cases that differ are written to a file, a line
each, with both answers; ``report`` groups them, and ``minimise`` reduces them.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
from collections.abc import Iterator
from pathlib import Path

from conformance.oracle.answers import JsonObject, Oracle, Proreus, differences
from conformance.oracle.cases import SOURCES, Families, Maker, in_batches
from conformance.oracle.report import report


def main() -> int:
    """Compare and report; exit with 1 where answers differ."""
    options = _options()
    logging.disable(logging.CRITICAL)  # odd cases would log a lot
    oracle: Oracle = options.oracle
    other: Oracle | Proreus = options.against or Proreus(oracle.version)
    families = Families(str(oracle.version))
    wanted = options.families or families.names(options.source)
    for family, cases in families.recorded(wanted).items():
        _check(oracle, family, cases)
    found: list[JsonObject] = []
    with options.out.open("w") as out:
        for family in wanted:
            differing = chance = 0
            for one in _differing(oracle, other, families.maker(family, options.seed), options):
                if oracle.left_to_chance(*one) or other.left_to_chance(one[0], one[2], one[1]):
                    chance += 1
                    continue
                differing += 1
                case, *answers = one
                of = (oracle.name, other.name)
                found.append({"family": family, "case": case, "of": of, "answers": answers})
                out.write(json.dumps(found[-1]) + "\n")
                out.flush()
            summary = f"{options.cases:6} cases, {differing} differ, {chance} are left to chance"
            print(f"{family:18}{summary}", flush=True)
    if found:
        print(f"\n{report(found)}\nsee {options.out}")
    return 1 if found else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("oracle", type=Oracle.parse)
    parser.add_argument("families", nargs="*", metavar="FAMILY")
    parser.add_argument("--against", type=Oracle.parse, help="another version (default: proreus)")
    parser.add_argument("--from", dest="source", choices=SOURCES, default="both")
    parser.add_argument("--cases", type=int, default=200, help="a family (default: 200)")
    parser.add_argument("--seed", default="0")
    parser.add_argument("--out", type=Path, default=Path("differences.jsonl"))
    return parser.parse_intermixed_args()


def _check(oracle: Oracle, family: str, cases: list[JsonObject]) -> None:
    answers = oracle.answers(cases, as_they_are=True)
    for case in cases:
        want, got = case["expect"], answers[case["id"]]
        if differences(want, got) and not oracle.left_to_chance(case, want, got):
            sys.exit(f"{case['id']}: the oracle answers it otherwise than recorded; wrong version?")


def _differing(
    oracle: Oracle, other: Oracle | Proreus, make: Maker, options: argparse.Namespace
) -> Iterator[tuple[JsonObject, JsonObject, JsonObject]]:
    """Yield cases with different answers, with both of them."""
    for cases in in_batches(make, options.cases):
        theirs, others = oracle.answers(cases), other.answers(cases)
        for case in cases:
            want, got = theirs[case["id"]], others[case["id"]]
            if differences(want, got):
                yield case, want, got


if __name__ == "__main__":
    sys.exit(main())
