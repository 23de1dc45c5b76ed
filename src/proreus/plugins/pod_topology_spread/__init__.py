"""PodTopologySpread: spread pods over domains (KEP-895, 3022, 3094, 3243; defaults: KEP-1258)."""

from proreus.plugins.pod_topology_spread.plugin import PodTopologySpread

__all__ = ["PodTopologySpread"]
