"""Dense random cases, drawn from grammars: what recorded cases have thinly, or not at all.

A grammar is a function that makes a case out of chance. Each module here is about one part of the
API and ends in the words of those below it: ``objects`` has nodes and pods, ``scripts`` has all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from conformance.oracle.grammar import groups, scripts
from conformance.oracle.grammar.bad_configurations import flawed
from conformance.oracle.grammar.claims import devices_wanted
from conformance.oracle.grammar.configurations import configured, overfull
from conformance.oracle.grammar.device_gates import device_gates
from conformance.oracle.grammar.draw import Draw, JsonObject
from conformance.oracle.grammar.mixture import mixture
from conformance.oracle.grammar.placement import placement
from conformance.oracle.grammar.preemption import preemption
from conformance.oracle.grammar.volumes import volumes_wanted

_GATES = (
    "DRAConsumableCapacity",
    "DRADeviceBindingConditions",
    "DRADeviceTaints",
    "DRAExtendedResource",
    "DRANodeAllocatableResources",
    "DRAPartitionableDevices",
    "DRAPrioritizedList",
    "GenericWorkload",
    "InPlacePodLevelResourcesVerticalScaling",
    "InterPodAffinityHostnameFastPath",
    "MatchLabelKeysInPodTopologySpreadSelectorMerge",
    "NominatedNodeNameForExpectation",
    "SchedulerPopFromBackoffQ",
    "SchedulerPreQueueingHints",
    "StorageCapacityScoring",
    "TaintTolerationComparisonOperators",
    "VolumeLimitScaling",
)
"""Feature gates that change decisions or how they are made, and may be set on their own."""

_WITH_OWN_GATES = ("gated", "device-gates", "flawed")


def gated(draw: Draw) -> JsonObject:
    """Return a case of another grammar under other feature gates."""
    other = draw.choice([name for name in GRAMMARS if name not in _WITH_OWN_GATES])
    gates = [f"{gate}={str(draw.chance(0.5)).lower()}" for gate in draw.sample(_GATES, 2)]
    return GRAMMARS[other](draw) | {"features": gates[: draw.choice((1, 1, 2))]}


GRAMMARS: Mapping[str, Callable[[Draw], JsonObject]] = {
    "placement": placement,
    "configured": configured,
    "overfull": overfull,
    "flawed": flawed,
    "preemption": preemption,
    "volumes": volumes_wanted,
    "device-claims": devices_wanted,
    "device-gates": device_gates,
    "mixture": mixture,
    "gated": gated,
    "script-plain": scripts.script_of(scripts.Theme),
    "script-wishes": scripts.script_of(scripts.Wishes),
    "script-preemption": scripts.script_of(scripts.Preemption),
    "script-volumes": scripts.script_of(scripts.Volumes),
    "script-devices": scripts.script_of(scripts.Devices),
    "script-groups": groups.script_of_groups(groups.Groups),
    "script-placed-groups": groups.script_of_groups(groups.PlacedGroups),
    "script-groups-of-groups": groups.script_of_groups(groups.GroupsOfGroups),
    "script-mixture": scripts.script_of(scripts.Mixture),
}
"""Grammars by the family name that their cases have."""


def draw_case(family: str, name: str) -> JsonObject:
    """Return a case of a grammar; its name says all of what chance made of it."""
    return {"id": name, **GRAMMARS[family](Draw(name))}
