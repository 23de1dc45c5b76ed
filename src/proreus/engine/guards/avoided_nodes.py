"""Keeps the pods of a controller from nodes whose kubelets keep rejecting them.

    rejection ─► counted by (controller, node) ─► threshold ─► avoided for 30 s ─► over ─► retried
                                                    ▲                                       │
                                                    └── one more: twice as long, capped ◄───┘

A circuit breaker for each pair of controller and node. A state machine without I/O; its clock is an
argument. Memory is bounded by ``MAX_PAIRS``.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterable

from msgspec import Struct

from proreus.base.clock import Clock
from proreus.framework.cycle_state import CycleState
from proreus.framework.events import ClusterEvent, plugin_event
from proreus.framework.handle import Handle
from proreus.framework.node_info import NodeInfo
from proreus.framework.node_table import NodeTable
from proreus.framework.plugin import FilterPlugin
from proreus.framework.pod_info import PodInfo
from proreus.framework.status import Status
from proreus.framework.verdicts import Verdicts
from proreus.objects.meta import ObjectMeta, controller_of

FIRST_SECONDS = 30.0
MAX_PAIRS = 10_000
REASON = "node(s) recently rejected pods of the same controller"

_NONE: frozenset[str] = frozenset()


def controller_name(meta: ObjectMeta) -> str | None:
    """Return the key of the controller of a pod, None if it has none."""
    # Nobody checks that an owner exists. Without the namespace a pod that claims another tenant's
    # ReplicaSet as its owner, and a node that it does not fit on, could keep that tenant's pods
    # from any node.
    owner = controller_of(meta)
    return None if owner is None else f"{meta.namespace}/{owner.uid}"


class AvoidanceRules(Struct, frozen=True):
    """The rules of avoidance.

    ``threshold``: rejections of a controller's pods by a node, 0 for never. ``max_seconds``: the
    longest time that a node is avoided, and that rejections are remembered.
    """

    threshold: int = 0
    max_seconds: float = 600.0


NEVER_AVOID = AvoidanceRules()


class _Rejections(Struct):
    """The rejections of one controller's pods by one node.

    ``seconds``: how long the node was avoided last, 0 if never. ``until``: when that is, or was,
    over.
    """

    count: int = 0
    last: float = 0.0
    seconds: float = 0.0
    until: float = 0.0


class AvoidedNodes:
    """The nodes to avoid, by controller, as ``controller_name`` names it.

    ``active``: whether any node is avoided.
    """

    # Invariants: _avoided[controller] has the nodes whose pair is in _ends, and is not empty;
    # _pairs is in order of the last rejections, and has every pair of _ends.

    def __init__(self, rules: AvoidanceRules, clock: Clock) -> None:
        self._rules = rules
        self._clock = clock
        self._pairs: OrderedDict[tuple[str, str], _Rejections] = OrderedDict()
        self._ends: dict[tuple[str, str], float] = {}
        self._avoided: dict[str, frozenset[str]] = {}

    @property
    def active(self) -> bool:
        """Whether any node is avoided by any controller's pods."""
        return bool(self._avoided)

    @property
    def count(self) -> int:
        """How many pairs of controller and node there are whose node is avoided."""
        return len(self._ends)

    def of(self, controller: str) -> frozenset[str]:
        """Return the names of the nodes that a controller's pods avoid."""
        return self._avoided.get(controller, _NONE)

    def is_avoided(self, controller: str, node_name: str) -> bool:
        """Return whether a controller's pods avoid a node."""
        return (controller, node_name) in self._ends

    def record(self, controller: str, node_name: str) -> float:
        """Count a rejection; return for how many seconds the node is avoided from now on.

        0 if the threshold is not reached, or the node is avoided already.
        """
        pair, now = (controller, node_name), self._clock.monotonic()
        known = self._pairs.pop(pair, None)
        # After a long quiet time it is another fault. The time that a node was avoided is no quiet
        # time: no pod was there to be rejected.
        if known is None or now - max(known.last, known.until) > self._rules.max_seconds:
            known = _Rejections()
        self._pairs[pair] = known
        known.last = now
        if pair in self._ends:
            return 0.0
        known.count += 1
        self._trim()
        # Once avoided, one more rejection shows that nothing has changed.
        if known.count < self._rules.threshold and not known.seconds:
            return 0.0
        known.seconds = min(2 * known.seconds or FIRST_SECONDS, self._rules.max_seconds)
        known.until = self._ends[pair] = now + known.seconds
        self._avoided[controller] = self.of(controller) | {node_name}
        return known.seconds

    def expire(self) -> list[str]:
        """End avoidances that are over; return the controllers whose pods may go there again."""
        now = self._clock.monotonic()
        over = [pair for pair, end in self._ends.items() if end <= now]
        for pair in over:
            self._end(pair)
        return list(dict.fromkeys(controller for controller, _ in over))

    def forget_node(self, node_name: str) -> list[str]:
        """Forget the rejections of a node that is gone: the next of its name is another machine.

        Returns the controllers whose pods avoided it.
        """
        found = [pair for pair in self._pairs if pair[1] == node_name]
        avoiding = [pair for pair in found if pair in self._ends]
        for pair in avoiding:
            self._end(pair)
        for pair in found:
            del self._pairs[pair]
        return [controller for controller, _ in avoiding]

    def _end(self, pair: tuple[str, str]) -> None:
        controller, node_name = pair
        del self._ends[pair]
        left = self._avoided[controller] - {node_name}
        if left:
            self._avoided[controller] = left
        else:
            del self._avoided[controller]

    def _trim(self) -> None:
        while len(self._pairs) > MAX_PAIRS:
            pair, _ = self._pairs.popitem(last=False)
            if pair in self._ends:
                self._end(pair)

    def validate(self) -> None:
        """Assert the invariants; for tests."""
        pairs = {(one, name) for one, names in self._avoided.items() for name in names}
        assert pairs == self._ends.keys() <= self._pairs.keys()
        assert all(self._avoided.values())
        assert len(self._pairs) <= MAX_PAIRS


class KubeletRejections(FilterPlugin):
    """Rejects the nodes that the pod's controller avoids.

    It is in no configuration: profiles have it as their optional filter, which runs only while some
    node is avoided.
    """

    row_local = True
    looks_at_pods = False

    def __init__(self, args: AvoidedNodes, handle: Handle) -> None:
        super().__init__(args, handle)
        self._avoided = args

    def sign(self, pod: PodInfo) -> Hashable:
        """Sign the nodes to avoid."""
        return self._nodes_of(pod)

    def events_to_register(self) -> Iterable[ClusterEvent]:
        """Register the end of an avoidance of the pod's own controller."""
        return (plugin_event(self.name, hint=_concerns),)

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        """Filter one node."""
        return _REJECTED if node.name in self._nodes_of(pod) else None

    def filter_all(
        self, state: CycleState, pod: PodInfo, nodes: NodeTable, verdicts: Verdicts
    ) -> None:
        """Filter all nodes."""
        names = self._nodes_of(pod)
        if names:
            verdicts.reject_with(nodes.rows_of(names), _REJECTED)

    def _nodes_of(self, pod: PodInfo) -> frozenset[str]:
        controller = controller_name(pod.pod.metadata)
        return _NONE if controller is None else self._avoided.of(controller)


# Evicting pods would not change the kubelet's mind: no preemption there.
_REJECTED = Status.unresolvable(REASON).with_plugin(KubeletRejections.name)


def _concerns(pod: PodInfo, _: object, controller: str) -> bool:
    return controller_name(pod.pod.metadata) == controller
