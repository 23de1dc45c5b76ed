"""The state of claims and devices that all profiles of a scheduler share.

Profiles with separate state would allocate the same devices. So there is one manager for each
cluster view (``DefaultDRAManager`` upstream): it follows claims, classes, slices and taint rules,
and keeps the results of searches for all pods whose claims have equal specs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from weakref import WeakKeyDictionary

import numpy as np

from proreus.base.bounded_cache import BYTES_AN_ENCODED_BYTE, BoundedCache
from proreus.base.kubernetes_version import Change
from proreus.framework.assume_cache import AssumeCache
from proreus.framework.handle import Handle
from proreus.framework.node_table import NodeTable
from proreus.framework.verdicts import IntArray
from proreus.objects.devices import (
    DEVICE_CLASSES,
    DEVICE_TAINT_RULES,
    RESOURCE_SLICES,
    DeviceClass,
    DeviceTaintRule,
    ResourceSlice,
)
from proreus.objects.kinds import PODS
from proreus.objects.meta import key_of
from proreus.objects.pod import Pod
from proreus.objects.resource_claims import RESOURCE_CLAIMS, AllocationResult, ResourceClaim
from proreus.plugins.dynamic_resources.cel.expressions import compile_selector
from proreus.plugins.dynamic_resources.claims import (
    ClaimError,
    claim_name,
    is_extended_resource_claim,
)
from proreus.plugins.dynamic_resources.devices.allocated import AllocatedDevices
from proreus.plugins.dynamic_resources.devices.availability_index import (
    AvailabilityIndex,
    DeviceAvailability,
)
from proreus.plugins.dynamic_resources.devices.device_totals import DeviceTotals
from proreus.plugins.dynamic_resources.devices.node_allocatable import ClaimDevice
from proreus.plugins.dynamic_resources.devices.pools import Pools
from proreus.plugins.dynamic_resources.devices.taint_rules import TaintRules
from proreus.plugins.dynamic_resources.features import Features
from proreus.plugins.dynamic_resources.search.allocator import (
    AllocatorResult,
    Checkpoint,
    NoSolution,
    Solution,
    allocate,
)
from proreus.plugins.dynamic_resources.search.prepared_claims import (
    PreparedClaims,
    claims_key,
    prepare_claims,
)
from proreus.plugins.dynamic_resources.search.search_time import SearchTime
from proreus.plugins.extended_resources import ExtendedResourceClasses

_BYTES_A_RESULT = 500
"""The bytes of the result for one availability: a few devices, and two cells."""

UNKNOWN, FITS, NO_FIT, INVALID_POOLS, ERROR = -1, 0, 1, 2, 3
"""The kinds of results, in ``AllocationCache.outcome``."""


class AllocationCache:
    """The results of the search for one ``PreparedClaims``, by number of ``DeviceAvailability``.

    ``outcome`` and ``score`` are columns indexed by that number, so that the result for all nodes
    is ``outcome[numbers]``. They may be longer than there are availabilities. ``checkpoints`` are
    those of suspended searches, by the same number.
    """

    __slots__ = ("checkpoints", "epoch", "outcome", "prepared", "results", "score")

    def __init__(self, prepared: PreparedClaims) -> None:
        self.prepared = prepared
        self.reset(-1)

    def reset(self, epoch: int) -> None:
        """Forget all results: in a new epoch, numbers have other meanings."""
        self.epoch = epoch
        self.results: dict[int, AllocatorResult] = {}
        self.checkpoints: dict[int, Checkpoint] = {}
        self.outcome: IntArray = np.full(64, UNKNOWN, dtype=np.int64)
        self.score: IntArray = np.zeros(64, dtype=np.int64)

    def grow(self, count: int) -> None:
        """Make the columns long enough for ``count`` availabilities."""
        # Doubled, since each allocation may add an availability.
        size = len(self.outcome)
        if count > size:
            more = max(count, 2 * size) - size
            self.outcome = np.concatenate((self.outcome, np.full(more, UNKNOWN, dtype=np.int64)))
            self.score = np.concatenate((self.score, np.zeros(more, dtype=np.int64)))

    def put(self, number: int, result: AllocatorResult) -> None:
        """Keep a result."""
        self.results[number] = result
        match result:
            case Solution():
                self.outcome[number] = FITS
                self.score[number] = result.score
            case NoSolution():
                self.outcome[number] = INVALID_POOLS if result.invalid_pools else NO_FIT
            case _:
                self.outcome[number] = ERROR


class DRAManager:
    """Claims, classes, pools, what of them is allocated, and results of searches.

    Results are never wrong for the claims and the availability that they are kept for, so changes
    of slices and claims do not void them: they give nodes other availabilities. Classes are part
    of ``PreparedClaims``, so a change of a class voids all results.
    """

    def __init__(self, handle: Handle, features: Features) -> None:
        self.features = features
        self.pools = Pools(features)
        self.allocated = AllocatedDevices(
            features,
            self._pool_changed,
            handle.feature_gates.includes(Change.IN_FLIGHT_UNTIL_PRE_BIND_ENDS),
        )
        self.availability_index = AvailabilityIndex(self.pools, self.allocated, handle.nodes)
        self.totals = DeviceTotals(self.pools, self.allocated)
        self.classes: Mapping[str, DeviceClass] = handle.store(DEVICE_CLASSES)
        self.extended = ExtendedResourceClasses()
        self.extended_claims: dict[str, str] = {}
        """Key of the claim for extended resources, by the uid of its pod."""
        self.claims = AssumeCache(handle, RESOURCE_CLAIMS, self._claim_changed)
        self._allocation_caches: BoundedCache[bytes, AllocationCache] = BoundedCache(32 * 2**20)
        self._epoch = self.availability_index.epoch
        self._rules = TaintRules(
            not handle.feature_gates.includes(Change.NIL_DEVICE_SELECTOR_SELECTS_NOTHING)
        )

        if features.device_taint_rules:
            self.pools.taints_of = self._rules.taints_of
            handle.on_change(DEVICE_TAINT_RULES, self._rule_changed)
        handle.on_change(DEVICE_CLASSES, self._class_changed)
        handle.on_change(RESOURCE_SLICES, self._slice_changed)
        self.pods_of_claims = PodsOfClaims(handle)

    @staticmethod
    def of(handle: Handle, features: Features) -> DRAManager:
        """Return the manager that belongs to a handle's nodes, creating it if there is none."""
        # By table of nodes: profiles, and the plugins of the next configuration, have the same one.
        # Other gates give kinds and pools other meanings, so they need a manager of their own.
        manager = _managers.get(handle.nodes)
        if manager is None or manager.features != features:
            manager = _managers[handle.nodes] = DRAManager(handle.shared, features)
        return manager

    # ---- events --------------------------------------------------------------------------------

    def _pool_changed(self, key: tuple[str, str]) -> None:
        self.availability_index.pool_changed(key)
        self.totals.pools_changed((key,))

    def _class_changed(self, old: DeviceClass | None, new: DeviceClass | None) -> None:
        self.extended.put(old, new)
        self._allocation_caches.clear()
        # Compiled now: the first expression of the process makes the environments, which takes
        # longer than a search may.
        for selector in new.spec.selectors if new is not None else ():
            if selector.cel is not None:
                compile_selector(selector.cel.expression)

    def _slice_changed(self, old: ResourceSlice | None, new: ResourceSlice | None) -> None:
        # Drivers touch metadata of slices now and then. Only the spec has devices.
        if old is not None and new is not None and old.spec == new.spec:
            return
        pools = self.pools
        keys = {(o.spec.driver, o.spec.pool.name) for o in (old, new) if o is not None}
        # Nodes that lose the pool are known before the change only.
        before = {node for key in keys for node in pools.nodes_of.get(key, ())}
        non_local = any(
            key in pools.non_local or key in pools.invalid_counter_pools for key in keys
        )
        pools.put(old, new)
        self.availability_index.slices_changed(before, keys, non_local)
        self.totals.pools_changed(keys)

    def _rule_changed(self, old: DeviceTaintRule | None, new: DeviceTaintRule | None) -> None:
        # Totals for scores ignore taints, so they are not updated.
        keys = {
            key for each in self._rules.put(old, new) for key in self.pools.taints_changed(each)
        }
        self.availability_index.slices_changed(set(), keys, False)

    def _claim_changed(self, old: ResourceClaim | None, new: ResourceClaim | None) -> None:
        self.allocated.update_claim(old, new)
        # Claims for extended resources have generated names: the next attempt of their pod finds
        # the one that an earlier attempt left behind by its owner.
        for claim, there in ((old, False), (new, True)):
            if claim is None or not is_extended_resource_claim(claim):
                continue
            for owner in claim.metadata.owner_references:
                if not owner.controller:
                    continue
                if there:
                    self.extended_claims[owner.uid] = key_of(claim)
                elif self.extended_claims.get(owner.uid) == key_of(claim):
                    del self.extended_claims[owner.uid]

    def allocation_of(self, claim: ResourceClaim) -> AllocationResult | None:
        """Return the allocation of a claim: the one in flight, else the one that is written."""
        flying = self.allocated.in_flight.get(claim.metadata.uid)
        if flying is not None:
            return flying.allocation
        latest = self.latest(claim)
        return None if latest is None else latest.status.allocation

    def latest(self, claim: ResourceClaim) -> ResourceClaim | None:
        """Return the latest version of a claim; None if it was deleted."""
        # One that was deleted and created again under its name is another claim.
        latest = self.claims.get(key_of(claim))
        same = latest is not None and latest.metadata.uid == claim.metadata.uid
        return latest if same else None

    def devices_of(self, allocation: AllocationResult) -> Iterator[ClaimDevice]:
        """Yield the devices of an allocation; those that no slice has any more are skipped."""
        for result in allocation.devices.results:
            for spec, kinds in self.pools.published((result.driver, result.pool)):
                found = [
                    k for d, k in zip(spec.devices, kinds, strict=True) if d.name == result.device
                ]
                if found:
                    yield ClaimDevice.of(result, found[0])
                    break

    # ---- results -------------------------------------------------------------------------------

    def allocation_cache(self, claims: Sequence[ResourceClaim]) -> AllocationCache:
        """Return the cache of results for claims, shared by all claims with equal specs."""
        if self._epoch != self.availability_index.epoch:
            # A new epoch prunes kinds of devices. Prepared claims remember kinds by number, most of
            # which may be gone by now, so they would only grow.
            self._epoch = self.availability_index.epoch
            self._allocation_caches.clear()
        encoded = claims_key(claims)
        # A digest, since claims of a pod may have megabytes.
        key = hashlib.sha256(encoded).digest()
        known = self._allocation_caches.get(key)
        if known is None:
            known = AllocationCache(prepare_claims(claims, self.classes.get, self.features))
            # Claims that differ for each pod (a selector with a device's name in it) have one each.
            size_bytes = BYTES_AN_ENCODED_BYTE * len(encoded)
            size_bytes += _BYTES_A_RESULT * (64 + len(self.availability_index.all))
            self._allocation_caches.put(key, known, size_bytes)
        return known

    def outcomes_for(
        self,
        allocation_cache: AllocationCache,
        numbers: IntArray,
        search_time: SearchTime,
    ) -> IntArray:
        """Return the outcome for each availability number, searching for those without a result.

        Same shape as ``numbers``. Raises as ``result`` does; results found so far are kept.
        """
        self._bring_up_to_date(allocation_cache)
        outcome: IntArray = allocation_cache.outcome[numbers]
        new = numbers[outcome == UNKNOWN]
        # One search for each number, however many nodes have it: usually one or two of thousands.
        if len(new):
            for number in np.unique(new).tolist():
                self.result(allocation_cache, self.availability_index.all[number], search_time)
            outcome = allocation_cache.outcome[numbers]
        return outcome

    def result(
        self,
        allocation_cache: AllocationCache,
        availability: DeviceAvailability,
        search_time: SearchTime,
    ) -> AllocatorResult:
        """Return the result of the search for one availability.

        Raises ``AllocationTimeout``, and ``BudgetExceeded`` where the next call may go on.
        """
        self._bring_up_to_date(allocation_cache)
        result = allocation_cache.results.get(availability.number)
        if result is None:
            checkpoints = allocation_cache.checkpoints
            suspended = checkpoints.get(availability.number)
            search_time.begin(suspended.slices if suspended is not None else 0)
            result = allocate(
                allocation_cache.prepared,
                availability,
                self.features,
                search_time.exceeded,
                checkpoints,
            )
            search_time.end()
            allocation_cache.put(availability.number, result)
        return result

    def _bring_up_to_date(self, allocation_cache: AllocationCache) -> None:
        if allocation_cache.epoch != self.availability_index.epoch:
            allocation_cache.reset(self.availability_index.epoch)
        allocation_cache.grow(len(self.availability_index.all))


