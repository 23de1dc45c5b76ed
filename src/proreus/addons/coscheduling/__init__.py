"""Coscheduling: gangs, whose pods start together or not at all.

Source: kubernetes-sigs/scheduler-plugins, ``pkg/coscheduling`` (KEP 42). ``groups`` finds the
group of a pod, ``records`` keeps the state of groups. There is a class for each mode:

    plugin    permit   members are held at Permit until enough of them have a node
    planned   plan     groups are placed as a whole
"""

from proreus.addons.coscheduling.planned import PlannedCoscheduling
from proreus.addons.coscheduling.plugin import Coscheduling

__all__ = ["Coscheduling", "PlannedCoscheduling"]
