"""Devices with what stands behind feature gates: the gates, and the fields that they are about.

A field may be there while its gate is off: kube-scheduler then ignores the field, or its slice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from conformance.oracle.grammar.claims import devices_wanted
from conformance.oracle.grammar.devices import GPU, VERSION
from conformance.oracle.grammar.draw import Draw, JsonObject
from conformance.oracle.grammar.objects import thing

_OF_DEVICE = f'device.attributes["{GPU}"]'
_DERIVED = (f"{GPU}/group", f"{GPU}/model", f"{GPU}/numa", "x.example.com/other")
_EXPRESSIONS = (
    f"{_OF_DEVICE}.numa",
    f"{_OF_DEVICE}.?numa.orValue(9)",
    f'{_OF_DEVICE}.model + "-" + device.driver',
    f"{_OF_DEVICE}.version",
    f"{_OF_DEVICE}.tags",
    f"[{_OF_DEVICE}.?numa.orValue(7)]",
    f'{_OF_DEVICE}.tags.map(t, t + "x")',
    f'device.capacity["{GPU}"].memory.compareTo(quantity("20Gi"))',
    f'has({_OF_DEVICE}.model) ? {_OF_DEVICE}.model : "none"',
    'semver("1.0.0")',
    "device.allowMultipleAllocations",
    '"constant"',
    # None of these is a value that attributes can have, or that can be evaluated for each device.
    f'device.capacity["{GPU}"].memory',
    f"{_OF_DEVICE}.missing",
    "1.5",
    "dyn(1.5)",
    "[]",
    "1 +",
    'duration("1s")',
)
_RESOURCES = ("cpu", "memory", "ephemeral-storage", "hugepages-2Mi")
_AMOUNTS = {
    "cpu": ("500m", "2", "6"),
    "memory": ("512Mi", "4Gi", "20Gi"),
    "ephemeral-storage": ("1Gi", "8Gi"),
    "hugepages-2Mi": ("2Mi", "4Mi"),
}
_FRACTIONAL: tuple[JsonObject, ...] = (
    {"default": "500m", "validRange": {"min": "100m", "max": "40Gi", "step": "300m"}},
    {"default": "1", "validRange": {"min": "1", "max": "7500m"}},
    {"default": "1Gi", "validRange": {"min": "500m", "step": "1"}},
    {"default": "1500m", "validValues": ["500m", "1500m", "2"]},
)


def device_gates(draw: Draw) -> JsonObject:
    """Return a case about devices under one or two gates, mostly on, with their fields."""
    case = devices_wanted(draw)
    if draw.chance(0.8):
        _ask_less(draw, case)
    assignments = []
    for gate in draw.sample(list(_FIELDS), draw.choice((1, 1, 2))):
        _FIELDS[gate](draw, case)
        assignments.append(f"{gate}={str(draw.chance(0.85)).lower()}")
    return case | {"features": assignments}


def _ask_less(draw: Draw, case: JsonObject) -> None:
    """Let more devices fit, so that the gate decides and not something else."""
    for node in _of_kind(case, "Node"):
        node["spec"] = {}
        if draw.chance(0.7):
            case["objects"] += _whole_pool(draw, node["metadata"]["name"])
    for one in _of_kind(case, "DeviceClass"):
        if draw.chance(0.8):
            one["spec"].pop("selectors", None)
    for device in _devices(case):
        if draw.chance(0.7):
            device.pop("taints", None)
        if draw.chance(0.8):
            device.pop("bindsToNode", None)
    for claim in _of_kind(case, "ResourceClaim"):
        claim["metadata"].pop("deletionTimestamp", None)
        if draw.chance(0.7):
            asked = claim["spec"]["devices"]
            asked.pop("constraints", None)
            asked["requests"] = asked["requests"][: draw.choice((1, 1, 2))]
        if draw.chance(0.5):
            claim["status"] = {}
        for request in _requests(claim):
            request["deviceClassName"] = "gpu"
            if draw.chance(0.8):
                request |= {"allocationMode": "ExactCount", "count": draw.choice((1, 1, 2))}
                request.pop("selectors", None)


def _whole_pool(draw: Draw, node: str) -> list[JsonObject]:
    """Return the slices of a pool that a node has beside the others."""
    devices: list[JsonObject] = []
    for number in range(draw.randint(2, 4)):
        attributes = draw.fields(
            0.9,
            model={"string": draw.choice(("a100", "h100"))},
            numa={"int": draw.choice((0, 1))},
            version={"version": draw.choice(("1.0.0", "2.1.0"))},
        )
        memory = {"value": draw.choice(("16Gi", "40Gi"))}
        devices.append({"name": f"gpu-{number}", "attributes": attributes})
        devices[-1] |= {"capacity": {"memory": memory}}
        devices[-1] |= draw.fields(0.3, allowMultipleAllocations=True)
    counted = draw.chance(0.4)
    pool = {"name": f"whole-{node}", "generation": 1, "resourceSliceCount": 1 + counted}
    spec = {"driver": GPU, "nodeName": node, "pool": pool}
    found = [thing("ResourceSlice", f"whole-{node}", VERSION, spec={**spec, "devices": devices})]
    if counted:
        sets = [{"name": "cs", "counters": {"units": {"value": "3"}}}]
        for device in devices:
            units = {"units": {"value": draw.choice(("1", "2"))}}
            device["consumesCounters"] = [{"counterSet": "cs", "counters": units}]
        counters = {**spec, "sharedCounters": sets}
        found.append(thing("ResourceSlice", f"whole-{node}-sets", VERSION, spec=counters))
    return found


def _of_kind(case: JsonObject, kind: str) -> list[JsonObject]:
    return [one for one in case["objects"] if one["kind"] == kind]


def _devices(case: JsonObject) -> Iterator[JsonObject]:
    for one in _of_kind(case, "ResourceSlice"):
        yield from one["spec"].get("devices", ())


def _requests(claim: JsonObject) -> Iterator[JsonObject]:
    """Return the requests of a claim, and the alternatives of those that have some."""
    for request in claim["spec"]["devices"]["requests"]:
        if "exactly" in request:
            yield request["exactly"]
        else:
            yield from request["firstAvailable"]


# ---- attributes ----------------------------------------------------------------------------------


def _derive_attributes(draw: Draw, case: JsonObject) -> None:
    expressions = _EXPRESSIONS if draw.chance(0.3) else _EXPRESSIONS[:12]
    for claim in _of_kind(case, "ResourceClaim"):
        for request in _requests(claim):
            if draw.chance(0.85):
                request["derivedAttributes"] = [
                    {"name": name, "expression": draw.choice(expressions)}
                    for name in draw.sample(_DERIVED, draw.choice((1, 1, 2)))
                ]
        _constrain(draw, claim, _DERIVED)


def _constrain(draw: Draw, claim: JsonObject, attributes: Sequence[str]) -> None:
    asked = claim["spec"]["devices"]
    constraint = {
        draw.choice(("matchAttribute", "matchAttribute", "distinctAttribute")): draw.choice(
            attributes
        )
    }
    if draw.chance(0.3):
        constraint["requests"] = draw.some([one["name"] for one in asked["requests"]], least=1)
    asked.setdefault("constraints", []).append(constraint)


def _list_attributes(draw: Draw, case: JsonObject) -> None:
    for device in _devices(case):
        if draw.chance(0.8):
            tags = draw.sample(("x", "y", "z"), draw.choice((1, 2)))
            lists = {"tags": {"strings": tags}, "numa": {"ints": draw.choice(([0], [0, 1]))}}
            device.setdefault("attributes", {}).update(draw.fields(0.7, **lists))
    for claim in _of_kind(case, "ResourceClaim"):
        _constrain(draw, claim, (f"{GPU}/tags", f"{GPU}/numa"))
        for request in _requests(claim):
            if draw.chance(0.2):
                selector = f'{_OF_DEVICE}.tags.includes("x")'
                request["selectors"] = [{"cel": {"expression": selector}}]


# ---- amounts -------------------------------------------------------------------------------------


def _consume_node_resources(draw: Draw, case: JsonObject) -> None:
    for node in _of_kind(case, "Node"):
        if draw.chance(0.5):
            pages = draw.choice(("4Mi", "8Mi"))
            for side in ("capacity", "allocatable"):
                node["status"][side]["hugepages-2Mi"] = pages
    for device in _devices(case):
        if draw.chance(0.8):
            names = draw.sample(_RESOURCES, draw.choice((1, 1, 2)))
            device["nodeAllocatableResources"] = {
                name: _consumption(draw, name, bool(device.get("capacity"))) for name in names
            }
            device["nodeAllocatableResourceMappings"] = {name: _of_1_36(draw) for name in names}
    _vary_containers(draw, case["pod"]["spec"])
    written = [case["pod"]] if draw.chance(0.1) else []
    for pod in (*written, *_of_kind(case, "Pod")):
        if draw.chance(0.6):
            pod["status"]["nodeAllocatableResourceClaimStatuses"] = [_written(draw)]


def _consumption(draw: Draw, resource: str, has_capacity: bool) -> JsonObject:
    found: JsonObject = {}
    if draw.chance(0.6):
        if has_capacity and draw.chance(0.6):
            key = draw.choice(("memory", "memory", "memory", "other"))
            factor = draw.choice(("1", "2", "0.5", "100m"))
            found["mapping"] = {"capacityKey": key} | draw.fields(0.8, capacityMultiplier=factor)
        else:
            found["mapping"] = {"deviceMultiplier": draw.choice(_AMOUNTS[resource])}
    if not found or draw.chance(0.4):
        amounts = _AMOUNTS[resource]
        found["overhead"] = draw.fields(
            0.7, perPod=draw.choice(amounts), perContainer=draw.choice(amounts)
        )
    return found


def _of_1_36(draw: Draw) -> JsonObject:
    return draw.fields(
        0.6, capacityKey="memory", allocationMultiplier=draw.choice(("1", "4", "100m"))
    )


def _vary_containers(draw: Draw, spec: JsonObject) -> None:
    """Let containers refer to some claims only, and the pod have resources of its own."""
    first = spec["containers"][0]["resources"]
    if draw.chance(0.3):
        first["claims"] = [one for one in first["claims"] if draw.chance(0.5)]
    if draw.chance(0.3):
        first["limits"] = {**first.get("limits", {}), "cpu": "2", "memory": "1Gi"}
    if first["claims"] and draw.chance(0.2):
        initial = {"name": "i9", "resources": {"requests": {"cpu": draw.choice(("100m", "9"))}}}
        initial["resources"]["claims"] = [draw.choice(first["claims"])]
        initial |= draw.fields(0.5, restartPolicy="Always")
        spec.setdefault("initContainers", []).append(initial)
    if draw.chance(0.3):
        sides = draw.some(("requests", "limits"), least=1)
        spec["resources"] = {
            side: draw.fields(0.7, cpu=draw.choice(("2", "8")), memory=draw.choice(("1Gi", "8Gi")))
            for side in sides
        }


def _written(draw: Draw) -> JsonObject:
    """Return what a scheduler wrote into a pod's status about a claim."""
    containers = draw.choice((["c"], ["c0"], [], ["c", "c1"]))
    found: JsonObject = {"resourceClaimName": draw.choice(("held0", "rc0"))}
    found["containers"] = containers
    if draw.chance(0.6):
        found["mapping"] = [{"name": "cpu", "quantity": draw.choice(("500m", "4"))}]
    if draw.chance(0.6):
        found["overhead"] = [{"name": "memory", "perPod": "2Gi", "perContainer": "1Gi"}]
    return found


