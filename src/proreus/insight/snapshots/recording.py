"""Records arrivals and departures at a scheduler with their times, as gzipped JSON lines.

    {"recording": 1, "kubernetesVersion": "1.37", "startedAt": …}
    {"t": 0, "type": "ADDED", "object": {…}}              all objects that there are at the start
    {"t": 7.25, "type": "ADDED", "object": {…}}           a pod arrives
    {"t": 7.311, "type": "BOUND", "kind": "Pod", "key": "shop/web", "node": "n1"}
    {"t": 64, "type": "DELETED", "kind": "Pod", "key": "shop/web", "ended": true}

``t`` is in seconds since the start. ``ended``: the pod ended by itself. Secrets and env are left
out, as in a snapshot. What schedulers and controllers write (bindings of volumes, allocations) is
not recorded after the start: a replay has a scheduler and controllers of its own.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Literal, Protocol

import msgspec

from proreus.base import compressed_files
from proreus.base.clock import Clock, rfc3339
from proreus.base.errors import ConfigError
from proreus.base.kubernetes_version import KubernetesVersion
from proreus.base.logs import logger
from proreus.insight.snapshots.snapshot import encoded, without_secrets
from proreus.objects.kinds import BY_KIND, PODS
from proreus.objects.meta import ApiStruct, Resource, key_of
from proreus.objects.pod import Pod
from proreus.objects.resource_claims import RESOURCE_CLAIMS
from proreus.objects.storage import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES

log = logger(__name__)

FORMAT = 1
MAX_BYTES = 1024 * 1024 * 1024
"""The largest size of a recording: a forgotten one must not fill the disk."""

_FLUSH_SECONDS = 1.0
_LEVEL = 3
_GZIP_WINDOW = 31
_WRITTEN_BY_OTHERS = frozenset(
    {PERSISTENT_VOLUMES.kind, PERSISTENT_VOLUME_CLAIMS.kind, RESOURCE_CLAIMS.kind}
)
"""Kinds that schedulers and controllers update; a replay makes these updates itself."""


class RecordingHeader(ApiStruct, frozen=True):
    """The first line of a recording. ``recording`` is the version of the format."""

    recording: int = 0
    kubernetes_version: str = ""
    started_at: str = ""


class RecordedEvent(ApiStruct, frozen=True):
    """Any other line; ``object`` for ADDED and MODIFIED, the other fields for BOUND and DELETED."""

    t: float
    type: Literal["ADDED", "MODIFIED", "DELETED", "BOUND"]
    object: msgspec.Raw = msgspec.Raw(b"")
    kind: str = ""
    key: str = ""
    node: str = ""
    ended: bool = False


class ChangeSource(Protocol):
    """Reports every change of a resource, present objects at once (``InformerFactory``)."""

    def on_change(
        self, resource: Resource[Any], handler: Callable[[Any, Any], None]
    ) -> Callable[[], None]:
        """Call ``handler(old, new)`` on each change; return a function that ends that."""
        ...


class ArrivalRecorder:
    """Writes a recording. Lines are kept for a second and compressed and written in a thread.

    An error of the file ends the recording, and nothing else.
    """

    def __init__(self, path: Path, clock: Clock, max_bytes: int = MAX_BYTES) -> None:
        self._path = path
        self._clock = clock
        self._max_bytes = max_bytes
        self._lines: list[bytes] = []
        self._started: float | None = None
        """When all that there was had been recorded, in seconds of ``Clock.monotonic``."""
        self._ends: list[Callable[[], None]] = []
        self._compress = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP_WINDOW)
        self._written = 0

    def begin(
        self, source: ChangeSource, kinds: list[Resource[Any]], version: KubernetesVersion
    ) -> None:
        """Record the present objects, and every change from now on."""
        started_at = rfc3339(self._clock.now())
        header = RecordingHeader(
            recording=FORMAT, kubernetes_version=str(version), started_at=started_at
        )
        self._lines.append(msgspec.json.encode(header))
        for resource in sorted(kinds, key=lambda one: one.kind == PODS.kind):
            if resource.kind in BY_KIND:
                change = partial(self.changed, resource)
                self._ends.append(source.on_change(resource, change))
        self._started = self._clock.monotonic()

    async def run(self) -> None:
        """Write until cancelled, or until the file cannot be written or is too large."""
        try:
            with self._path.open("wb") as file:
                try:
                    while self._written < self._max_bytes:
                        await self._write_in_thread(file, self._take())
                        await asyncio.sleep(_FLUSH_SECONDS)
                    log.warning("The recording of arrivals is full", file=str(self._path))
                finally:
                    self._end()
                    self._write(file, self._take(), zlib.Z_FINISH)
        except OSError as error:
            log.error("Recording of arrivals ended", err=error, file=str(self._path))
        finally:
            self._end()

    async def _write_in_thread(self, file: BinaryIO, lines: list[bytes]) -> None:
        writing = asyncio.ensure_future(
            asyncio.to_thread(self._write, file, lines, zlib.Z_SYNC_FLUSH)
        )
        try:
            await asyncio.shield(writing)
        except asyncio.CancelledError:
            # The entries taken so far are written, and before the last lines.
            await writing
            raise

    def _end(self) -> None:
        ends, self._ends = self._ends, []
        for end in ends:
            end()

    def _take(self) -> list[bytes]:
        lines, self._lines = self._lines, []
        return lines

    def _write(self, file: BinaryIO, lines: list[bytes], mode: int) -> None:
        # Each line is complete: a process that is killed loses a second, not the whole file.
        data = b"".join(self._compress.compress(line + b"\n") for line in lines)
        data += self._compress.flush(mode) if lines or mode == zlib.Z_FINISH else b""
        if data:
            file.write(data)
            file.flush()
            self._written += len(data)

    # ---- events --------------------------------------------------------------------------------

    def changed(self, resource: Resource[Any], old: Any, new: Any) -> None:
        """Record a change of an object, if a replay would make use of it."""
        if new is None:
            self._deleted(resource, old)
        elif old is None or old.metadata.uid != new.metadata.uid:
            if old is not None:
                self._deleted(resource, old)
            self._put("ADDED", resource, new)
        elif resource.kind == PODS.kind:
            self._pod_changed(old, new)
        elif resource.kind not in _WRITTEN_BY_OTHERS and _differs(old, new):
            self._put("MODIFIED", resource, new)

    def _pod_changed(self, old: Pod, new: Pod) -> None:
        if new.spec.node_name and not old.spec.node_name:
            self._append(
                RecordedEvent(
                    t=self._now(),
                    type="BOUND",
                    kind=PODS.kind,
                    key=key_of(new),
                    node=new.spec.node_name,
                )
            )
        spec = msgspec.structs.replace(old.spec, node_name=new.spec.node_name)
        if spec != new.spec or old.metadata.labels != new.metadata.labels:
            self._put("MODIFIED", PODS, new)

    def _deleted(self, resource: Resource[Any], old: Any) -> None:
        ended = (
            resource.kind == PODS.kind
            and bool(old.spec.node_name)
            # Pods that end leave the watch without ever being deleted (NON_TERMINAL_PODS).
            and old.metadata.deletion_timestamp is None
        )
        self._append(
            RecordedEvent(
                t=self._now(), type="DELETED", kind=resource.kind, key=key_of(old), ended=ended
            )
        )

    def _put(self, type_: Literal["ADDED", "MODIFIED"], resource: Resource[Any], obj: Any) -> None:
        body = msgspec.Raw(encoded(resource, without_secrets(obj)))
        self._append(RecordedEvent(t=self._now(), type=type_, object=body))

    def _append(self, event: RecordedEvent) -> None:
        self._lines.append(msgspec.json.encode(event))

    def _now(self) -> float:
        # 0 tells what there was at the start from what came later, however long reporting it took.
        if self._started is None:
            return 0.0
        return max(round(self._clock.monotonic() - self._started, 3), 0.001)


def _differs(old: Any, new: Any) -> bool:
    """Return whether anything but versions and annotations is different."""
    replace = msgspec.structs.replace
    meta = replace(
        old.metadata,
        resource_version=new.metadata.resource_version,
        generation=new.metadata.generation,
        annotations=new.metadata.annotations,
    )
    return bool(replace(old, metadata=meta) != new)


# ---- reading -----------------------------------------------------------------------------------


def read_recording(path: Path) -> tuple[RecordingHeader, Iterator[tuple[str, RecordedEvent]]]:
    """Return the header of a recording, and its events with their places; raises ``ConfigError``.

    The iterator raises it too. A file whose end is missing, as after a crash, is read as far as it
    goes.
    """
    lines = compressed_files.lines(path, may_be_cut=True)
    _, first = next(lines, (0, b""))
    try:
        header = msgspec.json.decode(first, type=RecordingHeader)
    except msgspec.DecodeError:
        header = RecordingHeader()
    if header.recording != FORMAT:
        raise ConfigError(f"{path}: not a recording of proreus run --record-arrivals")
    return header, _events(path, lines)


def _events(path: Path, lines: Iterator[tuple[int, bytes]]) -> Iterator[tuple[str, RecordedEvent]]:
    decode = msgspec.json.Decoder(RecordedEvent).decode
    latest = 0.0
    for number, line in lines:
        place = f"{path}, line {number}"
        try:
            event = decode(line)
        except msgspec.DecodeError as error:
            raise ConfigError(f"{place}: {error}") from None
        if event.t < latest:
            raise ConfigError(f"{place}: t: {event.t} is before the line above")
        latest = event.t
        yield place, event
