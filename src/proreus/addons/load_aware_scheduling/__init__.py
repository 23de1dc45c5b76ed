"""LoadAwareScheduling: nodes by their real use and the estimated use of new pods.

Source: Koordinator, ``pkg/scheduler/plugins/loadaware``.
"""

from proreus.addons.load_aware_scheduling.plugin import LoadAwareScheduling

__all__ = ["LoadAwareScheduling"]
