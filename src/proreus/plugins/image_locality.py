"""ImageLocality: prefer nodes that have the pod's images already.

An image counts with its size, scaled by the share of nodes that have it, so that pods do not flock
to the few nodes with a popular image. What an image is worth is the same on every node that has
it; it is made part of the signature, so that answers hold while it does.
"""

from __future__ import annotations

from collections.abc import Hashable
from functools import lru_cache

from proreus.framework.columns import ImageSet
from proreus.framework.cycle_state import CycleState
from proreus.framework.distinct import once_per_value
from proreus.framework.node_info import NodeInfo
from proreus.framework.node_table import NodeTable
from proreus.framework.plugin import MAX_SCORE, ScorePlugin
from proreus.framework.pod_info import PodInfo
from proreus.framework.verdicts import IntArray
from proreus.objects.pod import Pod

MEBIBYTE = 1024 * 1024
MIN_BYTES = 23 * MEBIBYTE
MAX_BYTES_A_CONTAINER = 1000 * MEBIBYTE

Worth = tuple[int, tuple[tuple[str, int], ...]]
"""The number of containers, and (image, scaled bytes) of those images that some node has."""

_NOTHING: Worth = (0, ())


class ImageLocality(ScorePlugin):
    """Scores by the bytes that need not be pulled."""

    row_local = True

    def sign(self, pod: PodInfo) -> Hashable:
        """What each image is worth now; most pods' images are new to all nodes."""
        return self._worth(pod.pod)

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        """Score one node."""
        worth = self._worth(pod.pod)
        if worth is _NOTHING:
            return 0
        table = self.handle.nodes
        row = table.rows.get(node.name)
        if row is not None:
            return _score(worth, table.image_sets.values[table.image_set[row]])
        images = node.node.status.images if node.node is not None else ()
        return _score(worth, frozenset(name for image in images for name in image.names))

    def score_all(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> IntArray | int:
        """Score all nodes."""
        worth = self._worth(pod.pod)
        if worth is _NOTHING:
            return 0
        scores = once_per_value(
            nodes.image_set, nodes.image_sets.values, lambda images: _score(worth, images)
        )
        return 0 if scores is None else scores

    def _worth(self, pod: Pod) -> Worth:
        table, spec = self.handle.nodes, pod.spec
        images, total = table.images, len(table)
        containers = spec.init_containers + spec.containers
        names = [normalized_image_name(container.image) for container in containers]
        for volume in spec.volumes:
            if volume.image is not None:
                names.append(normalized_image_name(volume.image.reference))
        known = images.nodes_with
        found = tuple(
            (name, int(images.size_bytes[name] * (known[name] / total)))
            for name in names
            if name in known
        )
        return (len(containers), found) if found else _NOTHING


@lru_cache(maxsize=8192)
def normalized_image_name(name: str) -> str:
    """Append ``:latest`` to a name that has neither tag nor digest."""
    return name if name.rfind(":") > name.rfind("/") else f"{name}:latest"


def _score(worth: Worth, images: ImageSet) -> int:
    containers, found = worth
    total = sum(size for name, size in found if name in images)
    if total <= MIN_BYTES:
        return 0
    most = MAX_BYTES_A_CONTAINER * containers
    return MAX_SCORE * (min(total, most) - MIN_BYTES) // (most - MIN_BYTES)
