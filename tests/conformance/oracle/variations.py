"""Random variations of recorded cases, with values that occur in recorded ones.

A case is recombined with another (its pod, its configuration, some of its objects) and then changed
here and there: a value becomes one that stands at the same place elsewhere, a field comes or goes,
a number or an amount becomes an odd one. What comes out may be what no API would accept.
"""

from __future__ import annotations

import copy
import random
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

JsonObject = dict[str, Any]
Path = tuple[str, ...]
"""The path of a value: the kind, then fields; ``*`` for any index of a list."""

_SAMPLES = 60
"""How many values are kept for each path, as an unbiased sample."""

_CONFIGURATION = {
    "apiVersion": "kubescheduler.config.k8s.io/v1",
    "kind": "KubeSchedulerConfiguration",
}
_NUMBERS = (0, 1, 2, -1, 3, 50, 99, 100, 101, 1000, 2**31 - 1)
_AMOUNTS = ("0", "1", "-1", "1m", "0.5", "1500m", "1Ki", "1.5Gi", "1e3", "1e13", "10Ti", "1n")
_OF_AMOUNTS = frozenset({"requests", "limits", "capacity", "allocatable", "overhead"})
_IDENTITY = frozenset({"name", "namespace", "uid", "resourceVersion"})
_ROUNDS = (0, 1, 1, 2, 2, 3, 4, 6)


class Vocabulary:
    """The values and fields of each path, collected from cases."""

    def __init__(self, rng: random.Random, cases: Sequence[JsonObject]) -> None:
        self._rng = rng
        self.values: dict[Path, list[Any]] = defaultdict(list)
        self.fields: dict[Path, dict[str, None]] = defaultdict(dict)
        self._seen: dict[Path, int] = defaultdict(int)
        for case in cases:
            added = [step["add"] for step in case.get("steps", ()) if "add" in step]
            pods = [case["pod"]] if "pod" in case else []
            for one in (*case["objects"], *pods, *added):
                self.learn((one["kind"],), one)
            if isinstance(case["config"], dict):
                self.learn(("config",), case["config"])
            for by_verb in case.get("extenders", {}).values():
                for verb, response in by_verb.items():
                    self.learn(("extenders", verb), response)

    def learn(self, path: Path, value: Any) -> None:
        """Add a value and everything in it."""
        samples = self.values[path]
        self._seen[path] += 1
        if len(samples) < _SAMPLES:
            samples.append(value)
        elif (place := self._rng.randrange(self._seen[path])) < _SAMPLES:
            samples[place] = value
        if isinstance(value, dict):
            for field, part in value.items():
                self.fields[path].setdefault(field)
                self.learn((*path, field), part)
        elif isinstance(value, list):
            for part in value:
                self.learn((*path, "*"), part)

    def another(self, path: Path) -> Any:
        """Return a copy of a value that occurs at this path."""
        return copy.deepcopy(self._rng.choice(self.values[path]))


