"""NetworkOverhead and TopologicalSort: pods that talk to each other, near to each other.

Source: kubernetes-sigs/scheduler-plugins, ``pkg/networkaware`` (KEP 260). ``objects`` are the
custom resources, ``distances`` computes the costs between nodes.
"""
