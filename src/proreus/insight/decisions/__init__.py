"""Records the results of recent attempts to schedule a pod, in a bounded memory.

``recorder`` is told of every attempt and makes a ``record`` of it; ``retention`` decides how long
that is kept. ``results`` are what Filter and Score returned, as columns that pods of an equivalence
class share: an attempt costs only the rows that changed. Nothing here decides, and nothing is
composed before it is asked for: that is done by ``proreus.insight.explain``.
"""

from proreus.insight.decisions.outcomes import ExtenderAnswer, PermitWait
from proreus.insight.decisions.record import DecisionRecord, FailureRecord, Victim
from proreus.insight.decisions.recorder import DecisionRecorder
from proreus.insight.decisions.retention import DEFAULT_BUDGET_BYTES, KeptRecords
from proreus.insight.decisions.scores import PluginScores, ScoreTable
from proreus.insight.decisions.verdicts import VerdictColumn

__all__ = [
    "DEFAULT_BUDGET_BYTES",
    "DecisionRecord",
    "DecisionRecorder",
    "ExtenderAnswer",
    "FailureRecord",
    "KeptRecords",
    "PermitWait",
    "PluginScores",
    "ScoreTable",
    "VerdictColumn",
    "Victim",
]
