"""Writes statuses that differ from their computed values.

    pods, objects ──► keys whose status may be another ──► compute ──► differs? ──► PATCH …/status

Level triggered: a status is computed from what is known now, whatever has happened in between, and
all of them once a minute, so that nothing depends on an event that was missed. A write names the
resourceVersion that it was computed from: it fails if somebody else has written since, and the
event of that write brings the object here again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from proreus.base import logs
from proreus.base.clock import rfc3339
from proreus.base.errors import ApiError, Conflict, NotFound, ProreusError
from proreus.client.http.request_headers import MERGE_PATCH
from proreus.client.http.responses import read_json
from proreus.client.http.session import ApiClient
from proreus.controller.controller_metrics import ControllerMetrics
from proreus.controller.pod_group_status import PodGroupStatuses, is_given_up
from proreus.controller.status_reconciler import StatusReconciler, WithStatus
from proreus.objects import Pod

log = logs.logger(__name__)

_BATCH_SECONDS = 0.1
"""Changes of the pods of a group come together: they are one write."""
_IN_PARALLEL = 8
_RETRY_SECONDS = 2.0
_RESYNC_SECONDS = 60.0

_Due = tuple[int, str]


class StatusWriter:
    """Follows pods and objects; ``run`` writes until it is cancelled.

    Pods are reported by an informer (``on_add`` and the like), objects by ``put`` and ``remove``,
    all on the event loop of ``run``.
    """

    def __init__(
        self,
        client: ApiClient,
        kinds: Sequence[StatusReconciler[Any]],
        metrics: ControllerMetrics,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._client = client
        self._kinds = kinds
        self._metrics = metrics
        self._now = now
        self._due: dict[_Due, None] = {}
        self._wake = asyncio.Event()
        self._not_kept: dict[_Due, tuple[str, Mapping[str, Any]]] = {}
        """By object: its uid, and the fields that the apiserver dropped from our last write, since
        the CustomResourceDefinition does not have them."""
        self._given_up: set[str] = set()
        """The uids of groups about which this process has recorded an Event."""
        metrics.statuses_due.set_function(lambda: {(): len(self._due)})

    # ---- reports -------------------------------------------------------------------------------

    def on_add(self, pod: Pod) -> None:
        """Note a pod."""
        for index, kind in enumerate(self._kinds):
            self._mark(index, kind.put_pod(pod))

    def on_update(self, old: Pod, new: Pod) -> None:
        """Note a pod's new version."""
        self.on_add(new)

    def on_delete(self, pod: Pod, final_state_unknown: bool) -> None:
        """Forget a pod."""
        for index, kind in enumerate(self._kinds):
            self._mark(index, kind.remove_pod(pod))

    def put(self, index: int, key: str, obj: WithStatus[Any]) -> None:
        """Note an object of the kind with an index."""
        self._mark(index, self._kinds[index].put(key, obj))

    def remove(self, index: int, key: str) -> None:
        """Forget an object."""
        self._not_kept.pop((index, key), None)
        kind = self._kinds[index]
        if (seen := kind.objects.get(key)) is not None:
            self._given_up.discard(seen.obj.metadata.uid)
        self._mark(index, kind.remove(key))

    def _mark(self, index: int, keys: Iterable[str]) -> None:
        for key in keys:
            self._due[index, key] = None
        if self._due:
            self._wake.set()

    # ---- writing -------------------------------------------------------------------------------

    async def run(self) -> None:
        """Write statuses until cancelled."""
        resync_at = time.monotonic() + _RESYNC_SECONDS
        while True:
            try:
                async with asyncio.timeout(max(0.0, resync_at - time.monotonic())):
                    await self._wake.wait()
            except TimeoutError:
                resync_at = time.monotonic() + _RESYNC_SECONDS
                for index, kind in enumerate(self._kinds):
                    self._mark(index, list(kind.objects))
            await asyncio.sleep(_BATCH_SECONDS)
            if not await self.write_due():
                await asyncio.sleep(_RETRY_SECONDS)

    async def write_due(self) -> bool:
        """Write the statuses that are due; return False if anything failed, and is due again."""
        due, self._due = list(self._due), {}
        self._wake.clear()
        failed = False
        for first in range(0, len(due), _IN_PARALLEL):
            part = due[first : first + _IN_PARALLEL]
            for one, done in zip(part, await asyncio.gather(*map(self._write, part)), strict=True):
                if not done:
                    self._mark(one[0], [one[1]])
                    failed = True
        return not failed

    async def _write(self, due: _Due) -> bool:
        """Bring one status up to date; return False if that has to be tried again."""
        index, key = due
        kind = self._kinds[index]
        seen = kind.objects.get(key)
        if seen is None:
            return True
        meta = seen.obj.metadata
        try:
            status = kind.status(key, self._now())
        except (ProreusError, ValueError) as error:
            # An invalid quantity or selector, which definitions let pass: others go on, and so
            # will this one once somebody has corrected it.
            log.warning("A status cannot be computed", object=key, err=str(error))
            self._metrics.status_writes_total.labels(kind.resource.plural, "error").inc()
            return True
        try:
            phase = str(status.get("phase", ""))
            if isinstance(kind, PodGroupStatuses) and is_given_up(seen.obj, phase, self._now()):
                await self._record_timeout(kind, seen)
            missing = self._difference(due, meta.uid, status, seen.status)
            if not missing:
                return True
            path = kind.resource.path(meta.namespace, meta.name, "status")
            version = {"uid": meta.uid, "resourceVersion": meta.resource_version}
            answer = read_json(await self._patch(path, {"metadata": version, "status": missing}))
        except NotFound:
            # Deleted; or the watch missed that, and the object is none of ours any more.
            self.remove(index, key)
            return True
        except Conflict:
            # Somebody else has written: the event of that write is on its way.
            self._metrics.status_writes_total.labels(kind.resource.plural, "conflict").inc()
            return True
        except ApiError as error:
            log.warning("A status could not be written", object=key, err=str(error))
            self._metrics.status_writes_total.labels(kind.resource.plural, "error").inc()
            return False
        self._metrics.status_writes_total.labels(kind.resource.plural, "written").inc()
        kept = answer.get("status") or {}
        dropped = {name: value for name, value in missing.items() if name not in kept}
        if dropped:
            self._not_kept[due] = meta.uid, dropped
        return True

    def _difference(
        self, due: _Due, uid: str, wanted: Mapping[str, Any], present: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return the fields that differ, without the ones that the apiserver drops."""
        known_uid, dropped = self._not_kept.get(due, ("", {}))
        fields = {
            name: _without_old_keys(value, present.get(name))
            for name, value in wanted.items()
            if present.get(name) != value and not (known_uid == uid and name in dropped)
        }
        # A count of nothing that was never written is no news.
        return {
            name: value
            for name, value in fields.items()
            if not (value in (0, [], {}) and not present.get(name))
        }

    async def _patch(self, path: str, body: Mapping[str, Any]) -> bytes:
        data = msgspec.json.encode(body)
        return await self._client.request("PATCH", path, data, content_type=MERGE_PATCH)

    async def _record_timeout(self, kind: StatusReconciler[Any], seen: WithStatus[Any]) -> None:
        """Record an Event that a group has waited for too long, once: its name is the group's."""
        meta = seen.obj.metadata
        if meta.uid in self._given_up:
            return
        stamp = rfc3339(self._now())
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"{meta.name}.{meta.uid}.timeout", "namespace": meta.namespace},
            "involvedObject": {
                "apiVersion": kind.resource.api_version,
                "kind": kind.resource.kind,
                "namespace": meta.namespace,
                "name": meta.name,
                "uid": meta.uid,
            },
            "type": "Warning",
            "reason": "Timeout",
            "message": "the group has not started within 48 hours",
            "source": {"component": "proreus-controller"},
            "firstTimestamp": stamp,
            "lastTimestamp": stamp,
            "count": 1,
        }
        path = f"/api/v1/namespaces/{meta.namespace}/events"
        try:
            await self._client.request("POST", path, msgspec.json.encode(event))
        except Conflict:
            log.v(4).info("The Event was recorded before", object=meta.name)
        self._given_up.add(meta.uid)


def _without_old_keys(value: Any, old: Any) -> Any:
    """Return a value for a merge patch: keys that are to go are null in it."""
    if isinstance(value, dict) and isinstance(old, dict):
        return dict.fromkeys(old.keys() - value.keys()) | value
    return value
