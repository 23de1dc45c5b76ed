"""Notices nodes that another scheduler's binding over-commits together with a pod of ours.

    a pod that we did not bind appears on a node ─► do the sums exceed allocatable, and is a pod of
    ours there that has not started? ─► counted and logged, once until the node fits again
                                     ─► opt-in: our pods that do not fit are given up

Which pods of a node go is decided by what every scheduler can see: of the pods that no kubelet has
seen and that a controller creates again, whoever bound them, those of the lowest priority, then the
newest. So two schedulers that give up their own among these give up no more than it takes. A pod of
another scheduler that has not gone after a while is taken to stay.

Nothing prevents the race itself: both bindings are accepted by the apiserver, and the kubelet
admits the pod that it sees first. Which pods are ours follows from their schedulerName.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from msgspec import Struct, field

from proreus.base.errors import ApiError, Conflict, NotFound
from proreus.base.logs import logger
from proreus.engine.cache.cache import Cache
from proreus.engine.cycles.binding_cycle import BindingCycle
from proreus.engine.environment import Environment
from proreus.engine.runtime.waiting_pods import WaitingPods
from proreus.framework.node_info import NodeInfo
from proreus.framework.pod_info import PodInfo
from proreus.objects.kinds import PODS
from proreus.objects.meta import controller_of
from proreus.objects.pod import POD_SCHEDULED, Pod, is_unstarted, true_condition_of

log = logger(__name__)

_PODS = "pods"
_MIRROR = "kubernetes.io/config.mirror"
"""The annotation of static pods, which no scheduler has bound."""
_NAMED = 10
_OTHERS_SECONDS = 20.0
"""How long others' pods may take to go: longer than a Lease, after which another instance leads."""


class _Episode(Struct):
    """The time from a binding that over-commits a node until the node fits again.

    ``given_up``: the UIDs of the pods given up there. ``self_assigned``: those of pods that were
    created with the node's name, which no scheduler has bound. ``waits_since``: by UID of a pod
    that might go, since when we have waited for other schedulers.
    """

    given_up: set[str] = field(default_factory=set)
    self_assigned: set[str] = field(default_factory=set)
    waits_since: dict[str, float] = field(default_factory=dict)


@dataclass(kw_only=True, eq=False)
class OvercommitWatch:
    """Follows the nodes that are over-committed; called by the pod handlers and every second."""

    cache: Cache
    waiting_pods: WaitingPods
    binding_cycle: BindingCycle
    responsible_for_pod: Callable[[Pod], bool]
    environment: Environment

    def __post_init__(self) -> None:
        """Show in the metrics how many nodes are over-committed."""
        self.episodes: dict[str, _Episode] = {}
        """By the names of the nodes that are over-committed."""
        self.environment.metrics.overcommitted_nodes.set_function(lambda: {(): len(self.episodes)})

    def pod_assigned(self, pod: PodInfo, confirmed: bool) -> None:
        """Look at the node of a pod that has just been assigned.

        ``confirmed``: it was assumed there, so that the binding is ours.
        """
        node_name = pod.pod.spec.node_name
        if confirmed:
            if node_name in self.episodes:
                self._give_up(node_name)
            return
        info = self.cache.node_info(node_name)
        if info is None or not self.environment.leads():
            return
        exceeded = _exceeded(info, _amounts(pod))
        ours = [one for one in self._unstarted(info, exceeded) if one.uid != pod.uid]
        if not exceeded or not ours:
            return
        if node_name not in self.episodes:
            self._begin(node_name, pod, ours, exceeded)
        if not _is_bound(pod.pod):
            self.episodes[node_name].self_assigned.add(pod.uid)
        self._give_up(node_name)

    def tick(self) -> None:
        """End the episodes of nodes that fit again; to be called once a second."""
        for node_name in list(self.episodes):
            info = self.cache.node_info(node_name)
            if info is None or not _exceeded(info, (*info.requested, _PODS)):
                del self.episodes[node_name]
                log.v(2).info("Node is no longer over-committed", node=node_name)
            else:
                self._give_up(node_name)

    def _begin(
        self, node_name: str, pod: PodInfo, ours: list[PodInfo], exceeded: Mapping[str, int]
    ) -> None:
        self.episodes[node_name] = _Episode()
        self.environment.metrics.node_overcommits_total.inc()
        log.warning(
            "Another scheduler has bound a pod to a node that cannot hold both it and ours",
            node=node_name,
            pod=pod.key,
            scheduler=pod.pod.spec.scheduler_name,
            exceeded=dict(exceeded),
            ours=[one.key for one in ours[:_NAMED]],
        )

    def _unstarted(self, info: NodeInfo, exceeded: Mapping[str, int]) -> list[PodInfo]:
        """Return our pods that take part in the excess and that the kubelet has not seen."""
        return [pod for pod in _unstarted(info, exceeded) if self.responsible_for_pod(pod.pod)]

    # ---- opt-in --------------------------------------------------------------------------------

    def _give_up(self, node_name: str) -> None:
        """Give up as many of our pods as it takes, if that is enough."""
        info, episode = self.cache.node_info(node_name), self.episodes[node_name]
        if not self.environment.delete_overcommitting_pods or info is None:
            return
        excess = _exceeded(info, (*info.requested, _PODS))
        for pod in info.pods.values():
            # Whoever may create pods may name a node in them. Others' pods are not deleted for
            # that: whether the new one may run there is for the kubelet to say.
            waits_for_kubelet = pod.uid in episode.self_assigned and not _is_bound(pod.pod)
            if pod.uid in episode.given_up or waits_for_kubelet or _is_leaving(pod.pod):
                excess = _less(excess, pod)
        # An episode may last longer than a conflict, and the next conflict is waited for anew.
        if not excess:
            episode.waits_since.clear()
        candidates = self._in_order(info, excess, episode)
        chosen = _choose(candidates, excess)
        ours = [pod for pod in chosen if self.responsible_for_pod(pod.pod)]
        for pod in ours:
            self._give_up_pod(pod, node_name, episode.given_up)
        if len(ours) < len(chosen):
            now = self.environment.clock.monotonic()
            for pod in candidates:
                episode.waits_since.setdefault(pod.uid, now)

    def _in_order(
        self, info: NodeInfo, excess: Mapping[str, int], episode: _Episode
    ) -> list[PodInfo]:
        """Return the pods that may be given up: lowest priority first, then the newest.

        Those that are not bound yet come before all others: no other scheduler sees them. Of bound
        pods only those that a controller creates again, and that may then go elsewhere.
        """
        now = self.environment.clock.monotonic()
        found = []
        for pod in _unstarted(info, excess):
            stays = now - episode.waits_since.get(pod.uid, now) >= _OTHERS_SECONDS
            if stays and not self.responsible_for_pod(pod.pod):
                continue
            deleted = pod.pod.metadata.deletion_timestamp or pod.uid in episode.given_up
            if (_is_replaced(pod.pod) or self.cache.is_assumed(pod.uid)) and not deleted:
                found.append(pod)
        return sorted(
            found,
            key=lambda pod: (
                not self.cache.is_assumed(pod.uid),
                pod.priority,
                -_created(pod),
                pod.uid,
            ),
        )

    def _give_up_pod(self, pod: PodInfo, node_name: str, given_up: set[str]) -> None:
        note = f"node {node_name} is over-committed by a pod that another scheduler has bound"
        if self.cache.is_assumed(pod.uid):
            # Not bound yet: it goes back to the queue. Once its binding is being sent it is too
            # late for that; the confirmation leads here again.
            waiting = self.waiting_pods.get(pod.uid)
            if waiting is not None:
                # As an error, so that it is retried after its back-off: no event would wake it.
                waiting.preempt("", note)
            else:
                self.binding_cycle.cancel(pod.uid, note)
            return
        given_up.add(pod.uid)
        self.environment.spawn(self._delete(pod, note, given_up))

    async def _delete(self, pod: PodInfo, note: str, given_up: set[str]) -> None:
        meta = pod.pod.metadata
        try:
            # Of this version: a pod that its kubelet has begun to start has another one.
            await self.environment.api.delete(
                PODS, meta.namespace, meta.name, uid=meta.uid, version=meta.resource_version
            )
        except Conflict:
            given_up.discard(pod.uid)
        except NotFound:
            pass
        except ApiError as error:
            log.error("Cannot delete a pod from an over-committed node", pod=pod.key, err=error)
        else:
            self.environment.metrics.overcommitting_pods_deleted_total.inc()
            self.environment.event_recorder.event(
                pod.pod,
                "Warning",
                "Overcommitted",
                "Scheduling",
                f"{note}: deleted before it has started",
                pod.pod.spec.scheduler_name,
            )


