"""Finds pods that would have a better node, and proves it by simulation.

The cluster's objects are loaded into a simulated cluster, in which pods that wait are scheduled
first, since room that they get is not there for anybody else. Then each candidate is taken away,
and all nodes are filtered and scored for it as for a new pod. Where another node is better than its
own by enough, its successor is scheduled, by the whole engine: only if that pod gets another node,
and nobody has to go for it, the move is advised. The move then stays, so that the next candidate
does not count on the same room.

When it places a pod, kube-scheduler respects the inter-pod terms of the pods that run already,
whoever wrote them; nobody may have a running pod of another namespace evicted by them. So moves are
found in a cluster without terms about other namespaces, and then proved in the cluster as it is,
where the scheduler will decide about the successors.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from msgspec.structs import replace

from proreus.addons.coscheduling.groups import membership_of
from proreus.controller.evictions.safe_to_evict import is_safe_to_evict
from proreus.engine.runtime.prioritize_nodes import prioritize_nodes, run_pre_score
from proreus.engine.runtime.scheduling_points import run_pre_filter
from proreus.framework.cycle_state import CycleState
from proreus.framework.pod_info import PodInfo
from proreus.insight.snapshots.cluster_objects import ClusterObjects
from proreus.objects.kinds import PODS
from proreus.objects.meta import key_of
from proreus.objects.pod import Pod, PodAffinity, PodAffinityTerm
from proreus.objects.requests import PodResourcesOptions
from proreus.offline.virtual_time import VirtualTimeLoop
from proreus.workbench.simulation.controllers import Controllers, is_daemon_pod
from proreus.workbench.simulation.scenario import recreated
from proreus.workbench.simulation.simulated_cluster import Settings, SimulatedCluster

_SYSTEM_PRIORITY = 2_000_000_000
_RESTARTS_ITS_WORK = ("job", "node")
_FOR_NEW_PODS_ONLY = ("NodeUnschedulable", "TaintToleration")
"""Plugins whose rejection does not matter to a pod that runs already, as of a cordon or taint."""
_MOST_POINTS = 100
"""Of a plugin of weight 1."""

_AsExisting = Callable[[Pod], Pod]
"""Returns a pod as other pods see it."""


@dataclass(frozen=True)
class Move:
    """A pod that would have a better node.

    ``gain``: by how many points the node's total score is higher; ``reason``: a sentence.
    """

    pod: str
    uid: str
    workload: str
    node: str
    better_node: str
    gain: int
    reason: str

    @property
    def namespace(self) -> str:
        """The pod's namespace."""
        return self.pod.partition("/")[0]


def is_movable(pod: Pod, controllers: Controllers) -> bool:
    """Return whether a pod could be moved, since its controller creates it anew elsewhere.

    Members of a group are not, nor pods whose work would begin again, nor those with claims for
    devices, which their successors would have to get first.
    """
    workload = controllers.workload_of(pod)
    return (
        workload is not None
        and workload.kind not in _RESTARTS_ITS_WORK
        and bool(pod.spec.node_name)
        and pod.status.phase == "Running"
        and pod.metadata.deletion_timestamp is None
        and not is_daemon_pod(pod)
        and (pod.spec.priority or 0) < _SYSTEM_PRIORITY
        and not pod.spec.resource_claims
        and pod.spec.scheduling_group is None
        and membership_of(pod) is None
        and is_safe_to_evict(pod)
    )


def find_better_nodes(
    objects: ClusterObjects,
    settings: Settings,
    candidates: Iterable[str],
    min_gain: int,
    is_stopped: Callable[[], bool] = lambda: False,
) -> list[Move]:
    """Return the moves that are better by ``min_gain`` points, in the order of the candidates.

    ``candidates``: keys of movable pods. ``is_stopped()`` is asked before each. Needs a thread
    without a running event loop: the clock of the one that it makes is virtual.
    """
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        deserved = runner.run(
            _find(objects, settings, candidates, min_gain, is_stopped, without_foreign_terms)
        )
        found = {move.pod: move for move in deserved}
        proved = (
            runner.run(_find(objects, settings, found, min_gain, is_stopped, lambda pod: pod))
            if found
            else []
        )
    return [dataclasses.replace(found[move.pod], better_node=move.better_node) for move in proved]


