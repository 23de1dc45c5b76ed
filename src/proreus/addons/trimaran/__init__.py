"""Trimaran: scores by the real use of nodes, which metrics tell.

Source: kubernetes-sigs/scheduler-plugins, ``pkg/trimaran`` (KEP 61); each plugin is a module of its
own. ``measured`` is what they share; metrics are read by ``node_metrics``.
"""