def _fractional_ranges(draw: Draw, case: JsonObject) -> None:
    for device in _devices(case):
        if draw.chance(0.7):
            device["allowMultipleAllocations"] = True
            memory = {"value": draw.choice(("8", "7500m", "16Gi"))}
            device["capacity"] = {"memory": memory | {"requestPolicy": draw.choice(_FRACTIONAL)}}
    for claim in _of_kind(case, "ResourceClaim"):
        for request in _requests(claim):
            if draw.chance(0.8):
                amount = draw.choice(("100m", "150m", "1", "1100m", "7500m", "8", "1Gi"))
                request["capacity"] = {"requests": {"memory": amount}}


# ---- which devices go together, and where --------------------------------------------------------


def _compatibility_groups(draw: Draw, case: JsonObject) -> None:
    for device in _devices(case):
        for part in device.get("consumesCounters", ()):
            if draw.chance(0.8):
                part["compatibilityGroups"] = draw.sample(("a", "b", "c"), draw.choice((1, 1, 2)))


def _skip_node_operations(draw: Draw, case: JsonObject) -> None:
    skips = (["*"], ["NodePrepareResources", "NodeUnprepareResources"], ["NodeUnprepareResources"])
    for one in _of_kind(case, "ResourceSlice"):
        if draw.chance(0.6):
            one["spec"]["skipNodeOperations"] = draw.choice(skips)
    for node in _of_kind(case, "Node"):
        if draw.chance(0.5):
            node["status"]["declaredFeatures"] = ["DRAOptionalNodeOperations"]
    for claim in _of_kind(case, "ResourceClaim"):
        for result in _results(claim):
            if draw.chance(0.4):
                result["skipNodeOperations"] = draw.choice(skips)


