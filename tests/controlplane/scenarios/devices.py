"""Devices decide between nodes; which device of a node is given is compared in test_devices."""

from __future__ import annotations

from typing import Any

from testground.stage import Stage

Json = dict[str, Any]

DEVICE_API = "/apis/resource.k8s.io/v1"
CLAIMS = f"{DEVICE_API}/namespaces/default/resourceclaims"
DRIVER = "gpu.example.com"


def _publish(stage: Stage, node: str, *devices: str, size: int = 1) -> None:
    attributes = {"size": {"int": size}}
    spec = {
        "driver": DRIVER,
        "nodeName": node,
        "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": name, "attributes": attributes} for name in devices],
    }
    stage.add(f"{DEVICE_API}/resourceslices", {"metadata": {"name": node}, "spec": spec})


def _claim(stage: Stage, name: str, *wishes: Json) -> None:
    if len(wishes) == 1:
        request: Json = {"name": "r", "exactly": wishes[0]}
    else:
        named = [{"name": f"w{number}", **wish} for number, wish in enumerate(wishes)]
        request = {"name": "r", "firstAvailable": named}
    body = {"metadata": {"name": name}, "spec": {"devices": {"requests": [request]}}}
    stage.add(CLAIMS, body)


def _wish(count: int = 1, size: int = 0) -> Json:
    expression = f'device.attributes["{DRIVER}"].size >= {size}'
    return {
        "deviceClassName": "gpu",
        "count": count,
        "selectors": [{"cel": {"expression": expression}}] if size else [],
    }


def _uses(*claims: str) -> Json:
    entries = [{"name": name, "resourceClaimName": name} for name in claims]
    return {"resourceClaims": entries}


def devices_decide_between_nodes(stage: Stage) -> None:
    """Pods follow devices, claims and preferences among alternatives; a new slice wakes one."""
    stage.node("none", 60)
    stage.node("small", 30)
    stage.node("large", 10)
    stage.node("late", 20)
    cel = [{"cel": {"expression": f'device.driver == "{DRIVER}"'}}]
    body = {"metadata": {"name": "gpu"}, "spec": {"selectors": cel}}
    stage.add(f"{DEVICE_API}/deviceclasses", body)
    _publish(stage, "small", "s-0", "s-1")
    _publish(stage, "large", "l-0", "l-1", "l-2", size=2)
    _claim(stage, "any", _wish())
    _claim(stage, "big", _wish(size=2))
    _claim(stage, "alternatives", _wish(size=2), _wish())
    _claim(stage, "pair", _wish(2))
    _claim(stage, "huge", _wish(size=3))
    stage.settle()
    stage.place("any", **_uses("any"))
    stage.place("big", **_uses("big"))
    stage.place("alternatives", **_uses("alternatives"))
    stage.place("same-claim", **_uses("any"))
    stage.place("torn", **_uses("any", "big"))
    stage.place("pair", **_uses("pair"))
    stage.place("huge", **_uses("huge"))
    stage.pod("missing", **_uses("missing"))
    stage.bound(any="small", big="large", alternatives="large", **{"same-claim": "small"})
    stage.refused("pair", "cannot allocate all claims")
    stage.note("devices have run out")
    _publish(stage, "late", "x-0", "x-1", "x-2", size=3)
    stage.bound(pair="late", huge="late")
    stage.note("nobody has tried the pod whose claim is missing")
    _claim(stage, "missing", _wish(size=2))
    stage.bound(missing="large")


SCENARIOS = (devices_decide_between_nodes,)
