"""Values at the edge of what an apiserver accepts, and the fields that many kinds have of them.

Numbers at the bounds of their types, quantities of all scales, selectors of every operator, texts
of any character, and JSON that the apiserver passes on unread.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from envtest.objects import ZONES
from hostile.odd_json import odd_json

Json = dict[str, Any]

HOST = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"
DRIVER = "gpu.example.com"
CLASS = "gpu"
"""The device class of the cluster's own devices, which ``run`` creates."""

INT32, INT64 = 2**31 - 1, 2**63 - 1
QUANTITIES = ["0", "1", "100m", "1n", "1.5Gi", str(INT64), "1E", "7Ei", "1e3", "0.1"]
TEXTS = ["", "\u0000", "\u202e", "\U0001f600", "x\ny", "%s{0}", "../..", "[" * 2_000, "9" * 400]
VALUES = ["", "a", "0", "7", "A.b_c-d", "z" * 63, *ZONES]
_NUMBERS = ["0", "7", str(INT64), "9" * 60]
KEYS = [HOST, ZONE, "a", "x" * 63, f"{'d' * 60}.example/{'k' * 63}", "app"]


def name_of(kind: str, number: int) -> str:
    """Return the name of a kind's object."""
    return f"hostile-{kind.lower()}-{number}"


def metadata(rng: random.Random) -> Json:
    """Return labels, annotations, owners and managed fields."""
    meta: Json = {"labels": labels(rng)}
    if rng.random() < 0.5:
        texts = [rng.choice(TEXTS) for _ in range(rng.randrange(20))]
        meta["annotations"] = {f"example.com/a{n}": text for n, text in enumerate(texts)}
    if rng.random() < 0.3:
        meta["ownerReferences"] = [
            {"apiVersion": "v9", "kind": "Odd", "name": f"o{n}", "uid": rng.choice("é\u0001x") * 9}
            for n in range(rng.choice([1, 3, 200]))
        ]
    if rng.random() < 0.5:
        meta["managedFields"] = [
            {
                "manager": "somebody",
                "operation": "Update",
                "apiVersion": "v1",
                "time": "2026-01-01T00:00:00Z",
                "fieldsType": "FieldsV1",
                "fieldsV1": rng.choice([odd_json(rng), _nested(rng.randrange(1, 900))]),
            }
        ]
    return meta


def _nested(depth: int) -> Json:
    fields: Json = {}
    for _ in range(depth):
        fields = {"f:a": fields}
    return fields


def labels(rng: random.Random) -> dict[str, str]:
    """Return a few labels, or hundreds."""
    if rng.random() < 0.05:
        return {f"wide-{n}": "v" for n in range(300)}
    return {rng.choice(KEYS): rng.choice(VALUES) for _ in range(rng.randrange(4))}


def some(rng: random.Random, make: Callable[[], Any], most: int = 4) -> list[Any]:
    """Return one to ``most`` of what ``make`` returns."""
    return [make() for _ in range(rng.randrange(1, most + 1))]


def label_requirement(rng: random.Random) -> Json:
    """Return an expression of a label selector."""
    operator = rng.choice(["In", "NotIn", "Exists", "DoesNotExist"])
    found: Json = {"key": rng.choice(KEYS), "operator": operator}
    if operator in ("In", "NotIn"):
        found["values"] = some(rng, lambda: rng.choice(VALUES), 30)
    return found


def label_selector(rng: random.Random) -> Json:
    """Return a label selector."""
    selector: Json = {}
    if rng.random() < 0.7:
        selector["matchLabels"] = labels(rng)
    if rng.random() < 0.7:
        selector["matchExpressions"] = some(rng, lambda: label_requirement(rng))
    return selector


def _node_requirement(rng: random.Random) -> Json:
    if rng.random() < 0.7:
        return label_requirement(rng)
    operator = rng.choice(["Gt", "Lt"])
    return {"key": rng.choice(KEYS), "operator": operator, "values": [rng.choice(_NUMBERS)]}


def node_term(rng: random.Random) -> Json:
    """Return a term of a node selector."""
    term: Json = {"matchExpressions": some(rng, lambda: _node_requirement(rng))}
    if rng.random() < 0.3:
        name = rng.choice(["node-00001", "gone", "x"])
        operator = rng.choice(["In", "NotIn"])
        term["matchFields"] = [{"key": "metadata.name", "operator": operator, "values": [name]}]
    return term


def node_selector(rng: random.Random) -> Json:
    """Return a node selector."""
    return {"nodeSelectorTerms": some(rng, lambda: node_term(rng))}


def quantities(rng: random.Random, *names: str) -> dict[str, str]:
    """Return quantities of some of the named resources."""
    return {name: rng.choice(QUANTITIES) for name in names if rng.random() < 0.7}
