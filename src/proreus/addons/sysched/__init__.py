"""SySched: pods that use similar system calls, on the same nodes.

Source: kubernetes-sigs/scheduler-plugins, ``pkg/sysched`` (KEP 399).
"""

from proreus.addons.sysched.plugin import SySched

__all__ = ["SySched"]
