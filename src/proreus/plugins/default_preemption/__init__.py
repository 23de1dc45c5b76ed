"""DefaultPreemption: make room for a pod by evicting less important ones."""

from proreus.plugins.default_preemption.plugin import DefaultPreemption

__all__ = ["DefaultPreemption"]
