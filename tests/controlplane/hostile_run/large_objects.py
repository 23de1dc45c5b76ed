"""Objects as large as an apiserver stores them, each full of one thing.

Makers get ``scale``, which multiplies how many of it there are. How large an object may be depends
on what it is full of: etcd's limit is for the encoded object, the apiserver's for the request, and
the JSON that the apiserver sends is up to twice as long as either. So ``load`` finds it by trying.
"""

from __future__ import annotations

import random
from typing import Any

from envtest import objects
from hostile.full_objects import FULL_OBJECTS
from hostile.full_pods import Named, accepted
from hostile.objects import NAMED

from hostile_run.odd_values import DRIVER, name_of
from hostile_run.valid_objects import MAKERS, valid_object

Json = dict[str, Any]

_ANNOTATION_BYTES = 250_000
"""The apiserver allows 256 KiB of annotations."""


def number_of_large(kind: str) -> int:
    """Return how many sorts of large objects of a kind there are."""
    return len(_SORTS[kind])


def large_object(kind: str, sort: int, number: int, scale: float) -> Json:
    """Return an object, named as a small one of that number, full of the thing of that sort."""
    make = _SORTS[kind][sort]
    obj = valid_object(kind, number, 0)
    made = make(random.Random(number), scale)
    if kind == "Pod":
        return accepted(made, objects.pod(name_of(kind, number), "default-scheduler"))
    if kind in ("Service", "PersistentVolume"):  # which require more than they are full of
        made["spec"] = obj["spec"] | made.get("spec", {})
    elif set(made) == {"metadata"}:
        made = obj | made
    return made | {"metadata": obj["metadata"] | made.get("metadata", {})}


def _owners(_rng: random.Random, scale: float) -> Json:
    owner = {"apiVersion": "v1", "kind": "Odd", "name": "o"}
    owners = [owner | {"uid": f"{n}"} for n in range(1 + int(24_000 * scale))]
    return {"metadata": {"ownerReferences": owners}}


def _labels(_rng: random.Random, scale: float) -> Json:
    return {"metadata": {"labels": {f"l{n}": "v" for n in range(1 + int(20_000 * scale))}}}


def _annotations(_rng: random.Random, scale: float) -> Json:
    text = "\\\u0001" * (1 + int(_ANNOTATION_BYTES / 2 * min(scale, 1)))
    return {"metadata": {"annotations": {"a": text}}}


def _slice_devices(rng: random.Random, scale: float) -> Json:
    """Return a slice of as many devices and attributes as are allowed."""
    count = max(1, int(32 * min(scale, 1)))
    attributes = {f"a{n}": {"string": "s" * 64} for n in range(count)}
    devices = [{"name": f"d{n}", "attributes": attributes} for n in range(4 * count)]
    pool = {"name": f"wide-{rng.random()}", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": DRIVER, "allNodes": True, "pool": pool, "devices": devices}
    return {"spec": spec}


def _claim_parameters(_rng: random.Random, scale: float) -> Json:
    """Return a claim with as many parameters as are allowed, nested."""
    depth = 1 + int(4_500 * min(scale, 1))
    parameters: Any = 1
    for _ in range(min(depth, 900)):
        parameters = {"a": parameters}
    request = {"name": "r", "exactly": {"deviceClassName": "gpu"}}
    config = [{"opaque": {"driver": DRIVER, "parameters": parameters}}] * 32
    return {"spec": {"devices": {"requests": [request], "config": config}}}


def _selector_requirements(_rng: random.Random, scale: float) -> Json:
    """Return a workload that selects by tens of thousands of requirements."""
    count = 1 + int(30_000 * scale)
    requirements = [{"key": f"k{n}", "operator": "DoesNotExist"} for n in range(count)]
    selector = {"matchLabels": {"app": "a"}, "matchExpressions": requirements}
    spec = {"containers": [{"name": "c", "image": "i"}]}
    template = {"metadata": {"labels": {"app": "a"}}, "spec": spec}
    return {"spec": {"selector": selector, "template": template, "replicas": 0}}


_OF_ANY_KIND: tuple[Named, ...] = (_owners, _labels, _annotations)
_OF_KIND: dict[str, tuple[Named, ...]] = {
    **{kind: NAMED[kind] for kind in ("Pod", "ResourceClaim")},
    **FULL_OBJECTS,
    "ResourceSlice": (_slice_devices,),
    "ReplicaSet": (_selector_requirements,),
    "StatefulSet": (_selector_requirements,),
}
_OF_KIND["ResourceClaim"] += (_claim_parameters,)
_SORTS = {kind: (*_OF_KIND.get(kind, ()), *_OF_ANY_KIND) for kind in MAKERS}

_COSTLY = {
    "namespace_labels": 0.3,
    "many_labels": 0.2,
    "class_topologies": 0.1,
    "_labels": 0.5,
    "_owners": 1.5,
}
"""How large those are to be that take the apiserver itself many seconds."""


def largest_scale(kind: str, sort: int) -> float:
    """Return the scale to begin with; an apiserver may store less."""
    return _COSTLY.get(_SORTS[kind][sort].__name__, 2.0)
