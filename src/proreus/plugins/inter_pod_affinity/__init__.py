"""InterPodAffinity: place pods near or away from others (KEP-2249 for namespace selectors)."""

from proreus.plugins.inter_pod_affinity.plugin import InterPodAffinity

__all__ = ["InterPodAffinity"]
