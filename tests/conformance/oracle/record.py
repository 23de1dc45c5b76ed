"""Record fresh cases of a version, with what kube-scheduler answers to them each time.

    PYTHONPATH=tests python -m conformance.oracle.record ORACLE [FAMILY ...] [--cases N] [--seed S]
        [--out FOLDER]

Each case is asked several times, with its nodes in another order each time. What is not answered
alike each time is left to chance, and left out. The files have the form of those in ``../cases``,
where they belong in a folder for the version.
"""

from __future__ import annotations

import argparse
import gzip
import json
import logging
from collections.abc import Iterator
from pathlib import Path

from conformance.oracle.answers import JsonObject, Oracle, differences
from conformance.oracle.cases import SOURCES, Families, Maker, in_batches
from conformance.oracle.grammar.draw import Draw
from conformance.oracle.of_version import of_version

_AT_ONCE = 20


def main() -> None:
    """Write a file for each family."""
    options = _options()
    logging.disable(logging.CRITICAL)
    oracle: Oracle = options.oracle
    families = Families(str(oracle.version))
    options.out.mkdir(parents=True, exist_ok=True)
    for family in options.families or families.names(options.source):
        kept = list(_kept(oracle, families.maker(family, options.seed), options))
        with gzip.open(options.out / f"{family}.jsonl.gz", "wt") as file:
            file.writelines(json.dumps(case) + "\n" for case in kept)
        print(f"{family:18}{options.cases:6} cases, {len(kept)} are kept", flush=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("oracle", type=Oracle.parse)
    parser.add_argument("families", nargs="*", metavar="FAMILY")
    parser.add_argument("--from", dest="source", choices=SOURCES, default="both")
    parser.add_argument("--cases", type=int, default=220, help="a family (default: 220)")
    parser.add_argument("--times", type=int, default=6, help="each is asked (default: 6)")
    parser.add_argument("--seed", default="0")
    parser.add_argument("--out", type=Path, default=Path("cases"))
    return parser.parse_intermixed_args()


def _kept(oracle: Oracle, make: Maker, options: argparse.Namespace) -> Iterator[JsonObject]:
    for cases in in_batches(make, options.cases, _AT_ONCE):
        asked = {case["id"]: _shuffled(case, options.times) for case in cases}
        answers = oracle.answers([one for some in asked.values() for one in some])
        for case in cases:
            first, *others = [answers[one["id"]] for one in asked[case["id"]]]
            alike = not any(differences(first, one) for one in others)
            if alike and not first.get("error"):
                yield of_version(case, oracle.version) | {"expect": first}


def _shuffled(case: JsonObject, times: int) -> list[JsonObject]:
    """Return a case several times, with its nodes in the same places in any order."""
    nodes = [one for one in case["objects"] if one.get("kind") == "Node"]
    found = []
    for number in range(times):
        name = f"{case['id']}/{number}"
        order = iter(Draw(name).sample(nodes, len(nodes)))
        objects = [next(order) if one.get("kind") == "Node" else one for one in case["objects"]]
        found.append(case | {"id": name, "objects": objects})
    return found


if __name__ == "__main__":
    main()
