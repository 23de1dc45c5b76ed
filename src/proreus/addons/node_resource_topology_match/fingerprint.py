"""The fingerprint of a set of pods, by which agents tell which pods a topology object knows.

Source: k8stopologyawareschedwg/podfingerprint, version ``v001``: XXH64 over the sorted hashes of
the pods, each XXH64 of the name with that of the namespace as seed.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import unpack_from

ATTRIBUTE = "nodeTopologyPodsFingerprint"
METHOD_ATTRIBUTE = "nodeTopologyPodsFingerprintMethod"
ANNOTATION = "topology.node.k8s.io/fingerprint"
EXCLUSIVE_ONLY = "with-exclusive-resources"
_PREFIX = "pfp0v001"

_P1 = 11400714785074694791
_P2 = 14029467366897019727
_P3 = 1609587929392839161
_P4 = 9650029242287828579
_P5 = 2870177450012600261
_MASK = 2**64 - 1


def fingerprint(pods: Iterable[tuple[str, str]]) -> str:
    """Return the fingerprint of pods, each a namespace and a name; their order is irrelevant."""
    hashes = sorted(xxh64(name.encode(), xxh64(space.encode())) for space, name in pods)
    data = b"".join(one.to_bytes(8, "little") for one in hashes)
    return f"{_PREFIX}{xxh64(data):016x}"


def xxh64(data: bytes, seed: int = 0) -> int:
    """Return XXH64 of data."""
    size, place = len(data), 0
    if size >= 32:
        lanes = [seed + _P1 + _P2, seed + _P2, seed, seed - _P1]
        while place + 32 <= size:
            words = unpack_from("<4Q", data, place)
            lanes = [_round(lane, word) for lane, word in zip(lanes, words, strict=True)]
            place += 32
        result = sum(_rotate(lane, by) for lane, by in zip(lanes, (1, 7, 12, 18), strict=True))
        for lane in lanes:
            result = ((result ^ _round(0, lane)) * _P1 + _P4) & _MASK
    else:
        result = seed + _P5
    result = (result + size) & _MASK
    while place + 8 <= size:
        (word,) = unpack_from("<Q", data, place)
        result = _rotate(result ^ _round(0, word), 27) * _P1 + _P4 & _MASK
        place += 8
    if place + 4 <= size:
        (half,) = unpack_from("<I", data, place)
        result = _rotate(result ^ (half * _P1 & _MASK), 23) * _P2 + _P3 & _MASK
        place += 4
    for byte in data[place:]:
        result = _rotate(result ^ (byte * _P5 & _MASK), 11) * _P1 & _MASK
    result = (result ^ (result >> 33)) * _P2 & _MASK
    result = (result ^ (result >> 29)) * _P3 & _MASK
    return result ^ (result >> 32)


def _round(lane: int, word: int) -> int:
    return _rotate((lane + word * _P2) & _MASK, 31) * _P1 & _MASK


def _rotate(value: int, by: int) -> int:
    value &= _MASK
    return ((value << by) | (value >> (64 - by))) & _MASK
