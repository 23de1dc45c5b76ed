"""Explains decisions: a pod's choice of node, its wait, and changes that would help.

``explainer`` answers from the record of decisions (``insight.decisions``), the queue and the nodes;
``what_if`` asks the engine again with a changed pod; ``explanation`` has the answers, as plain
values. Nothing here changes the scheduler's state.
"""

from proreus.insight.explain.explainer import Explainer
from proreus.insight.explain.explanation import NodeExplanation, PodExplanation, QueueExplanation

__all__ = ["Explainer", "NodeExplanation", "PodExplanation", "QueueExplanation"]
