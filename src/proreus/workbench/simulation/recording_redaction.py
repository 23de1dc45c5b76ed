"""Replaces names and labels in a recording of arrivals, by the rules for snapshots.

What a replacement is depends on how all texts sort, so the whole recording is read first: a live
process cannot redact what it records.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from proreus.base.errors import ConfigError
from proreus.insight.snapshots.object_files import decode_object
from proreus.insight.snapshots.recording import RecordedEvent, read_recording
from proreus.insight.snapshots.snapshot import encoded
from proreus.objects.meta import Resource
from proreus.workbench.simulation.redaction import Redaction, replacements_of

_LEVEL = 6
_GZIP_WINDOW = 31


def redact_recording(path: Path, output: Path, kept_labels: Iterable[str] = ()) -> int:
    """Write a recording with names and labels replaced; return how many events it has.

    ``kept_labels``: keys that stay, with their values. Raises ``ConfigError``.
    """
    header, events = read_recording(path)
    found = [(event, *_object_of(place, event)) for place, event in events]
    objects = [(resource, obj) for _, resource, obj in found if resource is not None]
    named = [text for event, _, _ in found for text in (*event.key.split("/"), event.node)]
    made = replacements_of(objects, kept_labels, named)

    def replace(text: str) -> str:
        return made.get(text, text)

    redaction = Redaction([obj for _, obj in objects], replace)

    lines = [msgspec.json.encode(msgspec.structs.replace(header, started_at=""))]
    for event, resource, obj in found:
        changed = event
        if resource is not None:
            raw = msgspec.Raw(encoded(resource, redaction.of(obj)))
            changed = msgspec.structs.replace(event, object=raw)
        else:
            key = "/".join(replace(part) for part in event.key.split("/"))
            changed = msgspec.structs.replace(event, key=key, node=replace(event.node))
        lines.append(msgspec.json.encode(changed))
    compress = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP_WINDOW)
    try:
        with output.open("wb") as file:
            for line in lines:
                file.write(compress.compress(line + b"\n"))
            file.write(compress.flush())
    except OSError as error:
        raise ConfigError(f"cannot write {output}: {error.strerror or error}") from error
    return len(found)


def _object_of(place: str, event: RecordedEvent) -> tuple[Resource[Any] | None, Any]:
    """Return the object of an event, (None, None) where it only names one."""
    if event.type not in ("ADDED", "MODIFIED"):
        return None, None
    return decode_object(event.object, place)
