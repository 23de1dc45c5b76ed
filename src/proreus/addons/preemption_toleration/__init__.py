"""PreemptionToleration: preemption that spares pods as long as their PriorityClass says.

Source: kubernetes-sigs/scheduler-plugins, ``pkg/preemptiontoleration`` and KEP 205.
"""

from proreus.addons.preemption_toleration.plugin import PreemptionToleration

__all__ = ["PreemptionToleration"]
