"""NodeResourceTopologyMatch: nodes whose kubelet can align the pod's resources in a NUMA zone.

Source: kubernetes-sigs/scheduler-plugins, ``pkg/noderesourcetopology`` (KEP 119). ``zones`` reads
the API objects, ``demand`` the requests of pods, ``scoring`` has the strategies, ``cache`` corrects
what agents publish late.
"""

from proreus.addons.node_resource_topology_match.plugin import NodeResourceTopologyMatch

__all__ = ["NodeResourceTopologyMatch"]
