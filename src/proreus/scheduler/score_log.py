"""Scores in the log at ``-v 10``, in kube-scheduler's words: by plugin, by extender, in total.

A line for each node and plugin: at 5,000 nodes tens of thousands a pod, as in kube-scheduler.
``--vmodule score_log=10`` turns on these lines alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from proreus.framework.node_table import NodeTable
from proreus.framework.verdicts import IntArray, Rows
from proreus.logs import logger

if TYPE_CHECKING:
    from proreus.scheduler.attempt import Attempt

log = logger(__name__)

_LEVEL = 10


def is_on() -> bool:
    """Return whether scores are logged; without, plugins' own scores need not be found out."""
    return log.threshold >= _LEVEL


def log_plugin_scores(
    attempt: Attempt, table: NodeTable, rows: Rows, scores: Mapping[str, IntArray]
) -> None:
    """Log plugins' weighted scores of rows, node after node, and their sums unless extenders add.

    ``scores``: by plugin, in the order of ``rows``; those that PreScore skipped are not in it.
    """
    plugins = [plugin.name for plugin in attempt.profile.score]
    if not plugins:
        return
    verbose, pod = log.v(_LEVEL), attempt.pod.key
    nodes = [table[row].name for row in rows.tolist()]
    columns = [(plugin, scores[plugin].tolist()) for plugin in plugins if plugin in scores]
    for place, node in enumerate(nodes):
        for plugin, column in columns:
            verbose.info(
                "Plugin scored node for pod", pod=pod, plugin=plugin, node=node, score=column[place]
            )
    if not attempt.extenders:
        totals = [sum(column[place] for _, column in columns) for place in range(len(nodes))]
        log_final_scores(pod, nodes, totals)


def log_extender_score(pod: str, extender: str, node: str, score: int) -> None:
    """Log what an extender answered for a node, 0..10, before its weight."""
    log.v(_LEVEL).info(
        "Extender scored node for pod", pod=pod, extender=extender, node=node, score=score
    )


def log_final_scores(pod: str, nodes: Sequence[str], totals: Sequence[int]) -> None:
    """Log the sums of plugins' and extenders' scores. ``pod``: ``namespace/name``."""
    verbose = log.v(_LEVEL)
    for node, score in zip(nodes, totals, strict=True):
        verbose.info("Calculated node's final score for pod", pod=pod, node=node, score=score)
