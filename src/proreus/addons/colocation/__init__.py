"""Colocation: online and offline pods on the same nodes, without over-commitment.

The resources are Koordinator's ``kubernetes.io/batch-cpu`` and ``batch-memory``.
"""

from proreus.addons.colocation.plugin import Colocation

__all__ = ["Colocation"]
