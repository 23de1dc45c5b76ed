"""Hostile objects of every kind that is watched, and malformed watch lines, from a seed.

What an apiserver may store and send, and nobody expects: fields of every type that we read with
extreme values, and those that we do not read nested thousands deep, with bytes that are no UTF-8,
numbers that no float holds, nulls everywhere, megabytes of text. Equal seeds give equal bytes.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import inspect

from proreus.objects.kinds import BY_KIND

from .full_objects import FULL_OBJECTS
from .full_pods import FULL_PODS, HOST, Json, Named
from .odd_json import ODD_JSON, encode, odd_json

QUANTITIES = ["0", "1", "100m", "1.5Gi", "9223372036854775807", "1e30", "-1", "1n", 1, 0.5, "1E"]
INTEGERS = [0, 1, -1, 2, 3, 100, 2**31 - 1, -(2**31)]
OPERATORS = ["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Bogus", ""]
ZONE = "topology.kubernetes.io/zone"
TEXTS = [
    "", "a", "n0", "n1", HOST, ZONE, "z0", "0", "-5", "7", "default", "gpu", "gpu.example.com",
    "Equal", "NoSchedule", "Always", "DoNotSchedule", "ScheduleAnyway", "Honor", "ExactCount",
    "All", "ReadWriteOncePod", "WaitForFirstConsumer", "standard", "v1", "apps/v1", "ReplicaSet",
    "\u0000", "\ud7ff", "\U0001f600", "a" * 253, "{claim}", "%s", "../..", "x\ny", "\u202e",
]  # fmt: skip
SHAPES = ("usual", "wide", "huge", "odd", "nulls")


class Objects:
    """Makes objects of one kind; ``scale`` multiplies how large the largest of them are."""

    def __init__(self, kind: str, seed: int, scale: float = 1.0) -> None:
        self.kind = kind
        self.scale = scale
        self._rng = random.Random(f"{kind} {seed}")
        self._type = inspect.type_info(BY_KIND[kind].type)
        self.shape = ""

    def make(self, number: int) -> bytes:
        """Return the JSON of one object, with a name and uid of its own."""
        named = NAMED.get(self.kind, ())
        rng = self._rng
        choice = rng.randrange(len(SHAPES) + (2 if named else 0))
        self.shape = SHAPES[choice] if choice < len(SHAPES) else "named"
        if self.shape == "named":
            obj = named[rng.randrange(len(named))](rng, self.scale)
        else:
            obj = self._value(self._type, 0, "")
        obj["kind"] = self.kind
        obj["metadata"] = {**(obj.get("metadata") or {}), **self._identity(number)}
        if self.shape in ("odd", "named"):
            obj["metadata"]["managedFields"] = [{"fieldsV1": odd_json(rng)}]
            obj[f"unknown{number}"] = odd_json(rng)
        if self.kind == "Pod":
            _complete_pod(obj, number)
        return encode(obj, ensure_ascii=self._rng.random() < 0.5)

    def _identity(self, number: int) -> Json:
        meta: Json = {
            "name": f"{self.kind.lower()}-{number}",
            "uid": f"{self.kind}-{number}",
            "resourceVersion": str(number + 1),
        }
        if BY_KIND[self.kind].namespaced:
            meta["namespace"] = "default"
        return meta

    def _count(self, depth: int) -> int:
        if self.shape == "wide" and depth <= 3 and self._rng.random() < 0.2:
            return self._rng.randrange(max(2, int(300 * self.scale)))
        return self._rng.choice([0, 1, 1, 2, 3]) if depth < 9 else 0

    def _text(self, name: str) -> str:
        rng = self._rng
        if name == "operator":
            return rng.choice(OPERATORS)
        if self.shape == "huge" and rng.random() < 0.05:
            return rng.choice("ab/é") * rng.randrange(max(2, int(100_000 * self.scale)))
        return rng.choice(TEXTS)

    def _value(self, info: Any, depth: int, name: str) -> Any:
        rng = self._rng
        if self.shape == "nulls" and depth > 1 and rng.random() < 0.3:
            return None
        match info:
            case inspect.StructType():
                keep = 0.8 if depth < 3 else 0.4
                return {
                    field.encode_name: self._value(field.type, depth + 1, field.encode_name)
                    for field in info.fields
                    if rng.random() < keep or field.required
                }
            case inspect.UnionType():
                kinds = [one for one in info.types if not isinstance(one, inspect.NoneType)]
                # Quantities are the only fields of several types.
                if any(isinstance(one, inspect.StrType) for one in kinds) and len(kinds) > 1:
                    return rng.choice(QUANTITIES)
                return self._value(rng.choice(kinds), depth, name)
            case inspect.DictType():
                return {
                    self._text("") or f"k{i}": self._value(info.value_type, depth + 1, name)
                    for i in range(self._count(depth))
                }
            case inspect.VarTupleType() | inspect.ListType():
                count = self._count(depth)
                return [self._value(info.item_type, depth + 1, name) for _ in range(count)]
        return self._scalar(info, name)

    def _scalar(self, info: Any, name: str) -> Any:
        rng = self._rng
        match info:
            case inspect.StrType():
                return self._text(name)
            case inspect.IntType():
                return rng.choice(INTEGERS)
            case inspect.BoolType():
                return rng.random() < 0.5
            case inspect.FloatType():
                return rng.choice([0.0, 1.5, -1.0, 1e300])
            case inspect.DateTimeType():
                return "2026-01-01T00:00:00Z"
            case inspect.RawType() | inspect.AnyType() | inspect.CustomType():
                return odd_json(rng)
        raise TypeError(f"no values for {info}")


def _complete_pod(obj: Json, number: int) -> None:
    """Make a pod pending, and ours; most random ones would be nobody's."""
    spec = obj["spec"] = obj.get("spec") or {}
    obj["status"] = {}
    spec["schedulerName"] = "default-scheduler"
    spec["containers"] = spec.get("containers") or [{"name": "c"}]
    for field in ("nodeName", "schedulingGates", "schedulingGroup", "workloadRef"):
        spec.pop(field, None)
    if number % 3:
        spec.pop("resourceClaims", None)
        spec.pop("volumes", None)


