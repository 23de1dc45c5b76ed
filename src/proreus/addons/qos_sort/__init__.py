"""QOSSort: pods of the same priority by their QoS class.

Source: kubernetes-sigs/scheduler-plugins, ``pkg/qos``.
"""

from proreus.addons.qos_sort.plugin import QOSSort

__all__ = ["QOSSort"]
