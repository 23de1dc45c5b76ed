"""The smallest changes of a node with which it would take a waiting pod, each verified.

    look_for_node_help ─► nearest rows ─► _help_on_node   propose, ask, until the pod fits

Example: a pod of 4 CPUs; node a has 3 free of 8 and a taint. "add 1 allocatable cpu: 9 instead of
8" and "remove the taint": the engine was asked with a node a that has both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from proreus.framework.node_info import NodeInfo
from proreus.framework.pod_info import PodInfo
from proreus.insight.explain.engine import Engine
from proreus.insight.explain.explanation import PodChange
from proreus.insight.explain.nearest import nearest_rows
from proreus.insight.explain.node_changes import NODE_PROPOSALS, NodeProposal
from proreus.objects.node import Node

_STEPS = 8


@dataclass(frozen=True)
class VerifiedNode:
    """Changes that make a node take a pod. ``node``: with them, in place of the one in ``row``."""

    row: int
    node: Node
    changes: tuple[PodChange, ...]


def look_for_node_help(engine: Engine, pod: PodInfo, nodes: int) -> list[VerifiedNode]:
    """Return verified changes of the nearest nodes, the fewest first. Raises ``PluginError``."""
    if not engine.table.size or engine.out_of_time:
        return []
    rejection, found = engine.rejections(pod)
    if rejection is not None:
        return []  # PreFilter rejects it, on whatever node
    helped = []
    for row in nearest_rows(engine, pod, found, nodes, NODE_PROPOSALS).tolist():
        if (one := _help_on_node(engine, pod, row)) is not None:
            helped.append(one)
    helped.sort(key=lambda one: len(one.changes))
    return helped


def _help_on_node(engine: Engine, pod: PodInfo, row: int) -> VerifiedNode | None:
    """Return changes with which a node takes a pod; None if none were found."""
    node = engine.table[row].node
    if node is None:
        return None
    changes: list[PodChange] = []
    for _ in range(_STEPS):
        if engine.out_of_time:
            return None
        status = engine.rejection_on(node, pod, row)
        if status is None:
            return VerifiedNode(row, node, tuple(changes)) if changes else None
        proposal = _first_that_helps(engine, pod, row, node, status.plugin, status.reasons)
        if proposal is None:
            return None
        changes.append(proposal.change)
        node = proposal.node
    return None


def _first_that_helps(
    engine: Engine, pod: PodInfo, row: int, node: Node, plugin: str, reasons: Sequence[str]
) -> NodeProposal | None:
    """Return the first proposal after which this plugin does not reject the pod any more.

    If none does, the first one that is needed with others, where the plugin has several reasons.
    """
    propose = NODE_PROPOSALS.get(plugin)
    if propose is None:
        return None
    info = _with_node(engine.table[row], node)
    needed = None
    for proposal in propose(pod, node, info, engine.table):
        if engine.out_of_time:
            return None
        status = engine.rejection_on(proposal.node, pod, row)
        if status is not None and status.plugin == plugin:
            # Two resources are missing, or there are two taints: the next step asks again.
            if plugin in _SEVERAL and needed is None:
                needed = proposal
            continue
        return _as_minimal(engine, pod, row, proposal, plugin)
    return None if needed is None else _as_minimal(engine, pod, row, needed, plugin, reasons)


_SEVERAL = frozenset({"NodeResourcesFit", "TaintToleration"})
"""Plugins that may reject a pod for several reasons at once; each reason is a change."""


def _as_minimal(
    engine: Engine,
    pod: PodInfo,
    row: int,
    proposal: NodeProposal,
    plugin: str,
    reasons: Sequence[str] = (),
) -> NodeProposal:
    """Return the proposal; as the smallest, if with one unit less the plugin rejects the pod.

    ``reasons``: the same ones as without the proposal, where that is not the only one needed.
    """
    if proposal.one_less is None:
        return proposal
    less = engine.rejection_on(proposal.one_less, pod, row)
    if less is None or less.plugin != plugin or (reasons and less.reasons != reasons):
        return proposal
    return proposal.as_minimal()


def _with_node(info: NodeInfo, node: Node) -> NodeInfo:
    """Return a copy of a node's information with another node object."""
    copied = NodeInfo(info.name)
    copied.set_node(node)
    for pod in info.pods.values():
        copied.add_pod(pod)
    return copied
