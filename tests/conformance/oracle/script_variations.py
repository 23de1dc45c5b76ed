"""Random variations of recorded scripts: spliced, reordered, and with changed values."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence

from conformance.oracle.variations import (
    JsonObject,
    Variations,
    identity,
    take_configuration,
)

_ROUNDS = (0, 1, 2, 3, 5)
_SECONDS = (0.5, 0.99, 1, 1.5, 2, 3, 4, 5, 8, 10, 12, 30)
_LONGEST = 60


class ScriptVariations(Variations):
    """Makes scripts from recorded ones, the same for the same seed."""

    def __init__(self, seed: str, families: Mapping[str, Sequence[JsonObject]]) -> None:
        super().__init__(seed, families)
        for cases in families.values():
            for step in (step for case in cases for step in case["steps"]):
                if "patch" in step:
                    change = step["patch"]
                    self.words.learn(("patch", change["kind"]), change["patch"])

    def make(self, family: str, name: str) -> JsonObject:
        """Return a script with this id, made from one of the family."""
        rng = self._rng
        case, other = self._draw(family), self._draw(rng.choice(list(self._families)))
        if rng.random() < 0.3:
            take_configuration(case, other)
        if rng.random() < 0.1 and "features" in other:
            case["features"] = other["features"]
        if rng.random() < 0.4:
            here, there = (rng.randrange(len(one["steps"])) for one in (case, other))
            case["steps"] = (case["steps"][:here] + other["steps"][there:])[:_LONGEST]
        if rng.random() < 0.3:
            case["objects"] += other["objects"]
        for _ in range(rng.choice(_ROUNDS)):
            self._change_script(case, other["steps"])
        case["objects"] = list({identity(one): one for one in case["objects"]}.values())
        case["steps"] = list(_once_each(case["objects"], case["steps"]))
        _start_all(case)
        return {"id": name, **case}

    def _draw(self, family: str) -> JsonObject:
        case = self._rng.choice(self._families[family])
        parts = ("features", "observe", "config", "extenders", "objects", "steps")
        return copy.deepcopy({part: case[part] for part in parts if part in case})

    def _change_script(self, case: JsonObject, others: Sequence[JsonObject]) -> None:
        rng, steps = self._rng, case["steps"]
        if not steps or not others:
            return
        place, luck = rng.randrange(len(steps) + 1), rng.random()
        if luck < 0.15:
            del steps[place : place + 1]
        elif luck < 0.3:
            steps.insert(place, copy.deepcopy(rng.choice(others)))
        elif luck < 0.4:
            steps.insert(place, steps.pop(rng.randrange(len(steps))))
        elif luck < 0.5:
            steps.insert(place, {"advance": rng.choice(_SECONDS)})
        elif luck < 0.6:
            steps.insert(place, {"schedule": rng.choice((1, 2, 3, 5))})
        elif luck < 0.85:
            self._change_step(rng.choice(steps))
        elif luck < 0.9 and "extenders" in case:
            self._change_extender(case["extenders"])
        else:
            one = rng.choice(case["objects"])
            self._change(one, (one["kind"],))

    def _change_step(self, step: JsonObject) -> None:
        if "add" in step:
            self._change(step["add"], (step["add"]["kind"],))
        elif "patch" in step:
            change = step["patch"]
            self._change(change["patch"], ("patch", change["kind"]))


def _start_all(case: JsonObject) -> None:
    """Give pods without a start time one each: they would all be equally old at a preemption."""
    added = (step["add"] for step in case["steps"] if "add" in step)
    pods = (one for one in (*case["objects"], *added) if one["kind"] == "Pod")
    for second, pod in enumerate(pods):
        if isinstance(status := pod.setdefault("status", {}), dict):
            status.setdefault("startTime", f"2025-11-01T00:{second // 60:02}:{second % 60:02}Z")


def _once_each(objects: Sequence[JsonObject], steps: Sequence[JsonObject]) -> Iterator[JsonObject]:
    """Yield steps without additions of objects that exist already."""
    seen = {identity(one) for one in objects}
    for step in steps:
        if "add" in step:
            if identity(step["add"]) in seen:
                continue
            seen.add(identity(step["add"]))
        yield step