async def _find(
    objects: ClusterObjects,
    settings: Settings,
    candidates: Iterable[str],
    min_gain: int,
    is_stopped: Callable[[], bool],
    as_existing: _AsExisting,
) -> list[Move]:
    pods = objects.of(PODS)
    existing = objects.copy()
    existing.of(PODS).update({key: as_existing(pod) for key, pod in pods.items()})
    cluster = SimulatedCluster(settings)
    await cluster.load(existing)
    await cluster.schedule()
    search = _Search(cluster, Controllers(objects), settings, min_gain, as_existing)
    moves: list[Move] = []
    for key in candidates:
        if is_stopped() or search.is_disturbed:
            break
        pod = cluster.pods.get(key)
        # One that a waiting pod has preempted in the simulation is somewhere else by now.
        if pod is not None and pod.metadata.uid == pods[key].metadata.uid:
            move = await search.examine(pods[key])
            if move is not None:
                moves.append(move)
    return moves


class _Search:
    """Moves pods of a simulated cluster, one after another."""

    def __init__(
        self,
        cluster: SimulatedCluster,
        controllers: Controllers,
        settings: Settings,
        min_gain: int,
        as_existing: _AsExisting,
    ) -> None:
        self._cluster = cluster
        self._controllers = controllers
        self._options = PodResourcesOptions.of(settings.feature_gates)
        self._min_gain = min_gain
        self._as_existing = as_existing
        self.is_disturbed = False
        """Whether the simulated cluster is another than the real one with the moves so far."""

    async def examine(self, pod: Pod) -> Move | None:
        """Return the move of a pod that would have a better node; it stays moved then."""
        cluster, key, node = self._cluster, key_of(pod), pod.spec.node_name
        profile = cluster.scheduler.profiles.get(pod.spec.scheduler_name)
        if profile is None:
            return None
        cluster.remove_pod(key)
        successor = recreated(pod)
        comparison = self._compare(successor, node)
        if comparison is None or comparison[0] < self._min_gain:
            cluster.api.put(PODS, self._as_existing(pod))
            return None
        victims = len(cluster.victims)
        cluster.put_pod(successor)
        await cluster.schedule()
        better = cluster.node_of(key)
        if len(cluster.victims) > victims:
            self.is_disturbed = True
            return None
        if not better or better == node:
            cluster.remove_pod(key)
            cluster.api.put(PODS, self._as_existing(pod))
            return None
        cluster.api.put(PODS, self._as_existing(cluster.pods[key]))
        workload = str(self._controllers.workload_of(pod) or "")
        return Move(key, pod.metadata.uid, workload, node, better, *comparison)

    def _compare(self, pod: Pod, node: str) -> tuple[int, str] | None:
        """Compare a node with the best one for a pod that waits; None if nothing can be said.

        Return the advantage of the best one in points, and the reason as a sentence.
        """
        cluster = self._cluster
        profile, state = cluster.scheduler.profiles[pod.spec.scheduler_name], CycleState()
        info = PodInfo(pod, self._options)
        outcome = run_pre_filter(profile, state, info)
        if outcome.status is not None:
            return None
        found = cluster.scheduler.scheduling_cycle.node_search.find(
            profile, state, info, outcome.names
        )
        rows = cluster.table.rows_of([node]).tolist()
        if not found.count or not rows:
            return None
        [row] = rows
        most = _MOST_POINTS * sum(profile.weights.values())
        rejection = found.verdicts.status(row)
        if rejection is not None:
            if rejection.plugin in _FOR_NEW_PODS_ONLY:
                return None
            return most, f"its node would be rejected: {rejection.message}"
        feasible = found.rows
        if row not in feasible:
            return None
        run_pre_score(profile, state, info, found)
        scores = prioritize_nodes(profile, state, info, found).scores
        best, own = int(scores[feasible].max()), int(scores[row])
        return best - own, f"score {best} instead of {own}, of {most}"


def without_foreign_terms(pod: Pod) -> Pod:
    """Return a pod with inter-pod terms about pods of its own namespace only.

    Terms with a namespaceSelector are left out.
    """
    affinity = pod.spec.affinity
    if affinity is None:
        return pod
    namespace = pod.metadata.namespace
    own = replace(
        affinity,
        pod_affinity=_own_terms(affinity.pod_affinity, namespace),
        pod_anti_affinity=_own_terms(affinity.pod_anti_affinity, namespace),
    )
    return pod if own == affinity else replace(pod, spec=replace(pod.spec, affinity=own))


def _own_terms(terms: PodAffinity | None, namespace: str) -> PodAffinity | None:
    if terms is None:
        return None
    required = tuple(
        replace(term, namespaces=()) for term in terms.required if _selects_own(term, namespace)
    )
    preferred = tuple(
        replace(one, pod_affinity_term=replace(one.pod_affinity_term, namespaces=()))
        for one in terms.preferred
        if _selects_own(one.pod_affinity_term, namespace)
    )
    return PodAffinity(required, preferred)


def _selects_own(term: PodAffinityTerm, namespace: str) -> bool:
    return term.namespace_selector is None and (not term.namespaces or namespace in term.namespaces)
