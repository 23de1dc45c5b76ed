"""The assumed topologies of nodes between two reports of the agents.

Agents publish every few seconds, and pods are bound meanwhile. Without a cache
(``cacheResyncPeriodSeconds`` 0) the newest object of a node counts. With it, a pod takes its
requests from *every* zone of its node at Reserve, since the kubelet's choice is not known, and the
copy is kept until an object's fingerprint says that the agent has seen just the pods of the node.

A fingerprint tells the pods that a topology object knows. Source: k8stopologyawareschedwg's
podfingerprint, version ``v001``: XXH64 over the sorted hashes of the pods, each XXH64 of the name
with that of the namespace as seed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from struct import unpack_from

from proreus.addons.node_resource_topology_match.demand import Demand
from proreus.addons.node_resource_topology_match.zones import NodeResourceTopology, NodeTopology
from proreus.addons.pod_amounts import Amounts, requests_of
from proreus.framework import NodeInfo, NodeTable, PodInfo, is_provided

ATTRIBUTE = "nodeTopologyPodsFingerprint"
METHOD_ATTRIBUTE = "nodeTopologyPodsFingerprintMethod"
ANNOTATION = "topology.node.k8s.io/fingerprint"
EXCLUSIVE_ONLY = "with-exclusive-resources"
_WHOLE_CPU = 1000


@dataclass
class _Entry:
    """The state of a node. ``taken``: by UID of a pod; ``doubtful``: not to be trusted."""

    newest: NodeResourceTopology
    topology: NodeTopology
    taken: dict[str, Amounts] = field(default_factory=dict)
    doubtful: bool = False
    maybe_outdated: bool = False
    left: NodeTopology | None = None
    """``topology`` less the ``taken`` amounts, None until it is needed."""

    @property
    def dirty(self) -> bool:
        return bool(self.taken) or self.doubtful or self.maybe_outdated


class TopologyCache:
    """Topologies by node. ``over_reserves``: see the module.

    ``changed``: called with the name of a node after a change of its topology.
    """

    def __init__(
        self,
        nodes: NodeTable,
        over_reserves: bool,
        changed: Callable[[str], None],
        resync_method: str = "Autodetect",
    ) -> None:
        self._nodes = nodes
        self._over_reserves = over_reserves
        self._changed = changed
        self._resync_method = resync_method
        self._entries: dict[str, _Entry] = {}

    def topology(self, node_name: str) -> NodeTopology | None:
        """Return the topology of a node less reserved amounts, None if there is none."""
        entry = self._entries.get(node_name)
        if entry is None:
            return None
        if entry.left is None:
            entry.left = entry.topology
            for amounts in entry.taken.values():
                entry.left = entry.left.less(amounts)
        return entry.left

    def is_trusted(self, node_name: str) -> bool:
        """Return whether the topology of a node may be used."""
        entry = self._entries.get(node_name)
        return entry is None or not entry.doubtful

    def report(self, old: NodeResourceTopology | None, new: NodeResourceTopology | None) -> None:
        """Take over a published object (``on_change``)."""
        if new is None:
            assert old is not None
            self._entries.pop(old.metadata.name, None)
            self._changed(old.metadata.name)
            return
        name = new.metadata.name
        entry = self._entries.get(name)
        if entry is None or not entry.dirty:
            self._entries[name] = _Entry(new, NodeTopology.of(new))
            self._changed(name)
        else:
            entry.newest = new

    # ---- the over-reserve cache ----------------------------------------------------------------

    def reserve(self, pod: PodInfo, node_name: str) -> None:
        """Take a pod's requests from every zone of a node."""
        entry = self._entries.get(node_name)
        if self._over_reserves and entry is not None:
            entry.taken[pod.uid] = requests_of(pod.pod)
            entry.left = None
            self._changed(node_name)

    def unreserve(self, pod: PodInfo, node_name: str) -> None:
        """Give them back."""
        entry = self._entries.get(node_name)
        if entry is not None and entry.taken.pop(pod.uid, None) is not None:
            entry.left = None
            self._changed(node_name)

    def note_foreign_pod(self, node_name: str) -> None:
        """Trust a node no more, because another scheduler's pod came."""
        entry = self._entries.get(node_name)
        if self._over_reserves and entry is not None and not entry.doubtful:
            entry.doubtful = True
            self._changed(node_name)

    def note_rejection(self, node_name: str) -> None:
        """Compare a node at the next resync: it may have more than is believed."""
        entry = self._entries.get(node_name)
        if self._over_reserves and entry is not None:
            entry.maybe_outdated = True

    def resync(self) -> list[str]:
        """Take over the newest objects of nodes that agents know all pods of; return the names."""
        clean = []
        for name, entry in self._entries.items():
            if not entry.dirty or not self._knows_all_pods(name, entry.newest):
                continue
            self._entries[name] = _Entry(entry.newest, NodeTopology.of(entry.newest))
            self._changed(name)
            clean.append(name)
        return clean

    def _knows_all_pods(self, name: str, found: NodeResourceTopology) -> bool:
        published = found.attribute(ATTRIBUTE) or found.metadata.annotations.get(ANNOTATION, "")
        row = self._nodes.rows.get(name)
        if not published or row is None:
            return False
        exclusive = self._resync_method == "OnlyExclusiveResources" or (
            self._resync_method == "Autodetect"
            and found.attribute(METHOD_ATTRIBUTE) == EXCLUSIVE_ONLY
        )
        return published == fingerprint(pods_of(self._nodes[row], exclusive))


def pods_of(node: NodeInfo, exclusive: bool) -> list[tuple[str, str]]:
    """Return namespace and name of the pods of a node, with ``exclusive`` only of pods that have
    resources to themselves."""
    pods = [pod for pod in node.pods.values() if not is_provided(pod.pod)]
    return [
        (pod.namespace, pod.name) for pod in pods if not exclusive or has_exclusive_resources(pod)
    ]


def has_exclusive_resources(pod: PodInfo) -> bool:
    """Return whether a pod has CPUs, memory or devices to itself."""
    demand = Demand.of(pod.pod)
    amounts: Mapping[str, int]
    for amounts in (one.amounts for one in demand.containers):
        if demand.guaranteed and amounts.get("cpu", 0) and not amounts["cpu"] % _WHOLE_CPU:
            return True
        if demand.guaranteed and amounts.get("memory", 0):
            return True
        if any("/" in name and amount for name, amount in amounts.items()):
            return True
    return False


# ---- fingerprints --------------------------------------------------------------------------------

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
