"""The pools of ResourceSlices that drivers publish, and each pool as a node sees it.

A pool is what one driver lists under one name, in one or more slices; a newer generation replaces
the older. Most pools belong to one node (*local*), others are in reach of several nodes. A view has
the result of kube-scheduler's ``GatherPools`` for one pool and node.

Example: pool p at generation 2 says ``resourceSliceCount: 2``. With one slice published, it is
incomplete: its devices are not given, and requests for all devices fail. With both, it is usable,
unless it is invalid: two devices of one name, or a counter consumed that no slice declares.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import msgspec
from msgspec import Struct, field

from proreus.objects.devices import (
    Device,
    DeviceTaint,
    DeviceTaintSelector,
    ResourceSlice,
    ResourceSliceSpec,
)
from proreus.objects.quantity import parse_quantity
from proreus.objects.selectors import NodeSelector
from proreus.plugins.dynamic_resources.devices.kinds import (
    Counters,
    DeviceKind,
    DeviceKinds,
    GroupsBySet,
)
from proreus.plugins.dynamic_resources.devices.node_matching import (
    Labels,
    PoolError,
    device_matches_node,
    slice_matches_node,
    term_count,
)
from proreus.plugins.dynamic_resources.devices.taint_rules import selects_some
from proreus.plugins.dynamic_resources.features import Features

_SPARE_KINDS = 256
"""So many kinds are kept in any case: the same devices come back."""

PoolKey = tuple[str, str]
"""Driver and name of a pool."""


class DeviceOnNode(Struct, frozen=True):
    """A device as one node sees it.

    ``matches_node``: False with perDeviceNodeSelection, if the device does not select this node.
    ``local``: an allocation of it can be used on this node only; else where ``selector`` says.
    ``skips``: the operations that the node's kubelet leaves out, if it can.
    """

    name: str
    kind: DeviceKind
    matches_node: bool
    local: bool
    selector: NodeSelector | None
    skips: tuple[str, ...] = ()


class PoolView(Struct, frozen=True):
    """A pool as one node sees it, devices in the order in which they are tried.

    ``shape`` is equal for pools that differ in names only. ``invalid``: complete, but contradicts
    itself. ``consumers``: what each device of the pool, also those of other nodes, consumes of
    counters. ``groups``: the compatibility groups of each, with their gate. ``index``: position of
    each device by name.
    """

    key: PoolKey
    incomplete: bool
    invalid: bool
    comes_last: bool
    devices: tuple[DeviceOnNode, ...]
    counters: Counters
    consumers: Mapping[str, Counters]
    index: Mapping[str, int]
    shape: int
    groups: Mapping[str, GroupsBySet]

    @property
    def order(self) -> tuple[bool, PoolKey]:
        """Pools are tried in this order: those with devices that need binding conditions last."""
        # Such devices delay the pod's binding or may fail it, so they are given only if no other
        # does (KEP-5007). Otherwise by driver and name: the order must not depend on events.
        return self.comes_last, self.key


class _Pool(Struct):
    """All slices of a pool by name, and the kinds of their devices, old generations included."""

    slices: dict[str, ResourceSlice] = field(default_factory=dict)
    kinds: dict[str, tuple[DeviceKind, ...]] = field(default_factory=dict)


NO_TAINTS: Callable[[str, str, str], tuple[DeviceTaint, ...]] = lambda *_: ()  # noqa: E731


class Pools:
    """All pools of the cluster, kept up to date slice by slice.

    ``local[node]``: pools that have a slice for that node by name; ``nodes_of[pool]`` the reverse.
    ``non_local``: pools with slices whose nodes must be matched. ``invalid_counter_pools``: pools
    that are incomplete or invalid even for nodes that see nothing of them but their counters.
    """

    def __init__(self, features: Features) -> None:
        self.features = features
        self.kinds = DeviceKinds(features)
        self._pools: dict[PoolKey, _Pool] = {}
        self.local: dict[str, set[PoolKey]] = defaultdict(set)
        self.nodes_of: dict[PoolKey, set[str]] = defaultdict(set)
        self.non_local: set[PoolKey] = set()
        self.invalid_counter_pools: dict[PoolKey, PoolView] = {}
        self.taints_of = NO_TAINTS
        """Taints that rules put on ``(driver, pool, device)``."""
        self._shapes: dict[object, int] = {}
        self._last_shape = 0

    def put(self, old: ResourceSlice | None, new: ResourceSlice | None) -> set[PoolKey]:
        """Replace a slice, add (``old`` is None) or remove one; return the pools that changed."""
        # Two pools, if the driver has moved the slice from one to the other.
        concerned = set()
        for one, there in ((old, False), (new, True)):
            if one is None:
                continue
            spec, name = one.spec, one.metadata.name
            key = spec.driver, spec.pool.name
            pool = self._pools.setdefault(key, _Pool())
            if there:
                pool.slices[name] = one
                self._put_kinds(key, pool, one)
            else:
                pool.slices.pop(name, None)
                pool.kinds.pop(name, None)
            concerned.add(key)
        for key in concerned:
            self._index(key)
        return concerned

    def taints_changed(self, selector: DeviceTaintSelector) -> list[PoolKey]:
        """Apply the taints of rules to the devices that one selects; return the pools of these."""
        driver, name = selector.driver, selector.pool
        keys: Iterable[PoolKey]
        if driver is not None and name is not None:
            keys = [(driver, name)] if (driver, name) in self._pools else []
        else:
            keys = [k for k in self._pools if driver in (None, k[0]) and name in (None, k[1])]
        changed = []
        for key in keys:
            pool = self._pools[key]
            selected = [
                one
                for one in pool.slices.values()
                if selects_some(selector, *key, one.spec.devices)
            ]
            for one in selected:
                self._put_kinds(key, pool, one)
            if selected:
                self._index(key)
                changed.append(key)
        return changed

    def _put_kinds(self, key: PoolKey, pool: _Pool, one: ResourceSlice) -> None:
        driver, name = key
        pool.kinds[one.metadata.name] = tuple(
            self.kinds.kind_of(driver, device, self.taints_of(driver, name, device.name))
            for device in one.spec.devices
        )

    def _index(self, key: PoolKey) -> None:
        for node in self.nodes_of.pop(key, ()):
            self.local[node].discard(key)
            if not self.local[node]:
                del self.local[node]
        self.non_local.discard(key)
        self.invalid_counter_pools.pop(key, None)
        slices = self._pools[key].slices
        if not slices:
            del self._pools[key]
            return
        counters = []
        for one in slices.values():
            if self._is_ignored(one):
                continue
            if self._is_relevant_everywhere(one):
                counters.append(one)
            elif one.spec.node_name:
                self.nodes_of[key].add(one.spec.node_name)
                self.local[one.spec.node_name].add(key)
            else:
                self.non_local.add(key)
        # A node that reaches no device of the pool thus has an empty pool, which matters only if it
        # is incomplete or invalid: it fails requests for all devices, and is named as the reason
        # for a failure.
        if counters:
            view = self._view_of(key, counters, "", {})
            if view is not None and (view.incomplete or view.invalid):
                self.invalid_counter_pools[key] = view

    def _is_relevant_everywhere(self, one: ResourceSlice) -> bool:
        # Up to 1.36, GatherPools took slices with counters for relevant to every node. They have no
        # devices, and are needed to allocate any device of the pool (KEP-4815).
        return bool(one.spec.shared_counters) and not self.features.allocator_of_1_37

    def _is_ignored(self, one: ResourceSlice) -> bool:
        spec = one.spec
        # Without partitions, devices in such slices would be given without their counters, or to
        # nodes that they are not for. GatherPools skips them.
        if not self.features.partitionable_devices and bool(
            spec.per_device_node_selection or spec.shared_counters
        ):
            return True
        return self._needs_compatibility_groups(spec)

    def _needs_compatibility_groups(self, spec: ResourceSliceSpec) -> bool:
        """Return whether devices may only be allocated with regard to groups, which are ignored.

        Without such a slice the pool is incomplete, so that none of its devices are given.
        """
        if self.features.compatibility_groups or not self.features.allocator_of_1_37:
            return False
        return any(
            part.compatibility_groups
            for device in spec.devices
            for part in device.consumes_counters
        )

    def __iter__(self) -> Iterator[PoolKey]:
        return iter(self._pools)

    def published(self, key: PoolKey) -> Iterator[tuple[ResourceSliceSpec, tuple[DeviceKind, ...]]]:
        """Yield all slices of a pool, old generations included, and what their devices are."""
        pool = self._pools.get(key)
        if pool is not None:
            for name, one in pool.slices.items():
                yield one.spec, pool.kinds[name]

    # ---- views ---------------------------------------------------------------------------------

    def view(self, key: PoolKey, node: str, labels: Labels) -> PoolView | None:
        """Return a pool as a node sees it; None if no slice of it is relevant to the node.

        Raises ``PoolError`` for a node selector that cannot be parsed.
        """
        relevant = [
            one for one in self._pools[key].slices.values() if self._sees(one, node, labels)
        ]
        return self._view_of(key, relevant, node, labels) if relevant else None

    def reach(self, key: PoolKey, node: str, labels: Labels) -> tuple[object, ...]:
        """Return the slices and devices of a pool that a node reaches: a key for nodes alike.

        Nodes with equal results for all pools that are not local have one group of views.
        """
        seen: list[object] = []
        for name, one in self._pools[key].slices.items():
            if not self._sees(one, node, labels):
                continue
            spec = one.spec
            if spec.per_device_node_selection and not spec.shared_counters:
                seen.append(
                    (name, tuple(device_matches_node(d, node, labels) for d in spec.devices))
                )
            else:
                seen.append(name)
        return tuple(seen)

    def _sees(self, one: ResourceSlice, node: str, labels: Labels) -> bool:
        if self._is_ignored(one):
            return False
        try:
            return self._is_relevant_everywhere(one) or slice_matches_node(one.spec, node, labels)
        except PoolError as error:
            name = one.metadata.name
            raise PoolError(f"failed to perform node selection for slice {name}: {error}") from None

    def _view_of(
        self, key: PoolKey, relevant: Sequence[ResourceSlice], node: str, labels: Labels
    ) -> PoolView | None:
        """Return the view of relevant slices; None if the pool is being replaced by a newer one."""
        pool = self._pools[key]
        # The newest generation that is relevant here: the driver has replaced older slices, even if
        # it has not deleted them yet.
        generation = max(one.spec.pool.generation for one in relevant)
        slices = [one for one in relevant if one.spec.pool.generation == generation]
        # Order of devices is order of allocation, so it must not depend on the order of events.
        slices.sort(key=lambda one: one.metadata.name)
        wanted = slices[0].spec.pool.resource_slice_count
        current = slices
        # Slices may be missing because they are for other nodes. Only then are all slices looked at
        # (checkSlicesInPool): one of a newer generation means that what this node sees is obsolete,
        # and the pool is dropped without an error.
        if len(slices) != wanted:
            everywhere = pool.slices.values()
            if any(one.spec.pool.generation > generation for one in everywhere):
                return None
            current = [
                one
                for one in everywhere
                if one.spec.pool.generation == generation
                and not self._needs_compatibility_groups(one.spec)
            ]
        # Slices with counters may be for other nodes: without them the pool was not complete.
        counters, doubled = _counters(current if self.features.allocator_of_1_37 else slices)
        consumers = self._consumers(pool, current)
        devices = self._devices(pool, slices, node, labels)
        index = {device.name: place for place, device in enumerate(devices)}
        # An incomplete pool is not validated: what seems to be missing may be in the next slice.
        # Names are validated for what the node sees, counters for the whole pool, since devices of
        # other nodes consume them as well (buildPool).
        incomplete = len(current) != wanted
        faulty = (
            doubled
            or len(index) < len(devices)
            or not _counters_exist(consumers.values(), counters)
        )
        contradictory = self.features.consistent_pools and _counts_differ(pool, generation)
        invalid = contradictory or (faulty and not incomplete)
        # Not None: an empty list counts as well, as upstream, where the field is compared to nil.
        binds_late = any(device.kind.device.binding_conditions is not None for device in devices)
        # No device of such a pool is given, so it keeps its place among the others, whose reasons
        # come first.
        comes_last = binds_late and not incomplete and not invalid
        shape = self._shape_of(key[0], incomplete, invalid, comes_last, devices, counters)
        return PoolView(
            key,
            incomplete,
            invalid,
            comes_last,
            devices,
            counters,
            consumers,
            index,
            shape,
            self._groups(pool, current),
        )

    def _groups(self, pool: _Pool, current: Iterable[ResourceSlice]) -> dict[str, GroupsBySet]:
        if not self.features.compatibility_groups:
            return {}
        return {device.name: k.groups for device, k in _each(pool, current) if k.groups}

    def _consumers(self, pool: _Pool, current: Iterable[ResourceSlice]) -> dict[str, Counters]:
        """Return the counters that each device of the current slices consumes, on any node."""
        if not self.features.partitionable_devices:
            return {}
        return {device.name: k.consumes for device, k in _each(pool, current) if k.consumes}

    def _devices(
        self, pool: _Pool, slices: list[ResourceSlice], node: str, labels: Labels
    ) -> tuple[DeviceOnNode, ...]:
        # bindsToNode came with binding conditions; the minimal allocator does not read it.
        binds = not self.features.minimal_allocator
        # Only that allocator reads the field, and gives such devices to nobody while the gate
        # DRAOptionalNodeOperations is off.
        features = self.features
        reads_skips = features.experimental_allocator and features.allocator_of_1_37
        devices = []
        for one in slices:
            spec = one.spec
            if spec.shared_counters:
                continue
            each = bool(spec.per_device_node_selection)
            skips = spec.skip_node_operations if reads_skips else ()
            for device, kind in zip(spec.devices, pool.kinds[one.metadata.name], strict=True):
                local = bool(device.node_name if each else spec.node_name)
                selector = device.node_selector if each else spec.node_selector
                devices.append(
                    DeviceOnNode(
                        device.name,
                        kind,
                        not each or device_matches_node(device, node, labels),
                        local or (binds and bool(device.binds_to_node)),
                        selector,
                        skips,
                    )
                )
        return tuple(devices)

    def _shape_of(
        self,
        driver: str,
        incomplete: bool,
        invalid: bool,
        comes_last: bool,
        devices: tuple[DeviceOnNode, ...],
        counters: Counters,
    ) -> int:
        # Of a selector only the number of its terms matters to the search, which refuses several.
        # Its selection is in ``matches_node``, or made the slice relevant.
        device_shapes = tuple(
            (d.kind.number, d.matches_node, d.local, term_count(d.selector), bool(d.skips))
            for d in devices
        )
        declared = msgspec.json.encode(counters, order="deterministic")
        shape = driver, incomplete, invalid, comes_last, device_shapes, declared
        number = self._shapes.get(shape)
        if number is None:
            self._last_shape += 1
            number = self._shapes[shape] = self._last_shape
        return number

    def has_many_unused_kinds(self) -> bool:
        """Return whether most kinds of devices that are known belong to no slice any more."""
        used = {
            kind.number
            for pool in self._pools.values()
            for kinds in pool.kinds.values()
            for kind in kinds
        }
        return len(self.kinds) > _SPARE_KINDS + 2 * len(used)

    def forget_shapes(self) -> None:
        """Forget the shapes of views, which keep their numbers: these are never used again."""
        self._shapes.clear()

    def __len__(self) -> int:
        return len(self._pools)


def _each(pool: _Pool, slices: Iterable[ResourceSlice]) -> Iterator[tuple[Device, DeviceKind]]:
    for one in slices:
        yield from zip(one.spec.devices, pool.kinds[one.metadata.name], strict=True)


def _counters_exist(consumers: Iterable[Counters], counters: Counters) -> bool:
    """Return whether all counters that devices consume are declared."""
    return all(
        name in counters and all(counter in counters[name] for counter in amounts)
        for consumes in consumers
        for name, amounts in consumes.items()
    )


def _counters(slices: Iterable[ResourceSlice]) -> tuple[Counters, bool]:
    """Return the counter sets of a pool in nano-units, and whether a name is used twice."""
    counters: Counters = {}
    doubled = False
    for one in slices:
        for shared in one.spec.shared_counters:
            doubled = doubled or shared.name in counters
            counters[shared.name] = {
                name: parse_quantity(counter.value) for name, counter in shared.counters.items()
            }
    return counters, doubled


def _counts_differ(pool: _Pool, generation: int) -> bool:
    """Return whether slices of one generation contradict each other about their number."""
    slices = [one for one in pool.slices.values() if one.spec.pool.generation == generation]
    counts = {one.spec.pool.resource_slice_count for one in slices}
    return len(counts) > 1 or len(slices) > max(counts)
