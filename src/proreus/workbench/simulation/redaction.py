"""Replaces the texts of a cluster, so that its snapshot can be shown to others.

Every text is replaced unless it is a word of the Kubernetes API (``api_words.txt``), wherever it
is, so that a new field of the API is redacted from its first day. Equal texts get equal
replacements, everywhere, and replacements sort as their originals do: the scheduler compares names,
and breaks some ties by their order, but reads no meaning into them. So decisions stay the same.
Numbers stay (for Gt and Lt). Times are moved, all by as much; texts that nothing is decided by are
left out.

Two passes over typed objects: the first collects texts, the second replaces them. Where a text
consists of parts that stand alone elsewhere (an image's name and tag, a qualified name, a CEL
expression), each part is a text. A CEL function that looks inside of a text becomes a comparison
with all texts of devices for which it is true.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec

from proreus.base.feature_gate_table import gates_of, gates_of_other_components
from proreus.base.kubernetes_version import SUPPORTED_VERSIONS
from proreus.insight.snapshots.cluster_objects import ClusterObjects
from proreus.insight.snapshots.snapshot import KEPT_ANNOTATIONS
from proreus.objects.devices import Device
from proreus.objects.kinds import PODS
from proreus.objects.meta import Resource
from proreus.objects.resource_claims import CapacityRequirements

__all__ = ["Redaction", "is_meaningful", "redact", "replacements_for", "replacements_of"]

Replace = Callable[[str], str]

_NEWEST = datetime(2000, 1, 1, tzinfo=UTC)
"""The redacted form of the latest time of a cluster."""

_LEFT_OUT = frozenset(
    {
        *("resource_version", "finalizers", "message", "last_transition_time", "last_probe_time"),
        *("parameters",),
    }
)
"""Fields that nothing is decided by."""

_IMAGES = frozenset({"image", "reference", "names"})

_PREFIX_OF_CLASSES = "deviceclass.resource.kubernetes.io/"
_DIGITS = 7


def redact(objects: ClusterObjects, replacements: dict[str, str] | None = None) -> ClusterObjects:
    """Return the objects with all texts replaced; the same again for the same objects.

    ``replacements``: those of ``replacements_for``, which are computed if not given.
    """
    made = replacements_for(objects) if replacements is None else replacements
    redaction = Redaction([obj for _, obj in objects], lambda text: made.get(text, text))
    redacted = ClusterObjects(objects.version)
    for resource, obj in objects:
        redacted.put(resource, redaction.of(obj))
    return redacted


def replacements_for(objects: ClusterObjects, kept_labels: Iterable[str] = ()) -> dict[str, str]:
    """Return the replacement of each text in the objects that has no meaning of its own.

    ``kept_labels``: keys that stay with their values, since a configuration or a plugin names them;
    names of resources and schedulers too.
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
    kept |= {part for text in kept for part in text.split("/")}

    def collect(text: str) -> str:
        texts.add(text)
        return text

    collection = Redaction((), collect)
    for _, obj in objects:
        collection.of(obj)
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


class Redaction:
    """Replaces the texts of objects and moves their times.

    ``objects``: all that are to be redacted. ``replace`` returns the replacement of a text.
    """

    def __init__(self, objects: Iterable[Any], replace: Replace) -> None:
        self._replace = replace
        times: list[datetime] = []
        self._device_texts: set[str] = set()
        for obj in objects:
            for field, value in _leaves("", obj):
                if isinstance(value, datetime):
                    times.append(value)
                elif field in _DEVICE_TEXTS:
                    self._device_texts.add(value)
        self._moved = _NEWEST - max(times) if times else timedelta(0)

    def of(self, obj: Any) -> Any:
        """Return one object as it may be shown."""
        return self._value("", obj)

    def _value(self, field: str, value: Any) -> Any:
        match value:
            case msgspec.Struct():
                return self._struct(value)
            case str():
                return self._text(field, value)
            case dict() if field in _RESOURCE_LISTS:
                return {self._resource(key): self._value("", one) for key, one in value.items()}
            case dict():
                return {
                    self._key(field, key): self._value(field, one) for key, one in value.items()
                }
            case list() | tuple():
                return type(value)(self._value(field, one) for one in value)
            case datetime():
                return value + self._moved
            case msgspec.Raw():
                return msgspec.Raw(b"{}")
            case bytes():
                return b""
        return value

    def _struct(self, obj: Any) -> Any:
        changes = {}
        for field in type(obj).__struct_fields__:
            value = getattr(obj, field)
            place = _place(obj, field)
            new = type(value)() if field in _LEFT_OUT and value else self._value(place, value)
            if new is not value:
                changes[field] = new
        return msgspec.structs.replace(obj, **changes) if changes else obj

    def _key(self, field: str, key: Any) -> Any:
        if not isinstance(key, str):
            return key
        if field in _QUALIFIED:
            return self._qualified(key)
        return self._replace(key)

    def _text(self, field: str, text: str) -> str:
        if field == "expression":
            return _CEL_TOKEN.sub(self._cel_token, text)
        if field in _QUALIFIED:
            return self._qualified(text)
        if field in ("extended_resource_name", "resource_name"):
            return self._resource(text)
        if field in _IMAGES:
            return self._image(text)
        if field in ("version_value", "version_values"):
            return self._version(text)
        if field in ("request", "requests", "device"):
            return "/".join(map(self._replace, text.split("/")))
        if field == "annotations":
            return ",".join(map(self._replace, text.split(",")))
        return self._replace(text)

    def _qualified(self, name: str) -> str:
        """Replace ``gpu.example.com/model`` by parts: both stand alone in CEL expressions."""
        if is_meaningful(name):
            return name
        return "/".join(map(self._replace, name.split("/")))

    def _resource(self, name: str) -> str:
        """Return the name of a resource: configurations have them, and so they stay."""
        if name.startswith(_PREFIX_OF_CLASSES):
            return _PREFIX_OF_CLASSES + self._replace(name.removeprefix(_PREFIX_OF_CLASSES))
        return name

    def _version(self, version: str) -> str:
        numbers, dash, rest = version.partition("-")
        if not dash:
            return self._replace(version)
        return f"{self._replace(numbers)}-{self._replace(rest)}"

    def _cel_token(self, match: re.Match[str]) -> str:
        if match["comment"] or match["space"]:
            return " "
        if call := match["call"]:
            return self._cel_call(call, match["argument"])
        if name := match["name"]:
            return self._replace(name)
        if quoted := match["text"]:
            prefix, quote = match["prefix"] or "", match["quote"]
            inner = quoted[len(prefix) + len(quote) : -len(quote)]
            return f"{prefix}{quote}{self._qualified(inner)}{quote}"
        return match[0]

    def _cel_call(self, function: str, argument: str) -> str:
        try:
            matches = _CEL_FUNCTIONS[function](argument)
        except re.error:
            matches = _never
        found = (self._replace(text) for text in sorted(self._device_texts) if matches(text))
        # In brackets, whatever is no letter stands for itself. No replacement is a mere r.
        any_of = "|".join(re.sub(r"(\W)", r"[\1]", text) for text in found) or "r"
        return f'.matches("^(?:{any_of})$")'

    def _image(self, image: str) -> str:
        """Replace an image by name and tag; without a tag it means ``latest``, and keeps to it."""
        if not image:
            return image
        tagged = image.rfind(":") > image.rfind("/")
        name, tag = (
            (image[: image.rfind(":")], image[image.rfind(":") :]) if tagged else (image, "")
        )
        tag = tag if tag in ("", ":latest") else f":{self._replace(tag[1:])}"
        return f"{self._replace(name)}{tag}"


