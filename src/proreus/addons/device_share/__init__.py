"""DeviceShare: GPUs shared by pods, in fractions or by memory, and NICs next to them.

Sources: Koordinator's DeviceShare (``pkg/scheduler/plugins/deviceshare``), Volcano's vGPU, KAI's
GPU sharing, HAMi. ``requests`` reads the requests of pods in the names of each, ``hints`` their
hints, ``devices`` the devices of a node; ``placement`` chooses devices, ``annotations`` writes and
reads the choice, ``accounts`` adds them up.
"""

from proreus.addons.device_share.plugin import DeviceShare

__all__ = ["DeviceShare"]
