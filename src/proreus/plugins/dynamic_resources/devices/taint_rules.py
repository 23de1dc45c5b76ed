"""DeviceTaintRules: the taints that administrators put on devices (KEP-5055)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from itertools import product
from operator import itemgetter

from proreus.objects.devices import (
    Device,
    DeviceTaint,
    DeviceTaintRule,
    DeviceTaintSelector,
)

_Scope = tuple[str | None, str | None, str | None]
"""Driver, pool and device of a selector; None selects all."""


class TaintRules:
    """The rules of a cluster. ``nil_selects_all``: see ``Change.NIL_DEVICE_SELECTOR``.

    A driver may have a rule for each broken device: rules are found by what they select, in a time
    that does not depend on their number.
    """

    def __init__(self, nil_selects_all: bool) -> None:
        self._nil_selects_all = nil_selects_all
        self._taints: dict[_Scope, dict[str, DeviceTaint]] = defaultdict(dict)
        self._order: dict[str, int] = {}
        """A number for each rule by name, rising."""
        self._last = 0

    def put(
        self, old: DeviceTaintRule | None, new: DeviceTaintRule | None
    ) -> list[DeviceTaintSelector]:
        """Apply a change of a rule; return the selectors of devices whose taints may differ."""
        if old is not None and new is not None and old.spec == new.spec:
            return []  # its status tells how many pods it has evicted
        changed = []
        for rule, there in ((old, False), (new, True)):
            if rule is None:
                continue
            selector = rule.spec.device_selector
            if selector is None and not self._nil_selects_all:
                continue
            selector = selector or DeviceTaintSelector()
            scope, name = _scope_of(selector), rule.metadata.name
            if there:
                self._last += 1
                self._order[name] = self._last
                self._taints[scope][name] = rule.spec.taint
            else:
                self._taints[scope].pop(name, None)
                self._order.pop(name, None)
                if not self._taints[scope]:
                    del self._taints[scope]
            changed.append(selector)
        return changed

    def taints_of(self, driver: str, pool: str, device: str) -> tuple[DeviceTaint, ...]:
        """Return the taints that rules put on a device, in the order of the rules."""
        if not self._taints:
            return ()
        found = [
            (self._order[name], taint)
            for scope in product((None, driver), (None, pool), (None, device))
            if (taints := self._taints.get(scope))
            for name, taint in taints.items()
        ]
        return tuple(taint for _, taint in sorted(found, key=itemgetter(0)))


def _scope_of(selector: DeviceTaintSelector) -> _Scope:
    return selector.driver, selector.pool, selector.device


def selects_some(
    selector: DeviceTaintSelector | None, driver: str, pool: str, devices: Iterable[Device]
) -> bool:
    """Return whether a rule applies to one of a pool's devices."""
    if (
        selector is None
        or selector.driver not in (None, driver)
        or selector.pool not in (None, pool)
    ):
        return False
    return any(selector.device in (None, device.name) for device in devices)
