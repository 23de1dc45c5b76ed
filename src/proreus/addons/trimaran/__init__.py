"""Trimaran: scores by the real use of nodes, which metrics show.

Source: kubernetes-sigs/scheduler-plugins, ``pkg/trimaran`` (KEP 61). Each plugin is a module of its
own, ``measured`` has their base classes, and ``node_metrics`` reads metrics.
"""
