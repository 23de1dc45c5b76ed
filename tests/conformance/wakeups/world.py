"""Small worlds in which much happens: few names a kind, few variants an object.

A step puts an object of a kind, changes it, or deletes it; every watched event comes about so. As
there is little to choose from, what a pod waits for often comes soon after.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from conformance.oracle.grammar.draw import Draw, JsonObject

Make = Callable[[Draw, str], JsonObject]
"""Draws an object of a name."""

Change = Callable[[Draw, str], JsonObject]
"""Draws a merge patch for the object of a name: what the API lets anybody change."""


Gates = Mapping[str, Sequence[str]]


class Kind(Struct, frozen=True):
    """The objects of a kind: their names, how they are made, what changes.

    ``often``: how often a step is about this kind, beside others. ``at_start``: the share of the
    objects that exist at the start.
    """

    names: Sequence[str]
    make: Make
    changes: Sequence[Change] = ()
    often: float = 1.0
    at_start: float = 0.7


class World(Struct, frozen=True):
    """Kinds of objects, and what a scheduler is configured with.

    ``gates``: settings of feature gates, by version; ``may``: those that some scripts have.
    ``extenders``: draws the answers of HTTP extenders. ``pauses``: how many seconds pass at times.
    """

    kinds: Sequence[Kind]
    gates: Gates = {}
    may: Gates = {}
    config: JsonObject | None = None
    extenders: Callable[[Draw], JsonObject] | None = None
    pauses: Sequence[float] = (0.5, 1, 2, 5, 12)


def write(draw: Draw, world: World, version: str, steps: int = 24) -> JsonObject:
    """Return a script in a world."""
    known: dict[tuple[int, str], JsonObject] = {}
    objects = []
    for number, kind in enumerate(world.kinds):
        for name in kind.names:
            if draw.chance(kind.at_start):
                one = known[number, name] = kind.make(draw, name)
                objects.append(one)
    script: list[JsonObject] = [{"schedule": 20}]
    weights = {number: kind.often for number, kind in enumerate(world.kinds)}
    for _ in range(steps):
        number = draw.weighted(weights)
        kind, name = world.kinds[number], draw.choice(world.kinds[number].names)
        script += _steps_about(draw, kind, name, known, (number, name))
        if draw.chance(0.75):
            script.append({"schedule": 20})
        if draw.chance(0.2):
            script.append({"advance": draw.choice(world.pauses)})
    script += [{"advance": 12}, {"schedule": 20}]
    may = [gate for gate in world.may.get(version, ()) if draw.chance(0.25)]
    extenders = {} if world.extenders is None else {"extenders": world.extenders(draw)}
    return {
        **extenders,
        "kubernetesVersion": version,
        "features": [*world.gates.get(version, ()), *may],
        "config": world.config,
        "objects": objects,
        "steps": script,
    }


def _steps_about(
    draw: Draw,
    kind: Kind,
    name: str,
    known: dict[tuple[int, str], JsonObject],
    place: tuple[int, str],
) -> list[JsonObject]:
    """Return the steps that put, change or delete an object."""
    one = known.get(place)
    if one is None:
        made = known[place] = kind.make(draw, name)
        return [{"add": made}]
    reference = _reference(one)
    if kind.changes and draw.chance(0.7):
        return [{"patch": {**reference, "patch": draw.choice(kind.changes)(draw, name)}}]
    del known[place]
    return [{"delete": reference}]


def _reference(one: JsonObject) -> JsonObject:
    found = {"kind": one["kind"], "name": one["metadata"]["name"]}
    if namespace := one["metadata"].get("namespace"):
        found["namespace"] = namespace
    return found
