"""Devices: classes, slices, taint rules, claims in all states; pods with claims and resources."""

from __future__ import annotations

from conformance.oracle.grammar.draw import Draw, JsonObject
from conformance.oracle.grammar.objects import thing
from conformance.wakeups import core
from conformance.wakeups.world import Kind

_VERSION, _GPU = "resource.k8s.io/v1", "gpu.example.com"
_CLAIMS = ("r0", "r1", "r2")
_EXTENDED = "example.com/gpu"
_A100 = [{"cel": {"expression": f'device.attributes["{_GPU}"].model == "a100"'}}]


def _class_spec(draw: Draw) -> JsonObject:
    extended = draw.choice((None, _EXTENDED))
    return {"selectors": draw.choice((None, _A100)), "extendedResourceName": extended}


def _class(draw: Draw, name: str) -> JsonObject:
    spec = {key: value for key, value in _class_spec(draw).items() if value}
    return thing("DeviceClass", name, _VERSION, spec=spec)


def _devices(draw: Draw) -> list[JsonObject]:
    found = []
    for number in range(draw.choice((0, 1, 1, 2))):
        device = {
            "name": f"d{number}",
            "attributes": {"model": {"string": draw.choice(("a100", "h100"))}},
            "capacity": {"memory": {"value": "16Gi"}},
        }
        if draw.chance(0.25):
            device["taints"] = [{"key": "bad", "effect": "NoSchedule"}]
        found.append(device)
    return found


def _slice(draw: Draw, name: str) -> JsonObject:
    number = int(name[1:])
    pool = {"name": f"pool{number}", "generation": 1, "resourceSliceCount": 1}
    reach = {"nodeName": core.NODES[number]} if draw.chance(0.8) else {"allNodes": True}
    spec = {"driver": _GPU, "pool": pool, **reach, "devices": _devices(draw)}
    return thing("ResourceSlice", name, _VERSION, spec=spec)


def _rule_spec(draw: Draw) -> JsonObject:
    selector = {"driver": _GPU, "pool": draw.choice((None, "pool0", "pool1"))}
    taint = {"key": "bad", "effect": draw.choice(("NoSchedule", "None"))}
    return {"deviceSelector": selector, "taint": taint}


def _rule(draw: Draw, name: str) -> JsonObject:
    spec = _rule_spec(draw)
    if spec["deviceSelector"]["pool"] is None:
        del spec["deviceSelector"]["pool"]
    return thing("DeviceTaintRule", name, _VERSION, spec=spec)


def _claim(draw: Draw, name: str) -> JsonObject:
    exactly: JsonObject = {"deviceClassName": draw.choice(("gpu", "gpu", "big"))}
    exactly |= {"allocationMode": "ExactCount", "count": draw.choice((1, 1, 2))}
    if draw.chance(0.3):
        exactly["selectors"] = _A100
    if draw.chance(0.3):
        exactly["tolerations"] = [{"operator": "Exists"}]
    spec = {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}
    made = thing("ResourceClaim", name, _VERSION, namespace="default", spec=spec, status={})
    made["metadata"]["uid"] = f"{name}-{draw.randrange(10**9)}"
    if draw.chance(0.3):
        made["status"] = _allocated(draw)
    return made


def _allocated(draw: Draw) -> JsonObject:
    pool = draw.choice(("pool0", "pool1", "pool2"))
    result = {"request": "r", "driver": _GPU, "pool": pool, "device": draw.choice(("d0", "d1"))}
    name = core.NODES[int(pool[-1])]
    field = {"key": "metadata.name", "operator": "In", "values": [name]}
    selector = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    allocation = {"devices": {"results": [result]}, "nodeSelector": selector}
    users = [{"resource": "pods", "name": "other", "uid": "other"}]
    return {"allocation": allocation, **draw.fields(0.5, reservedFor=users)}


def _freed(draw: Draw, name: str) -> JsonObject:
    return {"status": {"allocation": None, "reservedFor": None}}


# ---- pods ----------------------------------------------------------------------------------------


def _claims(draw: Draw, pod: JsonObject) -> None:
    names = draw.sample(_CLAIMS, draw.choice((1, 1, 2)))
    pod["metadata"]["namespace"] = "default"
    pod["spec"]["resourceClaims"] = [{"name": one, "resourceClaimName": one} for one in names]


def _template(draw: Draw, pod: JsonObject) -> None:
    pod["metadata"]["namespace"] = "default"
    pod["spec"]["resourceClaims"] = [{"name": "g", "resourceClaimTemplateName": "t"}]


def _generated(draw: Draw, name: str) -> JsonObject:
    named = [{"name": "g", "resourceClaimName": draw.choice(_CLAIMS)}]
    return {"status": {"resourceClaimStatuses": draw.choice((named, named, [{"name": "g"}]))}}


def _extended(draw: Draw, pod: JsonObject) -> None:
    amounts = {_EXTENDED: "1"}
    pod["spec"]["containers"][0]["resources"] = {"requests": amounts, "limits": amounts}


_WISHES = (_claims, _claims, _claims, _template, _extended, *core.WISHES[:4])

DEVICES = [
    core.NODE,
    Kind(("gpu", "big"), _class, (lambda draw, name: {"spec": _class_spec(draw)},)),
    Kind(
        ("s0", "s1", "s2"),
        _slice,
        (lambda draw, name: {"spec": {"devices": _devices(draw)}},),
        often=2.5,
    ),
    Kind(("u0",), _rule, (lambda draw, name: {"spec": _rule_spec(draw)},), at_start=0.3),
    Kind(_CLAIMS, _claim, (_freed,), often=3),
    *core.pod_kinds(_WISHES, changes=(*core.POD_CHANGES, _generated, _generated)),
]
