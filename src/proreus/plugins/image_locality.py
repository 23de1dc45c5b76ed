"""ImageLocality: prefer nodes that have the pod's images already.

An image counts with its size on the node times the share of all nodes that have it, so that an
image on few nodes does not attract all pods to them. The share is part of the signature: shared
results are dropped when it changes.

Worked example: one container, its image of 500 MiB is on half of the nodes. There it counts as 250
MiB: 100 * (250 - 23) // (1000 - 23) = 23.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from proreus.base.bounded_cache import cleared_with_age
from proreus.base.kubernetes_version import Change
from proreus.framework.columns import NO_IMAGES, ImageSet, ImageStates
from proreus.framework.cycle_state import CycleState
from proreus.framework.handle import Handle
from proreus.framework.node_info import NodeInfo
from proreus.framework.node_table import NodeTable
from proreus.framework.plugin import MAX_SCORE, ScorePlugin
from proreus.framework.pod_info import PodInfo
from proreus.framework.verdicts import IntArray
from proreus.objects.pod import Pod

MEBIBYTE = 1024 * 1024
MIN_BYTES = 23 * MEBIBYTE
MAX_BYTES_AN_IMAGE = 1000 * MEBIBYTE

RequestedImages = tuple[int, tuple[tuple[str, float], ...]]
"""The number of images requested, and (image, share of nodes) of those that some node has."""

_NOTHING: RequestedImages = (0, ())


class ImageLocality(ScorePlugin):
    """Scores by the bytes that need not be pulled."""

    row_local = True
    looks_at_pods = False

    def __init__(self, args: Any, handle: Handle) -> None:
        super().__init__(args, handle)
        self._volumes_count = handle.feature_gates.includes(Change.IMAGE_VOLUMES_COUNT)

    def sign(self, pod: PodInfo) -> Hashable:
        """Sign the pod's images with the share of nodes that have them."""
        return self._requested_images(pod.pod)

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        """Score one node."""
        requested_images = self._requested_images(pod.pod)
        if requested_images is _NOTHING:
            return 0
        table = self.handle.nodes
        # A node of a fork has no set of images in the table; its images are read from the object.
        row = table.rows.get(node.name)
        if row is not None and table[row] is node:
            return _score(requested_images, table.image_sets.values[table.image_set[row]])
        return _score(requested_images, ImageStates().replace(NO_IMAGES, node.node))

    def score_all(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> IntArray | int:
        """Score all nodes."""
        requested_images = self._requested_images(pod.pod)
        if requested_images is _NOTHING:
            return 0
        codes, values = nodes.image_set, nodes.image_sets.values
        # A view of few rows: scoring only the sets that occur there is cheaper.
        if len(codes) >= len(values):
            return _scores(requested_images, values)[codes]
        present, where = np.unique(codes, return_inverse=True)
        return _scores(requested_images, [values[code] for code in present.tolist()])[where]

    def _requested_images(self, pod: Pod) -> RequestedImages:
        table, spec = self.handle.nodes, pod.spec
        known, total = table.images.num_nodes, table.size
        containers = spec.init_containers + spec.containers
        names = [normalized_image_name(container.image) for container in containers]
        for volume in spec.volumes:
            if volume.image is not None:
                names.append(normalized_image_name(volume.image.reference))
        found = tuple((name, known[name] / total) for name in names if name in known)
        # Up to 1.36 the threshold grew with containers alone.
        images = len(names) if self._volumes_count else len(containers)
        return (images, found) if found else _NOTHING


@cleared_with_age
@lru_cache(maxsize=8192)
def normalized_image_name(name: str) -> str:
    """Append ``:latest`` to a name that has neither tag nor digest."""
    return name if name.rfind(":") > name.rfind("/") else f"{name}:latest"


def _score(requested_images: RequestedImages, images: ImageSet) -> int:
    # Each product is truncated by itself, as in kube-scheduler.
    requested, found = requested_images
    total = sum(int(images[name] * share) for name, share in found if name in images)
    if total <= MIN_BYTES:
        return 0
    most = MAX_BYTES_AN_IMAGE * requested
    return MAX_SCORE * (min(total, most) - MIN_BYTES) // (most - MIN_BYTES)


def _scores(requested_images: RequestedImages, values: Sequence[ImageSet]) -> IntArray:
    """Return ``_score`` for each of many sets of images."""
    requested, found = requested_images
    total = np.zeros(len(values), dtype=np.int64)
    for name, share in found:
        sizes = np.array([images.get(name, 0) for images in values], dtype=np.int64)
        total += (sizes * share).astype(np.int64)
    most = MAX_BYTES_AN_IMAGE * requested
    scores = MAX_SCORE * (np.minimum(total, most) - MIN_BYTES) // (most - MIN_BYTES)
    return np.where(total <= MIN_BYTES, 0, scores)
