"""Random nodes, pods and clusters for hypothesis: what ``agree`` draws from, and its parts.

``clusters()``: nodes and pods by themselves. ``neighbourhoods()``: pods with wishes about other
pods. ``volume_clusters()``, ``device_clusters()``: pods with volumes and with devices. Each draws a
``Cluster``: nodes, pods on them, a pod to be placed, other objects, and changes that happen then.
"""

try:
    import hypothesis  # noqa: F401
except ImportError as error:
    raise ImportError(
        "proreus.testing.strategies needs hypothesis: pip install 'proreus[testing]'"
    ) from error

from proreus.testing.clusters import (
    Change,
    Cluster,
    changes,
    clusters,
    node_affinities,
    node_selector_terms,
    nodes,
    pods,
    tolerations,
)
from proreus.testing.device_clusters import device_clusters
from proreus.testing.neighbours import (
    affinity_terms,
    label_maps,
    label_selectors,
    neighbourhoods,
    pod_affinities,
    social_pods,
    spread_constraints,
)
from proreus.testing.volume_clusters import volume_clusters

__all__ = [
    "Change",
    "Cluster",
    "affinity_terms",
    "changes",
    "clusters",
    "device_clusters",
    "label_maps",
    "label_selectors",
    "neighbourhoods",
    "node_affinities",
    "node_selector_terms",
    "nodes",
    "pod_affinities",
    "pods",
    "social_pods",
    "spread_constraints",
    "tolerations",
    "volume_clusters",
]
