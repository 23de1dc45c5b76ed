"""Scores in the log at ``-v 10``, in kube-scheduler's words: by plugin, by extender, in total.

A line for each node and plugin: at 5,000 nodes tens of thousands a pod, as in kube-scheduler.
``--vmodule score_log=10`` turns on these lines alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from proreus.base.logs import logger
from proreus.framework.node_table import NodeTable
from proreus.framework.verdicts import IntArray, Rows

log = logger(__name__)

LEVEL = 10
"""Scores are logged while ``log.threshold`` is at least this; plugins' own scores need not be found
out otherwise."""


def log_plugin_scores(
    pod: str, table: NodeTable, rows: Rows, scores: Mapping[str, IntArray], *, in_total: bool
) -> None:
    """Log plugins' weighted scores of rows, node after node. ``pod``: ``namespace/name``.

    ``scores``: by plugin, in the order of ``rows``, without those that PreScore skipped.
    ``in_total``: log the sums too; not where extenders add to them.
    """
    verbose = log.v(LEVEL)
    nodes = [table[row].name for row in rows.tolist()]
    columns = [(plugin, column.tolist()) for plugin, column in scores.items()]
    for place, node in enumerate(nodes):
        for plugin, column in columns:
            verbose.info(
                "Plugin scored node for pod", pod=pod, plugin=plugin, node=node, score=column[place]
            )
    if in_total:
        totals = [sum(column[place] for _, column in columns) for place in range(len(nodes))]
        log_final_scores(pod, nodes, totals)


def log_extender_score(pod: str, extender: str, node: str, score: int) -> None:
    """Log what an extender answered for a node, 0..10, before its weight."""
    log.v(LEVEL).info(
        "Extender scored node for pod", pod=pod, extender=extender, node=node, score=score
    )


def log_final_scores(pod: str, nodes: Sequence[str], totals: Sequence[int]) -> None:
    """Log the sums of plugins' and extenders' scores. ``pod``: ``namespace/name``."""
    verbose = log.v(LEVEL)
    for node, score in zip(nodes, totals, strict=True):
        verbose.info("Calculated node's final score for pod", pod=pod, node=node, score=score)
