"""DeviceShare: GPUs shared by pods, in fractions or by memory, and NICs next to them.

Sources: Koordinator's DeviceShare (``pkg/scheduler/plugins/deviceshare``), Volcano's vGPU, KAI's
GPU sharing, HAMi. ``requests`` reads what pods ask for in the names of each, ``hints`` how they
want it, ``devices`` what a node has, ``placement`` chooses devices, ``annotations`` writes and
reads which ones a pod got, ``accounts`` adds them up.
"""

from proreus.addons.device_share.plugin import DeviceShare

__all__ = ["DeviceShare"]
