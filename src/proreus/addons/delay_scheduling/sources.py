"""The nodes that a pod prefers at each level.

Annotations come first: ``proreus.dev/prefer-nodes: a,b`` and ``proreus.dev/prefer-<level>: value``,
with several values separated by commas. A pod without them prefers the nodes of ``defaultSource``.
The place of a preferred node is preferred as well: its zone at the level of zones.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np

from proreus.addons.delay_scheduling.args import (
    NODE_NAME,
    DelaySchedulingArgs,
    LocalityLevel,
    Source,
)
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


PREFER_NODES = "proreus.dev/prefer-nodes"
PREFER = "proreus.dev/prefer-"

Preference = tuple[BoolArray, ...]
"""The preferred nodes at each level, by row of the table; no row without a preference there."""


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
        self._nodes_with = lru_cache(maxsize=_MOST_IMAGES)(_nodes_with)

    def preferred(self, pod: PodInfo, nodes: NodeTable) -> BoolArray:
        """Return the nodes that have all images of the pod."""
        images = {container.image for container in pod.pod.spec.containers if container.image}
        found = np.full(len(nodes), bool(images), dtype=np.bool_)
        for image in images:
            found &= self._nodes_with(image, nodes, nodes.nodes_generation)
        return found


def _nodes_with(image: str, nodes: NodeTable, generation: int) -> BoolArray:
    # Kubelets report names with their tag, and pods may leave ":latest" out.
    name = image if image.rfind(":") > image.rfind("/") else f"{image}:latest"
    return np.array([_has_image(node, name) for node in nodes], dtype=np.bool_)


def _has_image(node: NodeInfo, name: str) -> bool:
    return node.node is not None and any(name in one.names for one in node.node.status.images)


class VolumeSource:
    """Prefers nodes where other pods use a claim of the pod, else the ones near its volume."""

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


NodeSource = ImageSource | VolumeSource | SiblingSource


class Preferences:
    """Finds the preferred nodes of pods."""

    def __init__(self, args: DelaySchedulingArgs, source: NodeSource | None) -> None:
        """``source``: for pods without annotations, None if they have no preference."""
        self._levels = args.levels
        self._annotations = (PREFER_NODES, *(PREFER + level.name for level in args.levels))
        self._source = source

    def of(self, pod: PodInfo, nodes: NodeTable) -> Preference | None:
        """Return the preferred nodes at each level; None for a pod without preference."""
        annotations = pod.pod.metadata.annotations
        if any(key in annotations for key in self._annotations):
            preferred = np.zeros(len(nodes), dtype=np.bool_)
            preferred[nodes.rows_of(_values(annotations, PREFER_NODES))] = True
        elif self._source is None:
            return None
        else:
            preferred = self._source.preferred(pod, nodes)
        found = []
        for level in self._levels:
            values = _values(annotations, PREFER + level.name)
            # Each level is a part of the next one: its preferred nodes are preferred there too.
            preferred = preferred | _in_places(nodes, level, preferred, values)
            found.append(preferred)
        return tuple(found) if preferred.any() else None


def _in_places(
    nodes: NodeTable, level: LocalityLevel, preferred: BoolArray, values: Sequence[str]
) -> BoolArray:
    """Return the nodes with one of the values, or in a place that has a preferred node."""
    if level.key == NODE_NAME:
        named = np.zeros(len(nodes), dtype=np.bool_)
        named[nodes.rows_of(values)] = True
        return named
    codes, known = nodes.label(level.key), nodes.label_values(level.key).values
    # The last entry stands for nodes without the label, whose code is -1: they are in no place.
    wanted = np.array([*(value in values for value in known), False], dtype=np.bool_)
    wanted[codes[preferred]] = True
    wanted[-1] = False
    in_places: BoolArray = wanted[codes]
    return in_places


def _values(annotations: Mapping[str, str], key: str) -> list[str]:
    return [value for part in annotations.get(key, "").split(",") if (value := part.strip())]
