"""Replaces names and labels of a cluster, so that its snapshot can be shown to strangers.

Equal texts get equal replacements, everywhere, and replacements sort as their originals do: the
scheduler compares names, and breaks some ties by their order, but reads no meaning into them. So
decisions stay the same. What has a meaning stays: texts of Kubernetes itself
(``topology.kubernetes.io/zone``, ``kube-system``), numbers (for Gt and Lt), names of resources,
drivers and device attributes (CEL expressions contain them), profiles, reasons.

Two passes over plain data: the first collects the texts in the places listed here, the second
replaces them there. Every other place is kept as it is, so a new field of the API has to be listed
here if it holds names: ``tests/unit/simulation/test_redaction.py`` looks for what is left.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from proreus.objects.codec import decoder_for, to_plain
from proreus.objects.kinds import PODS
from proreus.objects.meta import Resource
from proreus.simulation.cluster_objects import ClusterObjects

JsonObject = dict[str, Any]
Replace = Callable[[str], str]

_TEXT_FIELDS = frozenset(
    {
        # names of objects, and references to them
        *("uid", "name", "generateName", "namespace", "nodeName", "nominatedNodeName", "claimName"),
        *("volumeName", "storageClassName", "volumeAttributesClassName", "priorityClassName"),
        *("resourceClaimName", "resourceClaimTemplateName", "podGroupName"),
        *("parentCompositePodGroupName", "persistentVolumeName", "containerName", "pool"),
        # identities of volumes
        *("volumeHandle", "pdName", "volumeID", "iqn", "image", "diskName", "diskURI"),
        *("shareName", "reference"),
        # keys of labels and taints, and their values
        *("topologyKey", "key", "value"),
    }
)
"""Fields whose text is replaced."""

_LIST_FIELDS = frozenset(
    {
        "namespaces",
        "matchLabelKeys",
        "mismatchLabelKeys",
        "values",
        "names",
        "monitors",
        "containers",
    }
)
"""Fields whose list of texts is replaced."""

_MAP_FIELDS = frozenset({"labels", "matchLabels", "nodeSelector"})
"""Fields with a mapping, keys and values of which are replaced."""

_IMAGE_FIELDS = frozenset({"image", "reference", "names"})

_KEPT_SUBTREES = frozenset(
    {
        *("requests", "limits", "allocatable", "capacity", "ports", "drivers", "sharedCounters"),
        # of DeviceTaintRules and of what devices take of a node: see _of_devices
        *("taint", "mapping", "overhead"),
    }
)
"""Fields that are kept with all below them: amounts, ports, names of drivers and resources."""

KEPT_NAMES_OF = frozenset({"CSIDriver", "DeviceClass"})
"""Kinds whose names have a meaning to others; only their labels go."""

_MEANINGFUL = re.compile(
    r"(?:.*[./])?(?:kubernetes\.io|k8s\.io)/.*"  # labels, taints and classes of Kubernetes
    r"|(?:kube|system)-.*|default|metadata\.name"
    r"|[+-]?\d*"
    r"|true|false"
    r"|amd64|arm64|linux|windows"
)
_DIGITS = 7


def redact(objects: ClusterObjects, replacements: dict[str, str] | None = None) -> ClusterObjects:
    """Return the objects with names and labels replaced; the same again for the same objects.

    ``replacements``: those of ``replacements_for``, which are computed if not given.
    """
    made = replacements_for(objects) if replacements is None else replacements
    redacted = ClusterObjects(objects.version)
    for resource, obj in objects:
        redacted.put(resource, redacted_object(resource, obj, lambda text: made.get(text, text)))
    return redacted


def redacted_object(resource: Resource[Any], obj: Any, replace: Replace) -> Any:
    """Return one object with its texts replaced."""
    return decoder_for(resource.type).convert(_of_object(resource, to_plain(obj), replace))


def replacements_for(objects: ClusterObjects, kept_labels: Iterable[str] = ()) -> dict[str, str]:
    """Return the replacement of each text in the objects that has no meaning of its own.

    ``kept_labels``: keys that stay with their values, since a configuration or a plugin names them.
    """
    return replacements_of(list(objects), kept_labels)


def replacements_of(
    objects: Sequence[tuple[Resource[Any], Any]],
    kept_labels: Iterable[str] = (),
    more: Iterable[str] = (),
) -> dict[str, str]:
    """Return the same for objects of which there may be several versions, and ``more`` names."""
    texts = {*more}
    kept = {*kept_labels}
    kept |= {
        obj.metadata.labels[key] for key in kept for _, obj in objects if key in obj.metadata.labels
    }

    def collect(text: str) -> str:
        texts.add(text)
        return text

    for resource, obj in objects:
        _of_object(resource, to_plain(obj), collect)
    replacements = {
        text: f"r{number:0{_DIGITS}}"
        for number, text in enumerate(
            sorted(text for text in texts if text not in kept and not is_meaningful(text))
        )
    }
    # The claim of an ephemeral volume is found by a name that is made of two others.
    for pod in (obj for resource, obj in objects if resource.kind == PODS.kind):
        for volume in pod.spec.volumes:
            if volume.ephemeral is not None:
                name, part = pod.metadata.name, volume.name
                replacements[f"{name}-{part}"] = "-".join(
                    replacements.get(text, text) for text in (name, part)
                )
    return replacements


def is_meaningful(text: str) -> bool:
    """Return whether a text has a meaning to a scheduler, and is kept."""
    return _MEANINGFUL.fullmatch(text) is not None


def _of_object(resource: Resource[Any], obj: JsonObject, replace: Replace) -> JsonObject:
    if resource.kind in KEPT_NAMES_OF:
        metadata = {**obj["metadata"], "labels": {}, "annotations": {}, "ownerReferences": []}
        return {**obj, "metadata": metadata}
    made = _of_fields(obj, replace)
    metadata = obj.get("metadata") or {}
    made["metadata"] = {
        **_of_fields(metadata, replace),
        "annotations": {
            key: replace(value) for key, value in (metadata.get("annotations") or {}).items()
        },
    }
    # Messages repeat names in sentences; nothing is decided by them.
    conditions = (made.get("status") or {}).get("conditions")
    if conditions:
        cleared = [{**one, "message": ""} for one in conditions]
        made["status"] = {**made["status"], "conditions": cleared}
    return made


def _of_fields(obj: JsonObject, replace: Replace) -> JsonObject:
    return {field: _of_field(field, value, replace) for field, value in obj.items()}


def _of_field(field: str, value: Any, replace: Replace) -> Any:
    if field in _KEPT_SUBTREES:
        return value
    if field == "devices":
        return _of_devices(value, replace)
    if isinstance(value, str):
        if field in _IMAGE_FIELDS:
            return _image(value, replace)
        return replace(value) if field in _TEXT_FIELDS else value
    if isinstance(value, dict):
        if field == "disruptedPods":
            return {replace(name): time for name, time in value.items()}
        if field in _MAP_FIELDS | {"selector"} and _is_plain_map(value):
            return {
                replace(key): replace(one) if isinstance(one, str) else one
                for key, one in value.items()
            }
        return _of_fields(value, replace)
    if isinstance(value, list | tuple):
        # Containers of pods are objects, those of claims' statuses are names.
        if field in _LIST_FIELDS and not (value and isinstance(value[0], dict)):
            each = _image if field in _IMAGE_FIELDS else _text
            return [each(one, replace) for one in value]
        return [_of_fields(one, replace) if isinstance(one, dict) else one for one in value]
    return value


def _is_plain_map(selector: JsonObject) -> bool:
    """Return whether it has labels (a Service's, a pod's nodeSelector) where others have fields."""
    return not {"matchLabels", "matchExpressions", "nodeSelectorTerms"} & selector.keys()


def _of_devices(value: Any, replace: Replace) -> Any:
    """Replace the names of pools and nodes: device names and requests are in CEL expressions."""
    if isinstance(value, list | tuple):
        return [_of_devices(one, replace) for one in value]
    if not isinstance(value, dict):
        return value
    made: JsonObject = {}
    for field, one in value.items():
        if field in ("pool", "nodeName"):
            made[field] = replace(one)
        elif field == "nodeSelector":
            made[field] = _of_fields(one, replace)
        elif field == "results":
            made[field] = _of_devices(one, replace)
        else:
            made[field] = one
    return made


def _text(text: Any, replace: Replace) -> Any:
    return replace(text) if isinstance(text, str) else text


def _image(image: Any, replace: Replace) -> Any:
    """Replace an image by name; a name without a tag means the tag ``latest``, and keeps to it."""
    if not isinstance(image, str) or not image:
        return image
    tagged = image.rfind(":") > image.rfind("/")
    name, tag = (image[: image.rfind(":")], image[image.rfind(":") :]) if tagged else (image, "")
    return f"{replace(name)}{_tag(tag, replace)}"


def _tag(tag: str, replace: Replace) -> str:
    return tag if tag in ("", ":latest") else f":{replace(tag[1:])}"
