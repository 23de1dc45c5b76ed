"""DeviceTaintRules: the taints that administrators put on devices (KEP-5055)."""

from __future__ import annotations

from proreus.objects.devices import (
    DeviceTaint,
    DeviceTaintRule,
    DeviceTaintSelector,
)


class TaintRules:
    """The rules of a cluster. ``nil_selects_all``: see ``Change.NIL_DEVICE_SELECTOR``."""

    def __init__(self, nil_selects_all: bool) -> None:
        self._nil_selects_all = nil_selects_all
        self._rules: dict[str, DeviceTaintRule] = {}

    def put(self, old: DeviceTaintRule | None, new: DeviceTaintRule | None) -> None:
        """Apply a change of a rule."""
        if old is not None:
            self._rules.pop(old.metadata.name, None)
        if new is not None:
            self._rules[new.metadata.name] = new

    def taints_of(self, driver: str, pool: str, device: str) -> tuple[DeviceTaint, ...]:
        """Return the taints that rules put on a device."""
        return tuple(
            rule.spec.taint
            for rule in self._rules.values()
            if selects(rule.spec.device_selector, driver, pool, device, self._nil_selects_all)
        )


def selects(
    selector: DeviceTaintSelector | None,
    driver: str,
    pool: str,
    device: str,
    nil_selects_all: bool = False,
) -> bool:
    """Return whether a rule applies to a device; fields that are not set select everything."""
    if selector is None:
        return nil_selects_all
    return (
        selector.driver in (None, driver)
        and selector.pool in (None, pool)
        and selector.device in (None, device)
    )
