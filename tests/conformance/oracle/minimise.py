"""Reduce cases whose answers differ.

    PYTHONPATH=tests python -m conformance.oracle.minimise ORACLE DIFFERENCES [ID ...]
        [--against ORACLE]

Parts are removed as long as the answers still differ in the same aspects: objects and steps first,
then fields. The remaining case is printed with both answers, one document per case.
"""

from __future__ import annotations

import argparse
import json
import logging
from collections.abc import Sequence
from pathlib import Path

from conformance.oracle.answers import JsonObject, Oracle, Proreus, differences
from conformance.shrinking import Shrinking


def main() -> None:
    """Print the reduced cases."""
    options = _options()
    other = options.against or Proreus(options.oracle.version)
    logging.disable(logging.CRITICAL)
    for line in options.differences.read_text().splitlines():
        found = json.loads(line)
        if options.ids and found["case"]["id"] not in options.ids:
            continue
        answers = _Answers(options.oracle, other, found)
        small = Shrinking(found["case"], answers.still_differ).small()
        print(json.dumps(small, indent=1))
        for aspect, (theirs, ours) in answers.differences([small])[0].items():
            print(
                f"{aspect}\n  {options.oracle.name}: {json.dumps(theirs)}\n"
                f"  {other.name}: {json.dumps(ours)}"
            )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("oracle", type=Oracle.parse)
    parser.add_argument("differences", type=Path)
    parser.add_argument("ids", nargs="*", metavar="ID")
    parser.add_argument("--against", type=Oracle.parse, help="as for fuzz (default: proreus)")
    return parser.parse_args()


class _Answers:
    """The answers to the cases that a case is reduced to. ``found``: those to the case itself."""

    def __init__(self, oracle: Oracle, other: Oracle | Proreus, found: JsonObject) -> None:
        self._oracle, self._other = oracle, other
        self._aspects = set(differences(*found["answers"]))
        self._failed = "error" in found["answers"][1]

    def still_differ(self, cases: Sequence[JsonObject]) -> list[bool]:
        """Return which cases have different answers in an aspect of the case itself."""
        return [bool(self._aspects & set(one)) for one in self.differences(cases)]

    def differences(self, cases: Sequence[JsonObject]) -> list[JsonObject]:
        """Return the aspects in which answers differ, by case; none for another kind of error."""
        named = [{**case, "id": f"small-{n}"} for n, case in enumerate(cases)]
        theirs, ours = self._oracle.answers(named), self._other.answers(named)
        return [
            differences(theirs[name], one) if ("error" in one) is self._failed else {}
            for name, one in ours.items()
        ]


if __name__ == "__main__":
    main()