class Variations:
    """Makes cases from recorded ones, the same for the same seed."""

    def __init__(self, seed: str, families: Mapping[str, Sequence[JsonObject]]) -> None:
        self._rng = random.Random(seed)
        self._families = families
        """Recorded cases by family."""
        every = [case for cases in families.values() for case in cases]
        self.words = Vocabulary(self._rng, every)

    def make(self, family: str, name: str) -> JsonObject:
        """Return a case with this id, made from one of the family."""
        rng = self._rng
        case = self._draw(family)
        other = self._draw(family if rng.random() < 0.7 else rng.choice(list(self._families)))
        kind_of_mix = rng.random()
        if kind_of_mix < 0.35:
            case["pod"] = other["pod"]
        elif kind_of_mix < 0.6:
            self._join(case["objects"], other["objects"])
        elif kind_of_mix < 0.75:
            take_configuration(case, other)
        for _ in range(rng.choice(_ROUNDS)):
            self._change_something(case, 0.7 if family in ("config", "badconfig") else 0.12)
        case["objects"] = list(_unique(case["pod"], case["objects"]))
        return {"id": name, **case}

    def _draw(self, family: str) -> JsonObject:
        case = self._rng.choice(self._families[family])
        parts = ("features", "config", "extenders", "objects", "pod")
        return copy.deepcopy({part: case[part] for part in parts if part in case})

    def _join(self, objects: list[JsonObject], others: Sequence[JsonObject]) -> None:
        """Add objects of other cases; for the same name, either one is kept."""
        share = self._rng.choice((0.2, 0.5, 1.0))
        places = {identity(one): place for place, one in enumerate(objects)}
        for one in others:
            if self._rng.random() > share:
                continue
            place = places.get(identity(one))
            if place is None:
                objects.append(one)
            elif self._rng.random() < 0.5:
                objects[place] = one

    def _change_something(self, case: JsonObject, share_of_configuration: float) -> None:
        rng = self._rng
        if "extenders" in case and rng.random() < 0.3:
            self._change_extender(case["extenders"])
        elif rng.random() < share_of_configuration:
            case["config"] = case["config"] or dict(_CONFIGURATION)
            self._change(case["config"], ("config",))
        elif rng.random() < 0.5 or not case["objects"]:
            self._change(case["pod"], ("Pod",))
        else:
            kind = rng.choice(sorted({one["kind"] for one in case["objects"]}))
            one = rng.choice([one for one in case["objects"] if one["kind"] == kind])
            self._change(one, (kind,))

    def _change_extender(self, behaviours: JsonObject) -> None:
        """Let one of the extenders answer one verb otherwise."""
        by_verb = self._rng.choice(list(behaviours.values()))
        verb = self._rng.choice(list(by_verb))
        by_verb[verb] = self.words.another(("extenders", verb))

    def _change(self, root: JsonObject, path: Path) -> None:
        """Change one value; all paths are equally likely, however often they occur."""
        places: dict[Path, list[tuple[Any, Any]]] = defaultdict(list)
        for holder, key, where in _places(root, path):
            places[where].append((holder, key))
        if not places:
            return
        where = self._rng.choice(sorted(places))
        holder, key = self._rng.choice(places[where])
        luck = self._rng.random()
        if luck < 0.12:
            del holder[key]
        elif luck < 0.45 and self.words.values.get(where):
            holder[key] = self.words.another(where)
        elif isinstance(holder[key], dict):
            self._change_fields(holder[key], where, luck)
        elif isinstance(holder[key], list):
            self._change_list(holder[key], where, luck)
        else:
            holder[key] = self._odd(holder[key], where)

    def _change_fields(self, value: JsonObject, where: Path, luck: float) -> None:
        fields = sorted(self.words.fields.get(where, ()))
        if luck < 0.85 and fields:
            field = self._rng.choice(fields)
            value[field] = self.words.another((*where, field))
        else:
            value.clear()

    def _change_list(self, value: list[Any], where: Path, luck: float) -> None:
        if luck < 0.7 and self.words.values.get((*where, "*")):
            place = self._rng.randint(0, len(value))
            value.insert(place, self.words.another((*where, "*")))
        elif luck < 0.85 and value:
            value.append(copy.deepcopy(self._rng.choice(value)))
        else:
            value.clear()

    def _odd(self, value: Any, where: Path) -> Any:
        if isinstance(value, bool):
            return not value
        if isinstance(value, int):
            return self._rng.choice((*_NUMBERS, value + 1, value - 1, 2 * value, -value))
        if not isinstance(value, str) or where[-1].endswith(("Timestamp", "Time")):
            return value
        if where[-2] in _OF_AMOUNTS or where[-1] == "storage":
            return self._rng.choice(_AMOUNTS)
        return self._rng.choice(("", "x", value + "x", value.upper()))


def take_configuration(case: JsonObject, other: JsonObject) -> None:
    """Give a case the configuration of another, and what its extenders answer."""
    case["config"] = other["config"]
    case.pop("extenders", None)
    if "extenders" in other:
        case["extenders"] = other["extenders"]


def _places(value: Any, path: Path) -> Iterator[tuple[Any, Any, Path]]:
    """Yield container, key and path of everything that may be changed."""
    for key, part in value.items() if isinstance(value, dict) else enumerate(value):
        if isinstance(value, dict) and (
            key in ("apiVersion", "kind") or (path[1:] == ("metadata",) and key in _IDENTITY)
        ):
            continue
        where = (*path, key) if isinstance(value, dict) else (*path, "*")
        if where[1:] not in (("metadata",), ("spec",)):
            yield value, key, where
        if isinstance(part, dict | list):
            yield from _places(part, where)


def _unique(pod: JsonObject, objects: Sequence[JsonObject]) -> Iterator[JsonObject]:
    """Yield the objects with unique names and pod UIDs, as an apiserver ensures."""
    seen = {identity(pod)}
    for one in objects:
        if identity(one) in seen:
            continue
        seen.add(identity(one))
        if one["kind"] == "Pod":
            one["metadata"]["uid"] = "/".join(map(str, identity(one)))
        yield one


def identity(one: JsonObject) -> tuple[str, str, str]:
    """Return the key that is unique in an API: kind, namespace and name."""
    meta = one["metadata"]
    return one["kind"], meta.get("namespace", ""), meta["name"]
