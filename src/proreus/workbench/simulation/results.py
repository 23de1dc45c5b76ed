"""Results of a simulation, as Structs: equal inputs and seeds give equal results and equal JSON.

Wall-clock times are not in them (see ``Timings``): they differ from run to run.
"""

from __future__ import annotations

from typing import Literal

import msgspec


class _Result(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Fields are snake_case here and camelCase in JSON and YAML."""


class ScheduledPod(_Result, frozen=True):
    """A pod that got a node. ``previous_node``: where it was before it was evicted, or ""."""

    pod: str
    node: str
    previous_node: str = ""
    workload: str = ""


class NodesRejected(_Result, frozen=True):
    """The number of nodes that one plugin rejected for one reason."""

    plugin: str
    reason: str
    nodes: int


class UnplacedPod(_Result, frozen=True):
    """A pod that got no node.

    ``reason``: ``Unschedulable``, ``SchedulerError``, ``SchedulingGated``, or ``Waiting`` (Permit,
    or a binding that did not end). ``message``: the text of its PodScheduled condition.
    ``rejections``: the nodes by plugin and reason, the most frequent first. ``previous_node``: as
    in ``ScheduledPod``. ``nominated_node``: where preemption made room, or "".
    """

    pod: str
    reason: Literal["Unschedulable", "SchedulerError", "SchedulingGated", "Waiting"]
    message: str
    plugins: tuple[str, ...] = ()
    rejections: tuple[NodesRejected, ...] = ()
    previous_node: str = ""
    nominated_node: str = ""
    workload: str = ""


class VictimPod(_Result, frozen=True):
    """A pod that was preempted. ``node_after``: where it is at the end, "" for nowhere."""

    pod: str
    node: str
    preemptor: str
    node_after: str = ""


class ResourceUse(_Result, frozen=True):
    """One resource over all nodes: milli-CPU, bytes or counts.

    ``fragmentation``: the share of what is free that is on nodes where it is of no use, 0 to 1; the
    mean over the requests of the cluster's pods (``utilisation``). ``imbalance``: the standard
    deviation of the nodes' shares. ``histogram``: how many nodes have a share below 5 %, 10 %, …;
    the last of the 20 counts all from 95 % on.
    """

    allocatable: int
    requested: int
    share: float
    imbalance: float
    fragmentation: float
    histogram: tuple[int, ...] = ()


class Utilisation(_Result, frozen=True):
    """The utilisation of nodes by the pods of a cluster. ``empty_nodes`` have no pod.

    ``resources``: of the nodes that are not cordoned, and of the pods there.
    """

    nodes: int
    empty_nodes: int
    pods: int
    resources: dict[str, ResourceUse]


class WorkloadSkew(_Result, frozen=True):
    """The spread of a workload's pods over the domains of a label of nodes.

    ``before`` and ``after``: the most pods in a domain minus the fewest. ``max_skew``: what its
    pods ask for, None if they ask for nothing.
    """

    workload: str
    topology_key: str
    domains: int
    pods: int
    before: int
    after: int
    max_skew: int | None = None


class ScenarioResult(_Result, frozen=True):
    """The outcome of a scenario.

    ``arrivals``: how many pods had to be placed, evicted and recreated ones included. ``lost``:
    pods that nobody creates anew. ``other_schedulers``: pending pods that no profile schedules.
    ``virtual_seconds``: how much time passed on the simulated clock, back-offs included.
    """

    arrivals: int
    placed: tuple[ScheduledPod, ...]
    unplaced: tuple[UnplacedPod, ...]
    victims: tuple[VictimPod, ...]
    lost: tuple[str, ...]
    removed: tuple[str, ...]
    added_nodes: tuple[str, ...]
    other_schedulers: int
    before: Utilisation
    after: Utilisation
    spread: tuple[WorkloadSkew, ...]
    virtual_seconds: float
    notes: tuple[str, ...] = ()

    @property
    def moved(self) -> int:
        """The number of evicted pods that are on another node than before."""
        return sum(bool(one.previous_node) and one.previous_node != one.node for one in self.placed)


class Timings(_Result, frozen=True):
    """Wall-clock times of a run, which differ from run to run. Decisions: attempts of the loop."""

    load_seconds: float
    schedule_seconds: float
    decisions: int
    decision_mean_ms: float
    decision_p99_ms: float
