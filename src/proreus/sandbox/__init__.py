"""The embedded cluster: an apiserver emulator and fake kubelets."""

from proreus.sandbox.cluster import make_node, make_nodes
from proreus.sandbox.kubelet import KubeletOptions
from proreus.sandbox.sandbox import Sandbox

__all__ = ["KubeletOptions", "Sandbox", "make_node", "make_nodes"]