# ---- each kind of the reports by name ------------------------------------------------------------


def many_label_keys(rng: random.Random, scale: float) -> Json:
    """Return a pod with a required or preferred term for each of thousands of keys."""
    # The apiserver stores objects of up to 1.5 MB.
    together = rng.random() < 0.5
    count = int((24_000 if together else 18_500) * scale) + 1
    first = rng.randrange(10**6)
    expressions = [
        {"key": f"example.com/key-{first + n}", "operator": "Exists"} for n in range(count)
    ]
    terms = [expressions] if together else [[one] for one in expressions]
    required = {"nodeSelectorTerms": [{"matchExpressions": term} for term in terms]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    return {"spec": {"affinity": affinity}}


def many_affinity_terms(rng: random.Random, scale: float) -> Json:
    """Return a pod with inter-pod terms that no other pod has."""
    first = rng.randrange(10**6)
    terms = [
        {
            "topologyKey": rng.choice([HOST, ZONE, "missing"]),
            "labelSelector": {
                "matchExpressions": [
                    {
                        "key": f"k{first}-{n}",
                        "operator": "In",
                        "values": [f"{v}" for v in range(20)],
                    }
                ]
            },
        }
        for n in range(int(300 * scale) + 1)
    ]
    kind = rng.choice(["podAffinity", "podAntiAffinity"])
    preferred = [{"weight": 1 + n % 100, "podAffinityTerm": term} for n, term in enumerate(terms)]
    field = "DuringSchedulingIgnoredDuringExecution"
    chosen = {f"preferred{field}": preferred} if rng.random() < 0.5 else {f"required{field}": terms}
    return {"spec": {"affinity": {kind: chosen}}}


def many_resources(rng: random.Random, scale: float) -> Json:
    """Return a pod that requests thousands of extended resources, in one or many containers."""
    count = int(5_000 * scale) + 1
    first = rng.randrange(10**6)
    names = [f"example.com/resource-{first + n}" for n in range(count)]
    if rng.random() < 0.5:
        containers = [{"name": "c", "resources": {"requests": dict.fromkeys(names, "1")}}]
    else:
        containers = [
            {"name": f"c{n}", "resources": {"requests": {name: "1"}}}
            for n, name in enumerate(names)
        ]
    return {"spec": {"containers": containers}}


def many_constraints(rng: random.Random, scale: float) -> Json:
    """Return a pod with spread constraints, tolerations, labels and ports by the hundred."""
    count = int(500 * scale) + 1
    first = rng.randrange(10**6)
    spread = [
        {
            "maxSkew": 1,
            "topologyKey": (HOST, ZONE)[n] if n < 2 else f"key-{first + n}",
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": {f"l{first + n}": "x" * 63}},
        }
        for n in range(count // 10 + 1)
    ]
    ports = [{"containerPort": 1 + n, "hostPort": 1 + n} for n in range(count)]
    labels = {f"label-{first + n}": "v" for n in range(count)}
    tolerations = [{"key": f"t{first + n}", "operator": "Exists"} for n in range(count)]
    return {
        "metadata": {"labels": labels},
        "spec": {
            "topologySpreadConstraints": spread,
            "tolerations": tolerations,
            "containers": [{"name": "c", "image": "i" * 10_000, "ports": ports}],
        },
    }


def exploding_selector(rng: random.Random, scale: float) -> Json:
    """Return a claim of 3 KB whose selector makes gigabytes of text."""
    text = '"' + "a" * 700 + '"'
    for _ in range(rng.randrange(1, 5)):
        text = f'{text}.replace("a", "{"a" * rng.choice([2, 50, 700])}")'
    return _claim([{"cel": {"expression": f"{text}.size() > {rng.randrange(9)}"}}])


def long_number(rng: random.Random, scale: float) -> Json:
    """Return a claim whose selector has a number of nearly 10,000 digits."""
    digits = str(rng.randrange(1, 10)) * 9_000
    return _claim([{"cel": {"expression": f'quantity("{digits}").isInteger()'}}])


def unsatisfiable_claim(rng: random.Random, scale: float) -> Json:
    """Return a claim for more devices of one side than there are."""
    claim = _claim([])
    (request,) = claim["spec"]["devices"]["requests"]
    claim["spec"]["devices"]["requests"] = [
        {**request, "name": f"r{n}"} for n in range(rng.choice([2, 9, 15, 17, 32]))
    ]
    name = rng.choice(["matchAttribute", "distinctAttribute"])
    claim["spec"]["devices"]["constraints"] = [{name: "gpu.example.com/side"}]
    return claim


def _claim(selectors: list[Json]) -> Json:
    exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}
    request = {"name": "r", "exactly": {**exactly, "selectors": selectors}}
    return {"spec": {"devices": {"requests": [request]}}}


def device_class(rng: random.Random, scale: float) -> Json:
    """Return a class whose selector is somebody's novel."""
    expression = " || ".join(['device.driver == "x"'] * (1 + int(400 * scale)))
    return {"spec": {"selectors": [{"cel": {"expression": expression}}]}}


NAMED: dict[str, tuple[Named, ...]] = {
    "Pod": (
        many_label_keys,
        many_affinity_terms,
        many_resources,
        many_constraints,
        *FULL_PODS,
    ),
    "ResourceClaim": (exploding_selector, long_number, unsatisfiable_claim),
    "DeviceClass": (device_class,),
    **FULL_OBJECTS,
}


# ---- lines ---------------------------------------------------------------------------------------


def event_line(type_: str, obj: bytes) -> bytes:
    """Return the line of a watch event."""
    return b'{"type":"%s","object":%s}' % (type_.encode(), obj)


def malformed_lines(seed: int) -> Iterator[bytes]:
    """Yield lines, without end, that no apiserver should send: cut, changed, or of other shapes."""
    rng = random.Random(f"lines {seed}")
    makers = [Objects(kind, seed, 0.001) for kind in BY_KIND]
    number = 0
    while True:
        number += 1
        line = bytearray(event_line("ADDED", makers[number % len(makers)].make(number)))
        match rng.randrange(7):
            case 0:
                del line[rng.randrange(len(line)) :]
            case 1:
                for _ in range(rng.randrange(1, 20)):
                    line[rng.randrange(len(line))] = rng.randrange(256)
            case 2:
                at = rng.randrange(len(line))
                line[at:at] = rng.randbytes(rng.randrange(1, 50))
            case 3:
                line = bytearray(rng.choice(ODD_JSON))
            case 4:
                line = bytearray(msgspec.json.encode({"type": rng.choice(TEXTS), "object": None}))
            case 5:
                status = {"code": rng.choice([0, 410, 500, -1, 10**9]), "message": TEXTS[-1]}
                line = bytearray(msgspec.json.encode({"type": "ERROR", "object": status}))
            case 6:
                line = line.replace(b'"metadata"', b'"metadata":5,"x"', 1)
        yield bytes(line).replace(b"\n", b" ")
