"""Which devices may draw from a counter set together (gate DRADeviceCompatibilityGroups, 1.37).

A device names its groups for each counter set that it consumes. A device without groups goes with
devices without groups only; others need a group that all devices on the set have in common.

Example: d1 names {a, b} and is allocated. d2 with {b, c} may join, and then only {b} is left, so
that d3 with {a} is refused; d4 without groups was refused from the start.
"""

from __future__ import annotations

from collections.abc import Mapping

from proreus.plugins.dynamic_resources.devices.availability_index import DeviceAvailability
from proreus.plugins.dynamic_resources.devices.kinds import DeviceKind

Common = frozenset[str]
"""The groups that all devices on a counter set have in common; empty: they have no groups."""


def join(common: Common | None, groups: Common) -> Common | None:
    """Return what a counter set's devices have in common with one more; None: it may not join.

    ``common`` None: there is no device yet.
    """
    if common is None:
        return groups
    if not common or not groups:
        return None if common or groups else common
    return common & groups or None


class JoinedGroups:
    """The groups of devices placed in one search; pools by their position."""

    def __init__(self, availability: DeviceAvailability) -> None:
        self._availability = availability
        self._common: dict[int, dict[str, Common]] = {}
        self._before: list[tuple[int, Mapping[str, Common]]] = []

    def join(self, pool: int, kind: DeviceKind) -> bool:
        """Place a device; return whether it goes with those on each of its counter sets."""
        before = self._common.get(pool)
        if before is None:
            before = self._common[pool] = dict(self._availability.states[pool].groups)
        after = dict(before)
        for name, groups in kind.groups.items():
            joined = join(after.get(name), groups)
            if joined is None:
                return False
            after[name] = joined
        self._before.append((pool, before))
        self._common[pool] = after
        return True

    def leave(self) -> None:
        """Undo the last ``join`` that succeeded."""
        pool, before = self._before.pop()
        self._common[pool] = dict(before)
