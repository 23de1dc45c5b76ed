"""GangPreemption: gangs give up their surplus first, and are evicted as a whole or not at all.

``placed_gangs`` keeps the gangs that run, ``gang_victims`` finds the units in which their pods are
evicted, ``plugin`` is the preemption.
"""

from proreus.addons.gang_preemption.plugin import GangPreemption

__all__ = ["GangPreemption"]