def _results(claim: JsonObject) -> list[JsonObject]:
    found: list[JsonObject] = (
        claim["status"].get("allocation", {}).get("devices", {}).get("results", [])
    )
    return found


def _taint_rules(draw: Draw, case: JsonObject) -> None:
    names = [one["metadata"]["name"] for one in _of_kind(case, "Node")]
    for number in range(draw.choice((1, 1, 2))):
        selector = draw.fields(
            0.4, driver=GPU, pool=draw.choice((*names, "p0")), device=f"gpu-{draw.randint(0, 3)}"
        )
        effect = draw.choice(("NoSchedule", "NoExecute", "None"))
        spec: JsonObject = {"taint": {"key": "bad", "value": "x", "effect": effect}}
        if draw.chance(0.9):
            spec["deviceSelector"] = selector
        case["objects"].append(thing("DeviceTaintRule", f"rule{number}", VERSION, spec=spec))


_FIELDS: Mapping[str, Callable[[Draw, JsonObject], None]] = {
    "DRADerivedAttributes": _derive_attributes,
    "DRADeviceCompatibilityGroups": _compatibility_groups,
    "DRADeviceTaintRules": _taint_rules,
    "DRAFractionalCapacityRange": _fractional_ranges,
    "DRAListTypeAttributes": _list_attributes,
    "DRANodeAllocatableResources": _consume_node_resources,
    "DRAOptionalNodeOperations": _skip_node_operations,
}
"""What makes a case ask something of a gate."""
