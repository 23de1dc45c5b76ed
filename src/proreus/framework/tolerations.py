"""Tolerations of pods, indexed by the taints that they match.

Pods with the same tolerations share one index, so that they can be compared by identity, and so
that 50,000 of them are looked at once.
"""

from __future__ import annotations

from weakref import WeakValueDictionary

import msgspec

from proreus.base.bounded_cache import BYTES_AN_ENCODED_BYTE, BYTES_AN_ENTRY, LoadingCache
from proreus.framework.pod_info import PodInfo
from proreus.objects.taints import Toleration, TolerationIndex

_BUDGET_BYTES = 64 * 2**20
_NO_TOLERATIONS = TolerationIndex(())
_alive: WeakValueDictionary[bytes, TolerationIndex] = WeakValueDictionary()
_encode = msgspec.msgpack.Encoder().encode


def toleration_index(pod: PodInfo) -> TolerationIndex:
    """Return the index of a pod's tolerations; the same object for pods with the same ones."""
    known: TolerationIndex | None = pod.toleration_index
    if known is None:
        tolerations = pod.pod.spec.tolerations
        known = _shared.of(tolerations) if tolerations else _NO_TOLERATIONS
        pod.toleration_index = known
    return known


def _key_of(tolerations: tuple[Toleration, ...]) -> bytes:
    # By encoding: bytes keep their hash, and their length says how much memory an entry takes.
    return _encode(tolerations)


def _indexed(key: bytes, tolerations: tuple[Toleration, ...]) -> tuple[TolerationIndex, int]:
    # Pods keep theirs for longer than the cache does: their equals are to have the same one.
    index = _alive.get(key)
    if index is None:
        size_bytes = BYTES_AN_ENTRY + BYTES_AN_ENCODED_BYTE * len(key)
        index = _alive[key] = TolerationIndex(tolerations, size_bytes)
    return index, index.size_bytes


_shared = LoadingCache(_BUDGET_BYTES, _key_of, _indexed)
