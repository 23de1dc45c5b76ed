"""PodState: prefer nodes that are about to be free.

Source: kubernetes-sigs/scheduler-plugins, ``pkg/podstate``.
"""

from proreus.addons.pod_state.plugin import PodState

__all__ = ["PodState"]
