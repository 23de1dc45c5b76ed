"""Hold proreus's decisions against kube-scheduler's on random variations of the recorded cases.

    PYTHONPATH=tests python -m conformance.oracle.fuzz ORACLE [FAMILY ...] [--cases N] [--seed S]

ORACLE is the program that is built from this folder; before anything else it must answer the
recorded cases as recorded. Cases that differ are written to a file, a line each, with both answers.
"""

from __future__ import annotations

import argparse
import gzip
import json
import logging
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from conformance import compare
from conformance.oracle.variations import JsonObject, Variations
from proreus.offline.evaluate import evaluate
from proreus.plugins import IN_TREE
from proreus.runtime.registry import Registry

CASES = Path(__file__).parent.parent / "cases"
SCRIPTS = ("queue", "requeue")
_BATCH = 200
_ORACLE_SECONDS = 300
_BAD_SCORE = "returns an invalid score"
"""kube-scheduler's own arithmetic gone wrong, on numbers that no API would accept."""

_NOT_ASKED = ("objects[", "pod:")
"""How faults begin of questions that Go cannot read: nobody's to answer."""


def main() -> int:
    """Compare and report; exit with 1 where answers differ."""
    options = _options()
    logging.disable(logging.CRITICAL)  # odd cases make for much to be said
    families = {family: list(_read(family)) for family in _decision_families()}
    for family in options.families or families:
        wrong = sum(1 for _ in _misjudged(options.oracle, families[family]))
        if wrong:
            sys.exit(
                f"{family}: the oracle answers {wrong} recorded cases otherwise; wrong version?"
            )
    different = 0
    with options.out.open("w") as out:
        for family in options.families or families:
            found = list(_differences(options, family, families))
            different += len(found)
            print(f"{family:10} {options.cases:6} cases, {len(found)} differ", flush=True)
            out.writelines(json.dumps(one) + "\n" for one in found)
    if different:
        print(f"see {options.out}")
    return 1 if different else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("oracle", type=Path)
    parser.add_argument("families", nargs="*", metavar="FAMILY")
    parser.add_argument("--cases", type=int, default=200, help="a family (default: 200)")
    parser.add_argument("--seed", default="0")
    parser.add_argument("--out", type=Path, default=Path("differences.jsonl"))
    return parser.parse_intermixed_args()


def _decision_families() -> list[str]:
    names = sorted(path.name.removesuffix(".jsonl.gz") for path in CASES.iterdir())
    return [name for name in names if name not in SCRIPTS]


def _read(family: str) -> Iterator[JsonObject]:
    with gzip.open(CASES / f"{family}.jsonl.gz", "rt") as lines:
        yield from map(json.loads, lines)


def _misjudged(oracle: Path, cases: Sequence[JsonObject]) -> Iterator[str]:
    answers = ask(oracle, cases)
    for case in cases:
        if compare.differences(case["expect"], answers[case["id"]]):
            yield case["id"]


def _differences(
    options: argparse.Namespace, family: str, families: dict[str, list[JsonObject]]
) -> Iterator[JsonObject]:
    variations = Variations(f"{options.seed}-{family}", families)
    for start in range(0, options.cases, _BATCH):
        numbers = range(start, min(start + _BATCH, options.cases))
        cases = [variations.make(family, f"{family}-{options.seed}-{n}") for n in numbers]
        theirs = ask(options.oracle, cases)
        for case in cases:
            want, got = theirs[case["id"]], _own(case)
            if differ(want, got):
                yield {"case": case, "kube-scheduler": want, "proreus": got}


def ask(oracle: Path, cases: Sequence[JsonObject]) -> dict[str, JsonObject]:
    """Return kube-scheduler's answers by id.

    Some questions make kube-scheduler itself crash, and the oracle with it: the rest is asked again
    in halves.
    """
    text = "".join(json.dumps(case) + "\n" for case in cases)
    done = subprocess.run(
        [oracle.resolve()], input=text, capture_output=True, text=True, timeout=_ORACLE_SECONDS
    )
    if done.returncode == 0:
        return {line["id"]: line["expect"] for line in map(json.loads, done.stdout.splitlines())}
    if len(cases) == 1:
        return {cases[0]["id"]: {"error": f"crash: {done.stderr[:500]}"}}
    half = len(cases) // 2
    return ask(oracle, cases[:half]) | ask(oracle, cases[half:])


def _own(case: JsonObject) -> JsonObject:
    try:
        (answer,) = evaluate([case], Registry(IN_TREE))
    except Exception as error:  # that there is one is what must be told
        return {"error": f"{type(error).__name__}: {error}"}
    expect: JsonObject = json.loads(json.dumps(answer["expect"]))
    return expect


def differ(want: JsonObject, got: JsonObject) -> bool:
    """Tell whether answers differ in more than in how an internal error is worded."""
    fault = want.get("error", "")
    if fault:
        unanswerable = fault.startswith((*_NOT_ASKED, "crash", "panic")) or _BAD_SCORE in fault
        return not (unanswerable or got.get("error") or _failed_in_pre_filter(got))
    if got.get("error") and any(v["code"] == "Error" for v in want.get("filter", {}).values()):
        return False
    return bool(compare.differences(want, got))


def _failed_in_pre_filter(answer: JsonObject) -> bool:
    return bool(answer.get("preFilter", {}).get("code") == "Error")


if __name__ == "__main__":
    sys.exit(main())
