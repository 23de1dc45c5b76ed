"""Look for pods that are left behind, in random scripts.

    PYTHONPATH=tests python -m conformance.wakeups.run [WORLD ...] [--scripts N] [--seed S]
        [--seconds N] [--out FILE] [--replay FILE]

The scripts of a world take turns with Kubernetes versions. The first script of each kind of finding
is reduced and written to a file, a line each, in the form that ``proreus evaluate`` plays too;
``--replay`` plays such a file.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from time import monotonic

from conformance.oracle.grammar.draw import Draw, JsonObject
from conformance.shrinking import Shrinking
from conformance.wakeups.play import Finding, play
from conformance.wakeups.world import write
from conformance.wakeups.worlds import WORLDS

VERSIONS = ("1.38", "1.37", "1.36")


def script(world: str, seed: str, number: int) -> JsonObject:
    """Return a script; its name says all of what chance made of it."""
    name = f"{world}-{seed}-{number}"
    versions = list(WORLDS[world].gates) or VERSIONS
    return {"id": name, **write(Draw(name), WORLDS[world], versions[number % len(versions)])}


def main() -> int:
    """Play scripts and report; exit with 1 where pods were left behind."""
    options = _options()
    logging.disable(logging.CRITICAL)  # odd scripts would log a lot
    kinds: Counter[tuple[str, ...]] = Counter()
    played, until = 0, monotonic() + options.seconds
    with options.out.open("w") as out:
        for case in _cases(options):
            if monotonic() > until:
                break
            played += 1
            finding = play(case)
            if finding is None:
                continue
            kind = (case["id"].rsplit("-", 2)[0], *finding.waited_for)
            kinds[kind] += 1
            if kinds[kind] == 1:
                print(f"{case['id']}: {finding}", flush=True)
                small = case if options.replay else smallest(case, finding)
                out.write(json.dumps(small) + "\n")
                out.flush()
    print(f"{played} scripts, {kinds.total()} left a pod behind")
    for kind, count in kinds.most_common():
        print(f"{count:6} {' '.join(kind)}")
    if kinds:
        print(f"see {options.out}")
    return 1 if kinds else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("worlds", nargs="*", metavar="WORLD", help=f"of {', '.join(WORLDS)}")
    parser.add_argument("--scripts", type=int, default=200, help="in all (default: 200)")
    parser.add_argument("--seed", default="0")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="at most")
    parser.add_argument("--out", type=Path, default=Path("left-behind.jsonl"))
    parser.add_argument("--replay", type=Path, help="play the scripts of a file")
    return parser.parse_args()


def _cases(options: argparse.Namespace) -> Iterator[JsonObject]:
    if options.replay:
        yield from map(json.loads, options.replay.read_text().splitlines())
        return
    worlds = options.worlds or list(WORLDS)
    for number in range(options.scripts):
        yield script(worlds[number % len(worlds)], options.seed, number // len(worlds))


def smallest(case: JsonObject, finding: Finding) -> JsonObject:
    """Return a script, as small as can be, in which the pod is left behind for the same reason."""

    def hold(cases: Sequence[JsonObject]) -> list[bool]:
        return [_same(one, finding) for one in cases]

    # Parts of a script that are one object become two.
    return Shrinking(json.loads(json.dumps(case)), hold).small()


def _same(case: JsonObject, finding: Finding) -> bool:
    try:
        found = play(case)
    except Exception:
        return False  # a part was removed that scripts must have
    return found is not None and (found.pod, found.waited_for) == (finding.pod, finding.waited_for)


if __name__ == "__main__":
    sys.exit(main())
