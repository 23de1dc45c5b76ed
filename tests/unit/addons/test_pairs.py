"""Add-ons that are enabled together do what each of them does alone, in random scripts.

``PROREUS_PAIR_SCRIPTS`` is how many scripts are drawn (``make test-addon-pairs``).
"""

from __future__ import annotations

import os
from itertools import combinations
from random import Random

import pytest

from proreus.framework import QueueSortPlugin, ScorePlugin
from proreus.plugins.default_preemption import DefaultPreemption
from proreus.process.loading.load import add_ons
from unit.addons.pair_scripts import FEATURES, SORT_ONLY, Result, Script, class_of, nothing

SCRIPTS = int(os.environ.get("PROREUS_PAIR_SCRIPTS", "60"))
TOGETHER = tuple(name for name in add_ons() if name != SORT_ONLY[1])
PAIRS = [pair for pair in combinations(add_ons(), 2) if set(pair) != set(SORT_ONLY)]
# First those of add-ons that have objects, labels or annotations of their own.
PAIRS.sort(key=lambda pair: sum(FEATURES[name] is nothing for name in pair))
# In every fifth script all are enabled, and its pods have to do with some of them.
EVERY = 5
# An idle add-on changes no node, but for those that choose. A dry run of preemption draws the node
# that it begins with, from the generator that chooses among equal nodes.
CHOOSING = (QueueSortPlugin, ScorePlugin, DefaultPreemption)


def described(seed: int, add_ons: tuple[str, ...], result: Result, keys: set[str]) -> str:
    named = " and ".join(add_ons) if len(add_ons) < 3 else "all add-ons"
    return f"script {seed} with {named}: " + "; ".join(
        f"{key} on {result.nodes[key] or 'no node'} ({result.why[key]})" for key in sorted(keys)
    )


def check(seed: int, enabled: tuple[str, ...], of: tuple[str, ...]) -> None:
    script = Script(seed, of)
    together = script.run(enabled)
    expected, alone = together.nodes.keys(), {}
    for name in of:
        alone[name] = script.run((name,))
        refused = {unit.name for unit in script.units if unit.refused_by == name}
        ran = {key for key in alone[name].nodes if key.partition("/")[0] not in refused}
        differs = ran ^ alone[name].bound
        assert not differs, described(seed, (name,), alone[name], differs)
        expected = expected & alone[name].bound
    differs = set(expected) ^ together.bound
    assert not differs, described(seed, enabled, together, differs)
    if "Reservation" in of:
        for unit in script.units:
            found = together.reservations.get(unit.name)
            assert unit.refused_by or found == alone["Reservation"].reservations.get(unit.name), (
                f"script {seed} with {enabled}: reservation {unit.name} is {found}"
            )
    if len(enabled) > 2:
        return
    for name, other in (of, of[::-1]):
        idle = not any(other in unit.features for unit in script.units)
        if idle and not issubclass(class_of(other), CHOOSING):
            assert together.nodes == alone[name].nodes


@pytest.mark.parametrize("seed", range(SCRIPTS))
def test_what_runs_with_each_runs_with_both(seed: int) -> None:
    number, rest = divmod(seed, EVERY)
    if rest == EVERY - 1:
        check(seed, TOGETHER, tuple(Random(seed).sample(TOGETHER, 4)))
    else:
        pair = PAIRS[(number * (EVERY - 1) + rest) % len(PAIRS)]
        check(seed, pair, pair)
