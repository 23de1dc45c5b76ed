"""Coscheduling: gangs, whose pods are held at Permit until enough of them have a node.

Source: kubernetes-sigs/scheduler-plugins, ``pkg/coscheduling`` (KEP 42). ``groups`` says which
group a pod belongs to, ``records`` what is remembered of groups, ``plugin`` the extension points.
"""

from proreus.addons.coscheduling.plugin import Coscheduling

__all__ = ["Coscheduling"]
