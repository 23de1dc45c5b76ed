"""The embedded cluster: an apiserver emulator and fake kubelets, in one process (ADR 0011)."""

from proreus.workbench.sandbox.cluster import make_node, make_nodes
from proreus.workbench.sandbox.kubelet import KubeletOptions
from proreus.workbench.sandbox.sandbox import ListenOptions, Sandbox

__all__ = ["KubeletOptions", "ListenOptions", "Sandbox", "make_node", "make_nodes"]
