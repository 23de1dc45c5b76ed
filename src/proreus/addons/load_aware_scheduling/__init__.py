"""LoadAwareScheduling: nodes by what they really use, with what new pods are going to use.

Source: Koordinator, ``pkg/scheduler/plugins/loadaware``.
"""

from proreus.addons.load_aware_scheduling.plugin import LoadAwareScheduling

__all__ = ["LoadAwareScheduling"]
