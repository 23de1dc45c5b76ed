"""DelayScheduling: a pod waits a little for the node, rack or zone that it prefers.

Source: Zaharia et al., "Delay Scheduling" (EuroSys 2010); Hadoop YARN's node-locality-delay and
Spark's locality.wait are other forms of it.
"""

from proreus.addons.delay_scheduling.plugin import DelayScheduling

__all__ = ["DelayScheduling"]
