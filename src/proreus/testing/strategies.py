"""Hypothesis strategies for nodes, pods and clusters: the ones that ``agree`` uses, and their
parts.

``clusters()``: nodes and pods without relations between pods. ``inter_pod_clusters()``: pods with
affinity terms and spread constraints. ``volume_clusters()``, ``device_clusters()``: pods with
volumes and with devices. Each draws a ``Cluster``: nodes, pods on them, a pending pod, other
objects, and changes to apply afterwards.
"""

try:
    import hypothesis  # noqa: F401
except ImportError as error:
    raise ImportError(
        "proreus.testing.strategies needs hypothesis: pip install hypothesis"
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
from proreus.testing.inter_pod_clusters import (
    affinity_terms,
    inter_pod_clusters,
    label_maps,
    label_selectors,
    pod_affinities,
    pods_with_inter_pod_terms,
    spread_constraints,
)
from proreus.testing.vocabulary import Vocabulary
from proreus.testing.volume_clusters import volume_clusters

__all__ = [
    "Change",
    "Cluster",
    "Vocabulary",
    "affinity_terms",
    "changes",
    "clusters",
    "device_clusters",
    "inter_pod_clusters",
    "label_maps",
    "label_selectors",
    "node_affinities",
    "node_selector_terms",
    "nodes",
    "pod_affinities",
    "pods",
    "pods_with_inter_pod_terms",
    "spread_constraints",
    "tolerations",
    "volume_clusters",
]
