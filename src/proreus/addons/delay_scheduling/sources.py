"""Where pods without annotations would like to be: the sources of ``defaultSource``."""

from __future__ import annotations

from collections import OrderedDict
from typing import Protocol

import numpy as np

from proreus.addons.delay_scheduling.args import Source
from proreus.framework import BoolArray, Handle, NodeInfo, NodeTable, PodInfo
from proreus.objects import (
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    PODS,
    Pod,
    controller_of,
)
from proreus.objects.selectors import parse_node_selector

MOST_OWNERS = 100_000
MOST_NODES_AN_OWNER = 16
_MOST_IMAGES = 1024


class NodeSource(Protocol):
    """Finds the nodes that a pod prefers."""

    def preferred(self, pod: PodInfo, nodes: NodeTable) -> BoolArray:
        """Return the preferred nodes, by row of the table; none set: no preference."""
        ...


def source_of(name: Source, handle: Handle) -> NodeSource | None:
    """Return the source of a name; None for annotations alone."""
    match name:
        case "image":
            return ImageSource()
        case "pvc":
            return VolumeSource(handle)
        case "siblings":
            return SiblingSource(handle)
        case _:
            return None


class ImageSource:
    """Prefers the nodes that have all images of the pod's containers."""

    def __init__(self) -> None:
        self._generation = -1
        self._with_image: OrderedDict[str, BoolArray] = OrderedDict()

    def preferred(self, pod: PodInfo, nodes: NodeTable) -> BoolArray:
        """Return the nodes on which nothing has to be pulled."""
        if self._generation != nodes.nodes_generation:
            self._generation = nodes.nodes_generation
            self._with_image.clear()
        images = {container.image for container in pod.pod.spec.containers if container.image}
        found = np.full(len(nodes), bool(images), dtype=np.bool_)
        for image in images:
            found &= self._nodes_with(image, nodes)
        return found

    def _nodes_with(self, image: str, nodes: NodeTable) -> BoolArray:
        # Kubelets report names with their tag, and pods may leave ":latest" out.
        name = image if image.rfind(":") > image.rfind("/") else f"{image}:latest"
        if name not in self._with_image:
            self._with_image[name] = np.array(
                [_has_image(node, name) for node in nodes], dtype=np.bool_
            )
            if len(self._with_image) > _MOST_IMAGES:
                self._with_image.popitem(last=False)
        return self._with_image[name]


def _has_image(node: NodeInfo, name: str) -> bool:
    return node.node is not None and any(name in one.names for one in node.node.status.images)


class VolumeSource:
    """Prefers nodes where other pods use a claim of the pod; else those that its volume is near."""

    def __init__(self, handle: Handle) -> None:
        self._claims = handle.store(PERSISTENT_VOLUME_CLAIMS)
        self._volumes = handle.store(PERSISTENT_VOLUMES)

    def preferred(self, pod: PodInfo, nodes: NodeTable) -> BoolArray:
        """Return the nodes that a volume of the pod is used on, or else is accessible from."""
        found = np.zeros(len(nodes), dtype=np.bool_)
        namespace = pod.pod.metadata.namespace
        for volume in pod.pod.spec.volumes:
            if volume.persistent_volume_claim is None:
                continue
            key = f"{namespace}/{volume.persistent_volume_claim.claim_name}"
            used = np.array([key in node.pvc_ref_counts for node in nodes], dtype=np.bool_)
            found |= used if used.any() else self._accessible_from(key, nodes)
        return found

    def _accessible_from(self, key: str, nodes: NodeTable) -> BoolArray:
        claim = self._claims.get(key)
        volume = None if claim is None else self._volumes.get(claim.spec.volume_name)
        affinity = None if volume is None else volume.spec.node_affinity
        if affinity is None or affinity.required is None:
            return np.zeros(len(nodes), dtype=np.bool_)
        selector = parse_node_selector(affinity.required)
        return np.array([selector.matches(one.labels, one.name) for one in nodes], dtype=np.bool_)


class SiblingSource:
    """Prefers the nodes on which pods of the same controller ran lately, or run."""

    def __init__(self, handle: Handle) -> None:
        self._nodes_of: OrderedDict[str, OrderedDict[str, None]] = OrderedDict()
        """By UID of the controller, least recently used first; so are its nodes."""
        handle.on_change(PODS, self._pod_changed)

    def preferred(self, pod: PodInfo, nodes: NodeTable) -> BoolArray:
        """Return the nodes of siblings, as far as they are remembered."""
        found = np.zeros(len(nodes), dtype=np.bool_)
        owner = controller_of(pod.pod.metadata)
        if owner is not None:
            found[nodes.rows_of(self._nodes_of.get(owner.uid, ()))] = True
        return found

    def _pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        if new is None or not new.spec.node_name:
            return
        if old is not None and old.spec.node_name:
            return
        owner = controller_of(new.metadata)
        if owner is None:
            return
        node_names = self._nodes_of.setdefault(owner.uid, OrderedDict())
        self._nodes_of.move_to_end(owner.uid)
        node_names[new.spec.node_name] = None
        node_names.move_to_end(new.spec.node_name)
        if len(node_names) > MOST_NODES_AN_OWNER:
            node_names.popitem(last=False)
        if len(self._nodes_of) > MOST_OWNERS:
            self._nodes_of.popitem(last=False)