def _unstarted(info: NodeInfo, exceeded: Mapping[str, int]) -> list[PodInfo]:
    """Return the pods that take part in the excess and that the kubelet has not seen."""
    return [
        pod
        for pod in info.pods.values()
        if is_unstarted(pod.pod)
        and _MIRROR not in pod.pod.metadata.annotations
        and not _amounts(pod).keys().isdisjoint(exceeded)
    ]


def _choose(pods: Iterable[PodInfo], excess: Mapping[str, int]) -> list[PodInfo]:
    """Return the first pods without which there is no excess; none if all are not enough."""
    chosen = []
    for pod in pods:
        if not excess.keys().isdisjoint(_amounts(pod)):
            chosen.append(pod)
            excess = _less(excess, pod)
    # Without effect on what is left, it would only cost the pods.
    return [] if excess else chosen


def _is_replaced(pod: Pod) -> bool:
    """Return whether a controller creates a pod like this again, which may go elsewhere."""
    owner = controller_of(pod.metadata)
    return owner is not None and owner.kind not in ("DaemonSet", "Node")


def _is_leaving(pod: Pod) -> bool:
    """Return whether a pod is being deleted before it has started."""
    return pod.metadata.deletion_timestamp is not None and is_unstarted(pod)


def _is_bound(pod: Pod) -> bool:
    """Return whether a Binding has put the pod on its node, or its kubelet has admitted it."""
    # Both set the condition; a pod that is created with a node's name has no status at first.
    return true_condition_of(pod, POD_SCHEDULED) is not None


def _amounts(pod: PodInfo) -> Mapping[str, int]:
    """Return the amounts that a pod takes of its node, 1 of pods included, without zeros."""
    amounts = {name: amount for name, amount in pod.accounted_requests.amounts.items() if amount}
    return {**amounts, _PODS: 1}


def _exceeded(info: NodeInfo, resources: Iterable[str]) -> dict[str, int]:
    """Return the excess of requests over allocatable, only of resources that the node has."""
    if info.node is None:
        return {}
    found = {}
    for name in resources:
        if name == _PODS:
            excess = len(info.pods) - info.allowed_pod_number
        else:
            excess = info.requested[name] - info.allocatable[name] if info.allocatable[name] else 0
        if excess > 0:
            found[name] = excess
    return found


def _less(excess: Mapping[str, int], pod: PodInfo) -> dict[str, int]:
    """Return the excess without a pod."""
    amounts = _amounts(pod)
    return {name: left for name, n in excess.items() if (left := n - amounts.get(name, 0)) > 0}


def _created(pod: PodInfo) -> float:
    created = pod.pod.metadata.creation_timestamp
    return 0.0 if created is None else created.timestamp()
