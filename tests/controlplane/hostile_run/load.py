"""Creates hostile objects by the batch, and deletes them; counts what the apiserver refuses."""

from __future__ import annotations

from collections import Counter
from typing import Any

from envtest.binaries import emulated_version
from envtest.kube_client import MERGE_PATCH, METADATA_ONLY, KubeClient
from hostile.odd_json import encode

from hostile_run.large_objects import large_object, largest_scale, number_of_large
from hostile_run.odd_values import name_of
from hostile_run.valid_objects import MAKERS, valid_object
from proreus.base.kubernetes_version import KubernetesVersion
from proreus.objects.kinds import BY_KIND
from proreus.objects.meta import Resource

Json = dict[str, Any]

LARGE_PODS = 5
"""The number of large pods of a batch; of other kinds there is one."""
_NEXT_SCALE, _SMALLEST_SCALE = 0.75, 0.05
_FINALIZED = ("PersistentVolume", "PersistentVolumeClaim", "ResourceClaim", "PodGroup")
"""The kinds that get finalizers, which controllers would remove."""
_UNSERVED = 404


class HostileLoad:
    """Creates and deletes batches of objects of every kind that the apiserver serves."""

    def __init__(self, client: KubeClient, seed: int) -> None:
        self.stored: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.refusals: dict[str, str] = {}
        """The last refusal of each kind."""
        self.largest: Counter[str] = Counter()
        """The most bytes of a stored object of each kind, as the apiserver sends it."""
        version = KubernetesVersion.parse(emulated_version())
        self._resources = {kind: BY_KIND[kind].as_of(version) for kind in MAKERS}
        self._client = client
        self._seed = seed
        self._tried: Counter[str] = Counter()
        """The number of large objects of each kind."""
        self._scales: dict[tuple[str, int], float] = {}
        self._alive: dict[str, list[int]] = {}

    def leave_out_unserved(self) -> list[str]:
        """Leave out kinds that the apiserver does not serve, and return them."""
        unserved = [
            kind
            for kind, resource in self._resources.items()
            if self._client.request("GET", resource.path(), limit="1").status == _UNSERVED
        ]
        for kind in unserved:
            del self._resources[kind]
        return unserved

    def begin_wave(self) -> None:
        """Have the next large objects be those of the first wave again."""
        self._tried.clear()

    def create(self, first: int, count: int, *, large: bool = True) -> None:
        """Create ``count`` objects of each kind, numbered from ``first``, some of them large."""
        for kind in self._resources:
            numbers = range(first, first + count)
            sorts = LARGE_PODS if kind == "Pod" else 1
            many = min(sorts if large else 0, count)
            self._client.in_parallel(lambda n, kind=kind: self._create(kind, n), numbers[many:])
            for number in numbers[:many]:
                self._create_large(kind, number)

    def delete(self) -> None:
        """Delete all objects."""
        for kind, numbers in reversed(self._alive.items()):
            self._client.in_parallel(lambda n, kind=kind: self._delete(kind, n), numbers)
        self._alive.clear()

    def _create(self, kind: str, number: int) -> None:
        if refusal := self._send(kind, number, valid_object(kind, number, self._seed)):
            self._count_refusal(kind, refusal)

    def _create_large(self, kind: str, number: int) -> None:
        """Create an object of one sort after the other, as large as the apiserver stores it."""
        sort = self._tried[kind] % number_of_large(kind)
        self._tried[kind] += 1
        scale = self._scales.get((kind, sort)) or largest_scale(kind, sort)
        while refusal := self._send(kind, number, large_object(kind, sort, number, scale)):
            scale *= _NEXT_SCALE
            if scale < _SMALLEST_SCALE:
                self._count_refusal(kind, refusal)
                return
        self._scales[kind, sort] = scale

    def _count_refusal(self, kind: str, refusal: str) -> None:
        self.refused[kind] += 1
        self.refusals[kind] = refusal

    def _send(self, kind: str, number: int, obj: Json) -> str:
        """Create an object; return why it was refused, or ""."""
        resource = self._resources[kind]
        status = obj.get("status")
        body = encode({"apiVersion": resource.api_version, "kind": kind, **obj})
        try:
            answer = self._client.request("POST", _collection(resource), body)
        except ConnectionError as error:  # the apiserver panics at a number that it cannot write
            return str(error)
        if answer.status >= 400:
            return f"{answer.status} {answer.data[:300]!r}"
        self.stored[kind] += 1
        self.largest[kind] = max(self.largest[kind], len(answer.data))
        self._alive.setdefault(kind, []).append(number)
        if status and kind != "Node":  # whose status is stored as it is created
            self._patch(f"{self._path(kind, number)}/status", {"status": status})
        return ""

    def _delete(self, kind: str, number: int) -> None:
        path = self._path(kind, number)
        if kind in _FINALIZED:
            self._patch(path, {"metadata": {"finalizers": None}})
        self._client.request("DELETE", path, gracePeriodSeconds="0", propagationPolicy="Background")
        if kind == "Namespace":
            finalized = {"metadata": {"name": name_of(kind, number)}, "spec": {"finalizers": []}}
            self._client.request("PUT", f"{path}/finalize", finalized)

    def _patch(self, path: str, body: Json) -> None:
        # responses are not decoded: they may be deeper than Python's parser goes
        self._client.request("PATCH", path, body, content_type=MERGE_PATCH)

    def _path(self, kind: str, number: int) -> str:
        return f"{_collection(self._resources[kind])}/{name_of(kind, number)}"

    def left(self) -> list[str]:
        """Return the kinds of which objects are still there."""
        return [
            kind
            for kind, resource in self._resources.items()
            if b'"name":"hostile-'
            in self._client.request("GET", _collection(resource), accept=METADATA_ONLY).data
        ]


def _collection(resource: Resource[Any]) -> str:
    return resource.path("default" if resource.namespaced else None)