def _place(obj: Any, field: str) -> str:
    """Return the field, or another name for it where the field's name says too little."""
    if isinstance(obj, CapacityRequirements):
        return "capacity_requests"
    return "device_capacity" if isinstance(obj, Device) and field == "capacity" else field


_RESOURCE_LISTS = frozenset(
    {
        *("requests", "limits", "allocatable", "capacity", "overhead", "resources"),
        *("allocated_resources", "node_allocatable_resource_mappings"),
        *("node_allocatable_resources",),
    }
)
"""Fields with names of resources as keys, if they are maps."""

_QUALIFIED = frozenset(
    {
        *("attributes", "device_capacity", "capacity_requests", "consumed_capacity"),
        *("capacity_key", "match_attribute", "distinct_attribute"),
    }
)
"""Fields with names of attributes and capacities of devices, as text or as the keys of a map."""

_CEL_TOKEN = re.compile(
    r"""
    (?P<comment>//[^\n]*)
    | (?P<space>\s+)
    | \.\s*(?P<call>startsWith|endsWith|contains|matches)\s*
        \(\s*[rR]?(?P<mark>"|')(?P<argument>(?:(?!(?P=mark))[^\n])*)(?P=mark)\s*\)
    | (?P<text>(?P<prefix>[rRbB]{0,2})
        (?:(?P<quote>\"\"\"|'''|"|')(?:(?!(?P=quote))(?:\\.|[^\\]))*(?P=quote)))
    | (?P<number>\d[\w.]*)
    | (?P<name>[A-Za-z_]\w*)
    """,
    re.VERBOSE | re.DOTALL,
)


_CEL_FUNCTIONS: dict[str, Callable[[str], Callable[[str], Any]]] = {
    "startsWith": lambda part: lambda text: text.startswith(part),
    "endsWith": lambda part: lambda text: text.endswith(part),
    "contains": lambda part: lambda text: part in text,
    "matches": lambda pattern: re.compile(pattern).search,
}

_DEVICE_TEXTS = frozenset({"string_value", "string_values", "driver"})
"""Fields with inputs of expressions about devices."""


def _never(text: str) -> bool:
    return False


def _leaves(field: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the texts and times in a value, each with its field."""
    match value:
        case datetime() | str():
            yield field, value
        case msgspec.Struct():
            for name in type(value).__struct_fields__:
                yield from _leaves(name, getattr(value, name))
        case list() | tuple():
            for one in value:
                yield from _leaves(field, one)
        case dict():
            for one in value.values():
                yield from _leaves(field, one)


_WORDS = frozenset(
    word
    for line in Path(__file__).with_name("api_words.txt").read_text().splitlines()
    if not line.startswith("#")
    for word in line.split()
)
_PATTERNS = re.compile(
    # Numbers (for Gt and Lt), quantities, and versions as far as they are numbers.
    r"[+-]?\d*(?:\.\d+){0,2}(?:[eE][+-]?\d{1,3}|[numkMGTPE]|[KMGTPE]i)?"
    r"|hugepages-\d+[KMG]i|attachable-volumes-(?:aws-ebs|gce-pd|azure-disk|cinder)"
)


def is_meaningful(text: str) -> bool:
    """Return whether a text has a meaning to a scheduler, and says nothing about a cluster."""
    is_pattern = len(text) < _LONGEST and _PATTERNS.fullmatch(text) is not None
    return is_pattern or text in _WORDS or text in KEPT_ANNOTATIONS or text in _FEATURES


_LONGEST = 40
_FEATURES = frozenset(
    {"UserNamespacesHostNetworkSupport", "RestartAllContainersOnContainerExits"}.union(
        *(gates_of(version) for version in SUPPORTED_VERSIONS),
        *(gates_of_other_components(version) for version in SUPPORTED_VERSIONS),
    )
)
"""Names that nodes declare, and gates."""
