"""Everything at once: volumes, devices, wishes and priorities on the same few nodes."""

from __future__ import annotations

from collections.abc import Sequence

from conformance.oracle.grammar import placement
from conformance.oracle.grammar.claims import devices_wanted
from conformance.oracle.grammar.configurations import configured
from conformance.oracle.grammar.draw import Draw, JsonObject
from conformance.oracle.grammar.preemption import preemption
from conformance.oracle.grammar.volumes import volumes_wanted


def mixture(draw: Draw) -> JsonObject:
    """Return a case that is made of cases of other grammars.

    Nodes and namespaces are those of the first that has them; the pod wants what all their pods
    want.
    """
    parts = [preemption(draw), volumes_wanted(draw), devices_wanted(draw)]
    if draw.chance(0.5):
        draw.shuffle(parts)
    seen: dict[tuple[str, str], JsonObject] = {}
    for number, part in enumerate(parts):
        for one in part["objects"]:
            if one["kind"] == "Pod":
                _rename(one, f"{one['metadata']['name']}-{number}")
            seen.setdefault((one["kind"], one["metadata"]["name"]), one)
    pod = _together([part["pod"] for part in parts])
    placement.wish(draw, pod, 0.1)
    pod["spec"]["priority"] = draw.choice((0, 10, 1000))
    config = configured(draw)["config"] if draw.chance(0.2) else None
    return {"config": config, "objects": list(seen.values()), "pod": pod}


def _rename(pod: JsonObject, name: str) -> None:
    pod["metadata"] |= {"name": name, "uid": f"{pod['metadata']['namespace']}/{name}"}


def _together(pods: Sequence[JsonObject]) -> JsonObject:
    """Return the first pod with the volumes and claims of all."""
    first, *others = pods
    spec = first["spec"]
    for other in (one["spec"] for one in others):
        for part in ("volumes", "resourceClaims", "tolerations"):
            if part in other:
                spec.setdefault(part, []).extend(other[part])
        for container in other["containers"]:
            container["name"] += f"-{len(spec['containers'])}"
        spec["containers"] += other["containers"]
    return first
