"""Records the results of recent attempts to schedule a pod, in a bounded memory.

``recorder`` is told of every attempt and makes a ``record`` of it; ``retention`` decides how long
that is kept. ``results`` are what Filter and Score returned, as columns that pods of an equivalence
class share: an attempt costs only the rows that changed. Nothing here decides, and nothing is
composed before it is asked for: that is done by ``proreus.insight.explain``.
"""
