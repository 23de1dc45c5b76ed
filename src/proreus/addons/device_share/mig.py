"""MIG instances on a GPU: which profiles fit where.

A GPU has seven compute slices and eight memory slices. An instance takes neighbouring memory
slices, and may begin at certain ones only (``nvidia-smi mig -lgipp``). On an A100 with 40 GB,
1g.5gb takes one slice, 2g.10gb two, 3g.20gb four, which begin at 0 or 4.
"""

from __future__ import annotations

import re
from functools import lru_cache

from proreus.addons.device_share.devices import NodeDevice

COMPUTE_SLICES, MEMORY_SLICES = 7, 8
_SIZES = {1: 1, 2: 2, 3: 4, 4: 4, 7: 8}
"""Memory slices by compute slices, if the profile's gigabytes do not ask for more."""
_STARTS = {1: (0, 1, 2, 3, 4, 5, 6), 2: (0, 2, 4), 4: (0, 4), 8: (0,)}
_PROFILE = re.compile(r"(\d)g\.(\d{1,4})gb", re.ASCII)
_GIB = 2**30
_COMMON = ((1, 1), (1, 2), (2, 2), (3, 4), (4, 4), (7, 8))
"""Compute and memory slices of the usual profiles."""


def size_of(profile: str, device: NodeDevice) -> tuple[int, int]:
    """Return the compute and memory slices of a profile; (0, 0) if it is no profile."""
    match = _PROFILE.match(profile)
    if match is None or int(match[1]) not in _SIZES:
        return 0, 0
    compute, gigabytes = int(match[1]), int(match[2])
    size = _SIZES[compute]
    if device.memory:
        # Names round: the slice of a GPU with 79 GiB is called 10gb.
        slices = gigabytes * _GIB * MEMORY_SLICES / device.memory
        wanted = next((one for one in _STARTS if one >= slices * 0.9), MEMORY_SLICES + 1)
        size = max(size, wanted)
    return compute, size


def start_of(profile: str, device: NodeDevice, taken: int, compute_taken: int) -> int | None:
    """Return where an instance of a profile begins best; None if there is no room.

    ``taken``: a bit for each memory slice. The best place leaves the most places for others.
    """
    compute, size = size_of(profile, device)
    return _best_start(compute, size, taken, compute_taken)


def free_starts(profile: str, device: NodeDevice, taken: int, compute_taken: int) -> list[int]:
    """Return all places where an instance of a profile may begin."""
    compute, size = size_of(profile, device)
    return _free_starts(compute, size, taken, compute_taken)


def _free_starts(compute: int, size: int, taken: int, compute_taken: int) -> list[int]:
    if not compute or size > MEMORY_SLICES or compute_taken + compute > COMPUTE_SLICES:
        return []
    return [start for start in _starts(compute, size) if not taken & _mask(start, size)]


@lru_cache(maxsize=4096)
def _best_start(compute: int, size: int, taken: int, compute_taken: int) -> int | None:
    free = _free_starts(compute, size, taken, compute_taken)
    if not free:
        return None
    left = compute_taken + compute
    return max(free, key=lambda start: (_places(taken | _mask(start, size), left), start))


def _starts(compute: int, size: int) -> tuple[int, ...]:
    if compute == 4:
        return (0,)
    return (0, 2, 4, 6) if (compute, size) == (1, 2) else _STARTS[size]


def _mask(start: int, size: int) -> int:
    return ((1 << size) - 1) << start


def _places(taken: int, compute_taken: int) -> int:
    """Return at how many places instances of any profile could begin."""
    return sum(
        not taken & _mask(start, size)
        for compute, size in _COMMON
        if compute_taken + compute <= COMPUTE_SLICES
        for start in _starts(compute, size)
    )