_managers: WeakKeyDictionary[NodeTable, DRAManager] = WeakKeyDictionary()


# ---- the pods of claims --------------------------------------------------------------------------


class PodsOfClaims:
    """Keys of pods by key of a claim (``namespace/name`` both), kept up to date pod by pod.

    An event of a claim concerns few of all pods that wait.
    """

    # Invariant: a pod is under exactly the keys that _claim_keys yields for its latest version, and
    # no entry is empty.

    def __init__(self, handle: Handle) -> None:
        self._pods: dict[str, set[str]] = {}
        handle.on_change(PODS, self._pod_changed, with_provided=True)

    def _pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        # Asked first: this is called for every change of every pod.
        if old is not None and old.spec.resource_claims:
            for key in _claim_keys(old):
                pods = self._pods.get(key, set())
                pods.discard(key_of(old))
                if not pods:
                    self._pods.pop(key, None)
        if new is not None and new.spec.resource_claims:
            for key in _claim_keys(new):
                self._pods.setdefault(key, set()).add(key_of(new))

    def concerned_by(
        self, old: ResourceClaim | None, new: ResourceClaim | None
    ) -> Collection[str] | None:
        """Return the pods that a change of a claim may help; None means any pod."""
        # Devices that are free now may be what any pod waits for.
        freed = new is None or new.status.allocation is None
        if old is not None and old.status.allocation is not None and freed:
            return None
        return frozenset(self.ungated_by(old, new))

    def ungated_by(self, old: ResourceClaim | None, new: ResourceClaim | None) -> Collection[str]:
        """Return the pods that PreEnqueue may judge otherwise after a change of a claim."""
        claim = old if new is None else new
        assert claim is not None
        return self._pods.get(key_of(claim), ())


def _claim_keys(pod: Pod) -> Iterator[str]:
    for entry in pod.spec.resource_claims:
        try:
            name = claim_name(pod, entry)
        except ClaimError:
            continue
        if name is not None:
            yield f"{pod.metadata.namespace}/{name}"
