"""Kinds of devices: devices that differ in nothing but their names share one ``DeviceKind``.

A cluster has thousands of devices and a handful of kinds. What a driver publishes of a device is
parsed once for its kind, and a CEL selector is evaluated once for its kind.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Any, TypeVar
from weakref import WeakValueDictionary

import msgspec
from msgspec import Struct, field

from proreus.base.bounded_cache import BYTES_AN_ENTRY, BoundedCache, approximate_size
from proreus.objects.devices import (
    CapacityRequestPolicy,
    Device,
    DeviceAttribute,
    DeviceTaint,
    QuantityText,
)
from proreus.objects.quantity import parse_quantity
from proreus.plugins.dynamic_resources.cel.attributes import compile_derived_attribute
from proreus.plugins.dynamic_resources.cel.expressions import (
    Attribute,
    CelError,
    DeviceView,
    Domains,
    compile_selector,
)
from proreus.plugins.dynamic_resources.cel.values import quantity_value, semver
from proreus.plugins.dynamic_resources.features import Features

_results: BoundedCache[tuple[int, str, str], Any] = BoundedCache(32 * 2**20)
"""Results of expressions for kinds of devices, by ``DeviceKind.number``, use and expression."""
_numbers = count()

R = TypeVar("R")

Value = tuple[str, object]
"""Type and value of an attribute: the integer 1 and the version "1" do not match."""
NOT_COMPARABLE: Value = ("list", None)
"""The value of a list where only single values are compared."""
UNSUPPORTED: Value = ("unsupported", None)
"""From 1.38 on, the value of such a list, of an unknown type, or that is no version."""

RUNTIME_ERROR = "CEL runtime error: "
"""The beginning of the text of a ``CelError`` that depends on the device."""

GroupsBySet = dict[str, frozenset[str]]
"""The compatibility groups of a device by the counter set that it consumes."""

Counters = dict[str, dict[str, int]]
"""Amounts in nano-units by counter set and counter."""


class Capacity(Struct, frozen=True):
    """A capacity of a device in nano-units, and the policy for amounts that may be consumed.

    ``name``: as the driver publishes it.
    """

    name: str
    value: int
    text: QuantityText
    policy: CapacityRequestPolicy | None


T = TypeVar("T")


def capacity_name(name: str, driver: str, features: Features) -> str:
    """Return the domain and name of a capacity; up to 1.37, the name as it is written.

    A name without domain has the driver's.
    """
    return name if "/" in name or not features.allocator_of_1_38 else f"{driver}/{name}"


def by_capacity(amounts: Mapping[str, T], driver: str, features: Features) -> dict[str, T]:
    """Return amounts by ``capacity_name``.

    Of one that is written with and without the driver's domain, the one with the domain counts.
    """
    names = sorted(amounts, key=lambda name: "/" in name)
    return {capacity_name(name, driver, features): amounts[name] for name in names}


class DeviceKind:
    """All that matters of a device, except its name and its pool.

    ``number``: unique in the process. ``taints``: none with gate DRADeviceTaints off.
    ``shared``: several claims may have the device at the same time (KEP-5075). ``capacity``: see
    ``by_capacity``.
    """

    def __init__(self, driver: str, device: Device, features: Features) -> None:
        self.number = next(_numbers)
        self.driver = driver
        self.device = device
        self.shared = features.consumable_capacity and bool(device.allow_multiple_allocations)
        self.taints: tuple[DeviceTaint, ...] = device.taints if features.device_taints else ()
        self.consumes: Counters = {
            part.counter_set: {
                name: parse_quantity(counter.value) for name, counter in part.counters.items()
            }
            for part in device.consumes_counters
        }
        self.groups: GroupsBySet = {
            part.counter_set: frozenset(part.compatibility_groups)
            for part in device.consumes_counters
        }
        capacities = {
            name: Capacity(name, parse_quantity(each.value), each.value, each.request_policy)
            for name, each in device.capacity.items()
        }
        self.capacity = by_capacity(capacities, driver, features)
        self.needs_binding_conditions = bool(
            device.binding_conditions or device.binding_failure_conditions
        )
        self.features = features
        self._view: DeviceView | None = None

    def matches(self, expression: str) -> bool:
        """Return whether a CEL selector selects the device; raises ``CelError``."""

        def evaluate() -> bool:
            selector = compile_selector(expression)
            if selector.error:
                raise CelError(f"CEL compile error: {selector.error}")
            try:
                return selector.matches(self._cel_view())
            except CelError as error:
                raise CelError(f"{RUNTIME_ERROR}{error}") from None

        return self._result("selector", expression, evaluate)

    def derive(self, expression: str) -> DeviceAttribute:
        """Return the attribute that an expression derives of the device; raises ``CelError``.

        The expression must compile (``compile_derived_attribute``).
        """
        derived = compile_derived_attribute(expression)
        return self._result("derived", expression, lambda: derived.evaluate(self._cel_view()))

    def _result(self, use: str, expression: str, evaluate: Callable[[], R]) -> R:
        # The evaluation depends on the expression and the kind alone: CEL has no clock and no
        # state. An entry, which may be an error, is never wrong, so the cache is only bounded, for
        # expressions that carry a claim's own numbers.
        key = self.number, use, expression
        result = _results.get(key)
        if result is None:
            try:
                result = evaluate()
            except CelError as error:
                result = error
            content = msgspec.json.encode(result, enc_hook=str)
            _results.put(key, result, BYTES_AN_ENTRY + approximate_size((expression, content)))
        if isinstance(result, CelError):
            raise result.with_traceback(None)
        return result

    def _cel_view(self) -> DeviceView:
        # Built with the first expression, not with the kind: an attribute that CEL cannot represent
        # is an error only for devices that an expression looks at, and it is one each time.
        if self._view is None:
            self._view = self._cel_device()
        return self._view

    def _cel_device(self) -> DeviceView:
        attributes: Domains = {}
        unsupported = set()
        features = self.features
        lists = features.list_attributes or features.allocator_of_1_37
        # Names without a domain are the driver's own (KEP-4381), unless it has one with it.
        for name in sorted(self.device.attributes, key=lambda name: "/" in name):
            domain, _, identifier = name.rpartition("/")
            named = attributes.setdefault(domain or self.driver, {})
            try:
                named[identifier] = _value(name, self.device.attributes[name], lists)
            except CelError:
                # From 1.38 on an error where it is looked up only.
                if not features.allocator_of_1_38:
                    raise
                named.pop(identifier, None)
                unsupported.add(identifier)
        capacity: Domains = {}
        for name, amount in self.capacity.items():
            domain, _, identifier = name.rpartition("/")
            capacity.setdefault(domain or self.driver, {})[identifier] = quantity_value(
                amount.value
            )
        shared = bool(self.device.allow_multiple_allocations)
        return DeviceView(self.driver, attributes, capacity, shared, frozenset(unsupported))

    def attribute_values(self, name: str, lists: bool) -> frozenset[Value]:
        """Return type and value of each value of an attribute; see ``values_of``.

        ``name`` has a domain; the driver may publish its own attributes without it.
        """
        found = self._attribute(name)
        if found is None:
            return frozenset()
        return values_of(found, lists, self.features.allocator_of_1_38)

    def _attribute(self, name: str) -> DeviceAttribute | None:
        # The full name first, then the bare one in the driver's own domain (lookupAttribute).
        found = self.device.attributes.get(name)
        if found is None:
            domain, _, identifier = name.rpartition("/")
            if domain == self.driver:
                found = self.device.attributes.get(identifier)
        return found


def values_of(attribute: DeviceAttribute, lists: bool, of_1_38: bool) -> frozenset[Value]:
    """Return type and value of each value of an attribute, as constraints compare them.

    Without ``lists`` a list counts as ``NOT_COMPARABLE``, or ``UNSUPPORTED``; ``of_1_38``: see
    ``Change.ALLOCATOR_OF_1_38``.
    """
    try:
        for kind in ("int", "bool", "string", "version") if lists else ():
            values: Sequence[object] | None = getattr(attribute, f"{kind}_values")
            if values:
                return frozenset(_comparable(kind, value, of_1_38) for value in values)
            # The empty list of a derived attribute: it has no value in common with another one.
            if values is not None and of_1_38:
                return frozenset((("empty", object()),))
        for kind in ("string", "int", "bool", "version"):
            value: object = getattr(attribute, f"{kind}_value")
            if value is not None:
                return frozenset((_comparable(kind, value, of_1_38),))
    except ValueError:  # no version
        return frozenset((UNSUPPORTED,))
    if of_1_38:
        return frozenset((UNSUPPORTED,))
    return frozenset() if lists else frozenset((NOT_COMPARABLE,))


def _comparable(kind: str, value: object, of_1_38: bool) -> Value:
    # Equal versions may differ in their build; up to 1.37 texts were compared.
    return kind, semver(str(value)) if kind == "version" and of_1_38 else value


def _value(name: str, attribute: DeviceAttribute, lists: bool) -> Attribute:
    """Return an attribute for CEL; raises ``CelError``.

    ``lists``: it may be a list, up to 1.36 with gate DRAListTypeAttributes only.
    """
    if attribute.int_value is not None:
        return attribute.int_value
    if attribute.bool_value is not None:
        return attribute.bool_value
    if attribute.string_value is not None:
        return attribute.string_value
    if attribute.version_value is not None:
        try:
            return semver(attribute.version_value)
        except ValueError as error:
            raise CelError(f"attribute {name}: {error}") from None
    if lists:
        for values in (attribute.int_values, attribute.bool_values, attribute.string_values):
            if values is not None:
                return list(values)
        if attribute.version_values is not None:
            return [semver(text) for text in attribute.version_values]
    raise CelError(f"attribute {name}: unsupported attribute value")


class DeviceKinds(Struct):
    """Interns kinds: devices that are equal but for their names get the same ``DeviceKind``."""

    features: Features
    _kinds: WeakValueDictionary[tuple[str, bytes], DeviceKind] = field(
        default_factory=WeakValueDictionary
    )
    """Those that a slice has, or a view of one that is kept."""

    def kind_of(
        self, driver: str, device: Device, taints: tuple[DeviceTaint, ...] = ()
    ) -> DeviceKind:
        """Return the kind of a device with ``taints`` of DeviceTaintRules added (KEP-5055)."""
        # Encoded as JSON for a key: structs with maps inside are not hashable.
        nameless = msgspec.structs.replace(device, name="", taints=(*device.taints, *taints))
        key = driver, msgspec.json.encode(nameless)
        kind = self._kinds.get(key)
        if kind is None:
            kind = self._kinds[key] = DeviceKind(driver, nameless, self.features)
        return kind

    def __len__(self) -> int:
        return len(self._kinds)
