"""All worlds by name."""

from __future__ import annotations

from collections.abc import Mapping

from conformance.wakeups import addons, core, devices, extenders, gangs, groups, preemption, storage
from conformance.wakeups.world import World

_QUEUE = {
    "1.36": ["SchedulerAsyncPreemption=false", "SchedulerPopFromBackoffQ=false"],
    "1.37": [
        "SchedulerAsyncPreemption=false",
        "SchedulerPopFromBackoffQ=false",
        "SchedulerPreQueueingHints=true",
    ],
}
"""Gates of the queue, for any world."""

_GROUPS = {
    "1.36": ["GenericWorkload=true", "GangScheduling=true"],
    "1.37": ["GenericWorkload=true"],
    "1.38": ["GenericWorkload=true"],
}
_PLACED = {
    version: [*gates, "TopologyAwareWorkloadScheduling=true"] for version, gates in _GROUPS.items()
}
_TREES = {version: [*_PLACED[version], "CompositePodGroup=true"] for version in ("1.37", "1.38")}
_RESIZES = {"1.37": ["InPlacePodVerticalScalingSchedulerPreemption=true"]}
_DEVICES = {"1.37": [], "1.36": ["DRADeviceTaintRules=true"]}

CORE_WORLDS: Mapping[str, World] = {
    "core": World(core.CORE, may=_QUEUE),
    "storage": World(storage.STORAGE, may=_QUEUE),
    "devices": World(devices.DEVICES, _DEVICES, _QUEUE),
    "preemption": World(preemption.PREEMPTION, may=_QUEUE),
    "resizes": World(preemption.PREEMPTION, _RESIZES, _QUEUE),
    "groups": World(groups.GROUPS, _GROUPS, _QUEUE),
    "placed-groups": World(groups.GROUPS, _PLACED, _QUEUE),
    "trees": World(groups.TREES, _TREES, _QUEUE),
    "extenders": extenders.EXTENDERS,
}

ADD_ON_WORLDS: Mapping[str, World] = {
    "quotas": addons.QUOTAS,
    "queues": addons.QUEUES,
    "device-share": addons.DEVICES,
    "numa": addons.NUMA,
    "reservations": addons.RESERVATIONS,
    "network": addons.NETWORK,
    "loads": addons.LOADS,
    "colocation": addons.COLOCATION,
    "planned-gangs": gangs.PLANNED_GANGS,
    "volcano": gangs.VOLCANO,
    "held-volcano": gangs.HELD_VOLCANO,
    "koordinator": gangs.KOORDINATOR,
    "held-koordinator": gangs.HELD_KOORDINATOR,
    "gang-preemption": gangs.GANG_PREEMPTION,
    "domains": gangs.DOMAINS,
    "hyper-nodes": gangs.HYPER_NODES,
    "jobs": addons.JOBS,
    "delays": addons.DELAYS,
}

WORLDS: Mapping[str, World] = {**CORE_WORLDS, **ADD_ON_WORLDS}
