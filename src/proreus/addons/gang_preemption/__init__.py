"""GangPreemption: gangs give up their surplus first, and are evicted as a whole or not at all.

``placed_gangs`` is what is known of gangs that run, ``gang_victims`` the units in which their pods
are evicted, ``plugin`` the preemption.
"""

from proreus.addons.gang_preemption.plugin import GangPreemption

__all__ = ["GangPreemption"]
