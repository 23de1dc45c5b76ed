"""Scheduling policy: kube-scheduler's own plugins, one module each, registered by hand."""

from __future__ import annotations

from proreus.framework.plugin import Plugin
from proreus.plugins.node_affinity import NodeAffinity
from proreus.plugins.node_resources_fit import NodeResourcesFit
from proreus.plugins.node_unschedulable import NodeUnschedulable
from proreus.plugins.taint_toleration import TaintToleration

IN_TREE: tuple[type[Plugin], ...] = (
    NodeUnschedulable,
    TaintToleration,
    NodeAffinity,
    NodeResourcesFit,
)
"""Every plugin that comes with proreus, in kube-scheduler's default order."""
