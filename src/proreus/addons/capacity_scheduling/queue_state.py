"""Queues and their pods as the watch reports them, and claims on them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from proreus.addons.capacity_scheduling.args import QueuesArgs
from proreus.addons.capacity_scheduling.claims import nominated_besides
from proreus.addons.capacity_scheduling.oldest_by_name import OldestByName
from proreus.addons.capacity_scheduling.queue_accounts import QueueAccounts
from proreus.addons.capacity_scheduling.queue_claims import QueueClaim
from proreus.addons.capacity_scheduling.queue_objects import (
    ElasticQuotaSource,
    KaiSource,
    PodQueues,
    QueueSource,
    VolcanoSource,
)
from proreus.addons.capacity_scheduling.queue_tree import CapacityQueue, QueueShares
from proreus.addons.pod_amounts import added, requests_of
from proreus.framework import ClusterEvent, Handle, PodInfo, QuotaUse, events, plugin_event
from proreus.objects import Pod

SHARES_CHANGED = plugin_event("FairSharesChanged")
_SOURCES: dict[str, type[QueueSource]] = {
    "ElasticQuota": ElasticQuotaSource,
    "KAI": KaiSource,
    "Volcano": VolcanoSource,
}


class QueueState:
    """Keeps the accounts of all queues."""

    def __init__(self, args: QueuesArgs, handle: Handle) -> None:
        self._args = args
        self._handle = handle
        self._source = _SOURCES[args.source]()
        self._objects: OldestByName[Any, CapacityQueue] = OldestByName(
            lambda obj: obj.metadata.name,
            self._source.queue_of,
            "Several queues have this name, the oldest counts",
        )
        self._queues = PodQueues(self._source, handle)
        half_life = args.half_life if args.k_value else 0.0
        self.accounts = QueueAccounts(half_life, args.k_value)
        self._pods: dict[str, dict[str, Pod]] = {}
        """The pods that are counted, by namespace and UID."""
        self._allocatable: dict[str, int] = {}
        self._allocatable_of = (-1, frozenset[str]())
        self._room_at = ("", 0.0)
        self._room: dict[str, Mapping[str, int]] = {}
        """The amounts that queues may reclaim after the event ``_room_at``, by name."""
        self._announced: Mapping[str, Mapping[str, int]] = {}
        handle.on_change(self._source.resource, self._queue_changed)

    def events(self) -> Iterable[ClusterEvent]:
        """Return the events that change the shares of queues, or the queue of a pod."""
        return (
            ClusterEvent(self._source.resource.id, events.ALL),
            # Queues share the capacity of the cluster.
            ClusterEvent(events.NODE, events.ADD | events.UPDATE_NODE_ALLOCATABLE),
            ClusterEvent(events.TARGET_POD, events.UPDATE, hint=self._names_another_queue),
            SHARES_CHANGED,
        )

    def _queue_changed(self, old: Any, new: Any) -> None:
        name = self._objects.change(old, new)
        if name is not None:
            queue = self._objects.values.get(name)
            if queue is None:
                self.accounts.remove_queue(name)
            else:
                self.accounts.put_queue(queue)
        for namespace in self._source.note(old, new):
            for pod in self._pods.get(namespace, {}).values():
                self._count(pod, self.accounts.is_placed(pod.metadata.uid))

    def note(self, pod: Pod, placed: bool) -> None:
        """Count a pod; a waiting pod of another profile, or a gated one, does not ask."""
        spec = pod.spec
        if (
            placed
            or self.accounts.is_placed(pod.metadata.uid)
            or (spec.scheduler_name == self._handle.profile_name and not spec.scheduling_gates)
        ):
            # The handler of the charges may be called later.
            self._queues.charges.decide(pod)
            self._pods.setdefault(pod.metadata.namespace, {})[pod.metadata.uid] = pod
            self._count(pod, placed)

    def _count(self, pod: Pod, placed: bool) -> None:
        name, now = self._queues.name_for(pod), self._handle.clock.monotonic()
        self.accounts.note(pod.metadata.uid, name, requests_of(pod), placed, now)

    def reserve(self, pod: PodInfo, node_name: str) -> None:
        """Count a pod that gets a node."""
        self._queues.reserve(pod, node_name)
        self.note(pod.pod, placed=True)

    def unreserve(self, pod: PodInfo) -> None:
        """Note that a pod got no node after all."""
        # It follows its labels again.
        self._queues.charges.unreserve(pod)
        self.unplace(pod.pod)

    def unplace(self, pod: Pod) -> None:
        """Note that a pod has no node after all."""
        self.accounts.unplace(pod.metadata.uid, self._handle.clock.monotonic())

    def forget(self, pod: Pod) -> None:
        """Do not count a pod any more."""
        pods = self._pods.get(pod.metadata.namespace, {})
        if pods.pop(pod.metadata.uid, None) is not None and not pods:
            del self._pods[pod.metadata.namespace]
        self.accounts.forget(pod.metadata.uid, self._handle.clock.monotonic())

    def may_help(self, pod: PodInfo, old: Pod, new: None) -> bool:
        """Return whether the end of a pod may help another: both are of queues, or of none."""
        return bool(self._queues.name_for(pod.pod)) == bool(self._queues.name_for(old))

    def _names_another_queue(self, pod: PodInfo, old: Pod, new: Pod) -> bool:
        return new.metadata.uid == pod.uid and (
            self._source.labels_of(old) != self._source.labels_of(new)
        )

    def may_reclaim(self, pod: PodInfo, old: None, new: Pod) -> bool:
        """Return whether a pod's queue has less than it deserves, and a new pod's queue more."""
        # Called for every waiting pod whenever a pod is bound: most are of queues without room.
        event = new.metadata.uid, self._handle.clock.monotonic()
        if self._room_at != event:
            self._room_at, self._room = event, {}
        queue = self._queues.name_for(pod.pod)
        room = self._room.get(queue)
        if room is None:
            room = self._room[queue] = self._room_to_reclaim(queue, self._queues.name_for(new))
        if not room:
            return False
        amounts = requests_of(pod.pod)
        return all(amount <= room.get(name, 0) for name, amount in amounts.items())

    def _room_to_reclaim(self, queue: str, other: str) -> Mapping[str, int]:
        """Return the rest of what a queue deserves, if another has more than it deserves."""
        used, deserved = self.accounts.used, self.shares().deserved
        path, others = self.accounts.tree.diverging(queue, other)
        if not path or not all(
            any(used(name, one) > amount for one, amount in deserved[name].items())
            for name in others
        ):
            return {}
        room = {
            resource: min(deserved[name][resource] - used(name, resource) for name in path)
            for resource in deserved[path[0]]
        }
        return {resource: amount for resource, amount in room.items() if amount > 0}

    @property
    def refresh_seconds(self) -> float:
        """The longest age of fair shares where the past counts."""
        return self._args.refresh_period

    def have_shares_grown(self) -> bool:
        """Return whether a queue has a larger fair share than when this was last called."""
        before, self._announced = self._announced, self.shares().fair
        return any(
            amount > before.get(name, {}).get(resource, 0)
            for name, share in self._announced.items()
            for resource, amount in share.items()
        )

    def claim(self, *pods: PodInfo) -> QueueClaim:
        """Return the claim of a pod, or of the pods of a gang together, as of now."""
        pod, queue = pods[0], self._queues.name_for(pods[0].pod)
        requests = added(requests_of(one.pod) for one in pods)
        own = [requests]
        for other in nominated_besides(pods, self._handle.nominator) if queue else ():
            if other.priority >= pod.priority and self._queues.name_for(other.pod) == queue:
                own.append(requests_of(other.pod))
        return QueueClaim(
            pod=pod,
            queue=queue,
            requests=requests,
            own=added(own),
            accounts=self.accounts,
            queues=self._queues,
            shares=self.shares(),
            saturation_multiplier=self._args.reclaimer_utilization_multiplier,
            now=self._handle.clock.now(),
        )

    def shares(self) -> QueueShares:
        """Return the deserved amounts and fair shares of all queues."""
        now = self._handle.clock.monotonic()
        return self.accounts.shares(self._capacity(), now, self._args.refresh_period)

    def _capacity(self) -> dict[str, int]:
        """Return the capacity of all nodes, for the resources that pods of queues request."""
        nodes, names = self._handle.nodes, frozenset(self.accounts.resources())
        if self._allocatable_of != (nodes.nodes_generation, names):
            self._allocatable_of = nodes.nodes_generation, names
            self._allocatable = {name: int(nodes.allocatable[name].sum()) for name in names}
        return self._allocatable

    # ---- for people ----------------------------------------------------------------------------

    def uses(self) -> Iterable[QuotaUse]:
        """Yield the guarantee, the use and the limit of each queue, by resource."""
        shares, requested = self.shares(), frozenset(self.accounts.resources())
        for name, queue in self._objects.values.items():
            deserved, fair = shares.deserved.get(name, {}), shares.fair.get(name, {})
            for resource in sorted({*requested, *queue.deserved, *queue.limit}):
                yield QuotaUse(
                    quota=name,
                    resource=resource,
                    used=self.accounts.used(name, resource),
                    guaranteed=deserved.get(resource, queue.deserved.get(resource, 0)),
                    limit=queue.limit.get(resource),
                    fair_share=fair.get(resource),
                    parent=queue.parent,
                )

    def name_for(self, pod: Pod) -> str:
        """Return the queue that a pod names, "" if it names none."""
        return self._queues.name_for(pod)
