"""Devices: slices and pools of every kind, what they offer, classes that choose among them."""

from __future__ import annotations

from dataclasses import dataclass

from conformance.oracle.grammar.draw import Draw, JsonObject
from conformance.oracle.grammar.objects import thing

VERSION = "resource.k8s.io/v1"
GPU = "gpu.example.com"
_ATTRIBUTES = f'device.attributes["{GPU}"]'
_CAPACITY = f'device.capacity["{GPU}"]'
EXPRESSIONS = (
    "true",
    "device.driver",  # no boolean: an error
    f'device.driver == "{GPU}"',
    "device.allowMultipleAllocations",
    "device.allowMultipleAllocations == false",
    f'{_ATTRIBUTES}.model == "a100"',
    f"{_ATTRIBUTES}.missing == 1",
    f'"model" in {_ATTRIBUTES}',
    f"{_ATTRIBUTES}.numa in [0]",
    f"{_ATTRIBUTES}.?healthy.orValue(true)",
    f'{_ATTRIBUTES}.version.isGreaterThan(semver("1.5.0"))',
    f'{_ATTRIBUTES}.all(k, k != "bad")',
    f"size({_ATTRIBUTES}) > 2",
    'device.attributes["elsewhere"].x == "y"',
    f'{_CAPACITY}.memory.compareTo(quantity("20Gi")) >= 0',
    f'{_CAPACITY}.missing.isGreaterThan(quantity("1"))',
    f'cel.bind(g, {_ATTRIBUTES}, g.numa == 0 || g.model.startsWith("h"))',
)
EXTENDED = ("example.com/foo", "example.com/bar")
_POLICIES: tuple[JsonObject | None, ...] = (
    None,
    {"default": "10Gi", "validRange": {"min": "5Gi", "max": "40Gi", "step": "5Gi"}},
    {"default": "10Gi", "validValues": ["10Gi", "20Gi", "40Gi"]},
    {"default": "1Gi", "validRange": {"min": "1Gi"}},
)


@dataclass
class Pool:
    """What allocations in a case may be made of."""

    driver: str
    name: str
    devices: list[JsonObject]


def classes(draw: Draw) -> list[JsonObject]:
    """Return device classes; some stand for an extended resource too."""
    found = []
    for name in ("gpu", "big"):
        one = thing("DeviceClass", name, VERSION, spec={})
        if draw.chance(0.5):
            one["metadata"]["creationTimestamp"] = f"2026-01-0{draw.randint(1, 2)}T00:00:00Z"
        if draw.chance(0.7):
            one["spec"]["selectors"] = selectors(draw)
        if draw.chance(0.25):
            one["spec"]["extendedResourceName"] = draw.choice(EXTENDED)
        found.append(one)
    return found


def selectors(draw: Draw) -> list[JsonObject]:
    """Return expressions that a device must fulfil."""
    some = draw.sample(EXPRESSIONS, draw.choice((1, 1, 2)))
    return [{"cel": {"expression": one}} for one in some]


def slices(draw: Draw, nodes: list[str], *, wide: bool) -> tuple[list[JsonObject], list[Pool]]:
    """Return slices, and the pools that they make; ``wide``: with all that is new in devices."""
    found: list[JsonObject] = []
    pools: list[Pool] = []
    for number in range(draw.randint(1, 5)):
        home = draw.choice(nodes)
        everywhere = ("all", "selector", "device") if wide else ("all", "selector")
        where = draw.choice(("node", "node", "node", *everywhere))
        driver = draw.choice((GPU, GPU, GPU, "other.example.com"))
        count = draw.choice((1, 1, 1, 2))
        generation = draw.choice((1, 1, 1, 2))
        shared = f"of-{generation}-{count}"  # slices of a generation agree on how many there are
        name = f"p{number}" if where != "node" else draw.choice((home, home, home, shared))
        counters = wide and draw.chance(0.4)
        count += counters  # a slice of their own: one has either counters or devices
        for part in range(draw.choice((1, count - counters))):
            pool = {"name": name, "generation": generation, "resourceSliceCount": count}
            spec: JsonObject = {"driver": driver, "pool": pool, **_reach(draw, where, home)}
            if counters and not part:
                sets = {**spec, "sharedCounters": [_counter_set(draw)]}
                found.append(thing("ResourceSlice", f"s{number}-sets", VERSION, spec=sets))
            made = [_device(draw, f"gpu-{d + 4 * part}", wide) for d in range(draw.randint(0, 4))]
            for device in made:
                if where == "device":
                    device |= _reach(draw, draw.choice(("node", "all", "selector")), home)
                if counters and draw.chance(0.8):
                    device["consumesCounters"] = [_consumption(draw)]
            if made:
                spec["devices"] = made
            found.append(thing("ResourceSlice", f"s{number}-{part}", VERSION, spec=spec))
            pools.append(Pool(driver, name, made))
    return found, pools


def _reach(draw: Draw, where: str, home: str) -> JsonObject:
    """Return who can use a slice, or a device."""
    if where == "node":
        return {"nodeName": home}
    if where == "all":
        return {"allNodes": True}
    if where == "device":
        return {"perDeviceNodeSelection": True}
    operator = draw.choice(("In", "NotIn", "Exists"))
    expression: JsonObject = {"key": "disk", "operator": operator}
    if operator != "Exists":
        expression["values"] = ["ssd"]
    return {"nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}


def _counter_set(draw: Draw) -> JsonObject:
    memory = draw.choice(("80Gi", "40Gi"))
    return {"name": "cs", "counters": {"memory": {"value": memory}, "units": {"value": "4"}}}


def _consumption(draw: Draw) -> JsonObject:
    counters = {"memory": {"value": draw.choice(("20Gi", "40Gi"))}}
    counters |= draw.fields(0.5, units={"value": "1"})
    return {"counterSet": draw.choice(("cs", "cs", "cs", "missing")), "counters": counters}


def _device(draw: Draw, name: str, wide: bool) -> JsonObject:
    device: JsonObject = {"name": name}
    if draw.chance(0.9):
        device["attributes"] = draw.fields(
            0.8,
            model={"string": draw.choice(("a100", "h100"))},
            numa={"int": draw.choice((0, 1))},
            healthy={"bool": draw.chance(0.7)},
            version={"version": draw.choice(("1.0.0", "2.1.0"))},
        )
        device["capacity"] = {"memory": {"value": draw.choice(("16Gi", "40Gi", "80Gi"))}}
    if draw.chance(0.2):
        effects = ("NoSchedule", "NoExecute", "None") if wide else ("NoSchedule", "NoExecute")
        device["taints"] = [
            {
                "key": draw.choice(("bad", "worse")),
                "value": draw.choice(("x", "y")),
                "effect": draw.choice(effects),
            }
        ]
    if wide:
        _widen(draw, device)
    return device


def _widen(draw: Draw, device: JsonObject) -> None:
    if draw.chance(0.35):
        device["allowMultipleAllocations"] = True
        memory = device.setdefault("capacity", {"memory": {"value": "40Gi"}})["memory"]
        if policy := draw.choice(_POLICIES):
            memory["requestPolicy"] = policy
    if draw.chance(0.1):
        device["bindsToNode"] = True
    if draw.chance(0.1):
        device |= {"bindingConditions": ["ready"], "bindingFailureConditions": ["failed"]}
