"""All writes to the apiserver: bindings, pod status, deletions, and the writes of plugins.

Implements ``ApiWriter`` of ``framework/handle.py``. How a write is sent, retried and verified is in
``checked_writes``; this module has *what* is written, and how each write is recognized in the
object after its response was lost.
"""

import asyncio
import random
from typing import Any, Self, TypeVar

import msgspec
from msgspec import Struct

from proreus.base.errors import ApiError, Conflict, NotFound
from proreus.base.feature_gates import FeatureGates
from proreus.base.kubernetes_version import Change
from proreus.client.http.backoff import Backoff
from proreus.client.http.request_headers import MERGE_PATCH, PROTOBUF, STRATEGIC_MERGE_PATCH
from proreus.client.http.responses import ResponseLost, read_json, read_object
from proreus.client.http.session import ApiClient
from proreus.client.writing import protobuf_edits
from proreus.client.writing.checked_writes import (
    SERVER_ERRORS,
    CheckedWriter,
    Write,
    has_desired_state,
)
from proreus.client.writing.pod_patches import PodPatches, Target
from proreus.client.writing.rate_limiter import RateLimiter, no_rate_limit
from proreus.client.writing.request_window import RequestWindow
from proreus.objects.codec import DecodeError, decoder_for
from proreus.objects.kinds import PODS
from proreus.objects.meta import JsonObject, Resource
from proreus.objects.pod import Pod

T = TypeVar("T")

_encode = msgspec.json.Encoder().encode

_RETRIABLE_REASONS = frozenset(("InternalError", "ServiceUnavailable", "Unreachable"))
_RETRIABLE_STATUS_REASONS = _RETRIABLE_REASONS | {"Conflict"}
# A proxy in between may send a request twice: a 409 can then be caused by our own success.
_AMBIGUOUS_BIND_CODES = SERVER_ERRORS | {409}


class DispatcherOptions(Struct, frozen=True):
    """Limits. ``verify_…``: reads after a lost response. ``bind_…``, ``status_…``: attempts.

    ``retry_backoff_seconds``: before the second attempt; five times as long before each further.
    """

    verify_attempts: int = 5
    verify_backoff_seconds: tuple[float, float] = (0.1, 2.0)
    bind_tries: int = 1
    status_tries: int = 4
    retry_backoff_seconds: float = 0.01

    @classmethod
    def of(cls, gates: FeatureGates) -> Self:
        """Return the limits of the emulated version."""
        return cls(bind_tries=4 if gates.includes(Change.BINDING_RETRIED) else 1)


class Dispatcher:
    """Writes to one apiserver, from one event loop. All methods raise ``ApiError``."""

    def __init__(
        self,
        client: ApiClient,
        *,
        rate_limiter: RateLimiter | None = None,
        window: RequestWindow | None = None,
        options: DispatcherOptions | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self._options = options or DispatcherOptions()
        self._rng = rng or random.Random()
        self._fence = client.fence
        self._writer = CheckedWriter(
            client,
            rate_limiter or no_rate_limit(),
            window or RequestWindow(),
            verify_attempts=self._options.verify_attempts,
            verify_backoff_seconds=self._options.verify_backoff_seconds,
            rng=self._rng,
        )
        self._pod_patches = PodPatches(self._patch_status)

    # -- pods ----------------------------------------------------------------------------------

    async def bind(self, pod: Pod, node_name: str) -> None:
        """Bind a pod; return when it is certain that it is bound to ``node_name``.

        Raises ``Conflict`` if it is bound to another node, or if another pod has its name by now,
        ``NotFound`` if it has been deleted, another ``ApiError`` if the bind failed. After
        ``ResponseLost`` the pod may still turn out to be bound: the informer will then report it.

        From Kubernetes 1.37 on up to 4 attempts, like ``patch_pod_status``, but not on Conflict.
        """
        meta = pod.metadata
        namespace, name, uid = meta.namespace, meta.name, meta.uid
        path = PODS.path(namespace, name)
        # A patch of an earlier attempt (PodScheduled: False) that is still in flight must not
        # overtake the binding, which sets that condition to True.
        await self.wait_for_patches(pod)

        async def verify() -> bytes | None:
            body = await self._writer.read(path)
            found = read_object(body, Pod)
            if uid and found.metadata.uid != uid:
                fault = f"the UID in the precondition ({uid}) does not match the UID in record"
                raise _bind_conflict(name, f"{fault} ({found.metadata.uid})")
            if not found.spec.node_name:
                return None
            if found.spec.node_name == node_name:
                return body
            raise _bind_conflict(
                name, f'pod {name} is already assigned to node "{found.spec.node_name}"'
            )

        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": name, "namespace": namespace, "uid": uid},
            "target": {"kind": "Node", "name": node_name},
        }
        write = Write(
            "POST",
            f"{path}/binding",
            _encode(binding),
            verify,
            ambiguous_codes=_AMBIGUOUS_BIND_CODES,
        )
        # An attempt that has failed is known to have bound nothing: ``verify`` has looked.
        await self._write_with_retries(write, self._options.bind_tries, _RETRIABLE_REASONS)

    async def wait_for_patches(self, pod: Pod) -> None:
        """Return once the status patches of a pod that were requested before are done or dropped.

        For binds that are not ours (a BindPlugin, an extender); ``bind`` includes it. Raises
        ``NotLeading`` if this instance may not bind any more.
        """
        await self._pod_patches.wait(_target(pod))
        # Our own writes are fenced when they are sent; those of an extender we cannot fence.
        self._fence.check()

    async def patch_pod_status(self, pod: Pod, patch: JsonObject) -> None:
        """Apply a strategic merge patch ``{"status": …}``.

        Up to 4 attempts (after 10, 50 and 250 ms) on InternalError, ServiceUnavailable, Conflict
        and refused connections, as in kube-scheduler's PatchPodStatus. Patches of one pod are sent
        in their order; those that wait are merged. After a refusal, results of attempts are held
        for a while (``pod_patches``).
        """
        await self._pod_patches.patch(_target(pod), patch)

    async def _patch_status(self, path: str, patch: JsonObject) -> bytes:
        async def verify() -> bytes | None:
            found = await self._writer.read(path)
            return found if has_desired_state(patch, read_json(found)) else None

        write = Write(
            "PATCH", f"{path}/status", _encode(patch), verify, STRATEGIC_MERGE_PATCH, frozenset()
        )
        tries = self._options.status_tries
        return await self._write_with_retries(write, tries, _RETRIABLE_STATUS_REASONS)

    async def _write_with_retries(
        self, write: Write, tries: int, retriable_reasons: frozenset[str]
    ) -> bytes:
        """Write up to ``tries`` times, as long as it fails for one of these reasons."""
        backoff = None
        while True:
            tries -= 1
            try:
                return await self._writer.write(write)
            except ApiError as error:
                if not tries or error.reason not in retriable_reasons:
                    raise
            if backoff is None:
                first = self._options.retry_backoff_seconds
                backoff = Backoff(first, 10.0, factor=5.0, jitter=0.1, rng=self._rng)
            await asyncio.sleep(backoff.next())

    async def delete_pod(self, pod: Pod) -> None:
        """Delete a pod with its own grace period, without preconditions (as preemption does)."""
        path = PODS.path(pod.metadata.namespace, pod.metadata.name)
        await self._delete(path, {}, pod.metadata.uid)

    # -- any resource --------------------------------------------------------------------------

    async def get(self, resource: Resource[T], namespace: str, name: str) -> T:
        """Read one object."""
        return read_object(await self._writer.read(resource.path(namespace, name)), resource.type)

    async def list_all(self, resource: Resource[T], namespace: str = "") -> list[T]:
        """Read all objects of a resource (in one namespace) with one request."""
        body = await self._writer.read(resource.path(namespace))
        convert = decoder_for(resource.type).convert
        try:
            return [convert(item) for item in read_json(body).get("items") or ()]
        except DecodeError as error:
            raise ResponseLost(f"{resource.plural} cannot be read: {error}") from error

    async def create(
        self, resource: Resource[Any], obj: JsonObject, subresource: str = ""
    ) -> JsonObject:
        """Create an object, or a subresource of the object of that name; return the response.

        After a lost response, an object of this name with all fields of ``obj`` counts as ours.
        """
        meta = obj.get("metadata", {})
        namespace, name = meta.get("namespace", ""), meta.get("name", "")

        async def verify() -> bytes | None:
            # With generateName, or a subresource that stores nothing, no read can find the write.
            if not name or subresource:
                raise ResponseLost(f"it is unknown whether the {resource.kind} was created")
            try:
                found = await self._writer.read(resource.path(namespace, name))
            except NotFound:
                return None
            if has_desired_state(obj, read_json(found)):
                return found
            raise Conflict(409, "AlreadyExists", f'{resource.plural} "{name}" already exists')

        path = resource.path(namespace, name if subresource else "", subresource)
        return read_json(await self._writer.write(Write("POST", path, _encode(obj), verify)))

    async def update(
        self, resource: Resource[Any], obj: JsonObject, subresource: str = ""
    ) -> JsonObject:
        """Replace an object; raises ``Conflict`` if its resourceVersion is outdated."""
        meta = obj["metadata"]
        namespace, name = meta.get("namespace", ""), meta["name"]
        # A PUT ignores the status, and one of the status ignores the spec: the ignored part may
        # differ although the write was done.
        ignored = ("metadata", "spec" if subresource == "status" else "status")
        wanted = {key: value for key, value in obj.items() if key not in ignored}

        async def verify() -> bytes | None:
            found = await self._writer.read(resource.path(namespace, name))
            current = read_json(found)
            # The version that we replace is still there: the write was not done.
            if (current.get("metadata") or {}).get("resourceVersion") == meta.get(
                "resourceVersion"
            ):
                return None
            if has_desired_state(wanted, current):
                return found
            raise Conflict(
                409,
                "Conflict",
                f'Operation cannot be fulfilled on {resource.plural} "{name}": the object has been '
                "modified; please apply your changes to the latest version and try again",
            )

        path = resource.path(namespace, name, subresource)
        return read_json(await self._writer.write(Write("PUT", path, _encode(obj), verify)))

    async def patch(
        self,
        resource: Resource[Any],
        namespace: str,
        name: str,
        patch: JsonObject,
        subresource: str = "",
        content_type: str = MERGE_PATCH,
    ) -> JsonObject:
        """Apply a merge patch (or another, by ``content_type``); return the patched object."""

        async def verify() -> bytes | None:
            found = await self._writer.read(resource.path(namespace, name))
            return found if has_desired_state(patch, read_json(found)) else None

        path = resource.path(namespace, name, subresource)
        write = Write("PATCH", path, _encode(patch), verify, content_type)
        return read_json(await self._writer.write(write))

    async def patch_status(
        self, resource: Resource[Any], namespace: str, name: str, patch: JsonObject
    ) -> JsonObject:
        """Apply a strategic merge patch ``{"status": …}``; return the patched object.

        Retried like ``patch_pod_status``.
        """
        return read_json(await self._patch_status(resource.path(namespace, name), patch))

    async def add_finalizer(
        self, resource: Resource[Any], namespace: str, name: str, version: str, finalizer: str
    ) -> None:
        """Add a finalizer to an object without a change of its other bytes.

        For objects with opaque parameters, see ``protobuf_edits``. Raises ``Conflict`` if the
        object has another resourceVersion than ``version``.
        """
        path = resource.path(namespace, name)

        async def verify() -> bytes | None:
            found = _metadata(await self._writer.read(path))
            return b"" if finalizer in (found.get("finalizers") or ()) else None

        data = await self._writer.read(path, PROTOBUF)
        try:
            current = protobuf_edits.resource_version(data)
            body = protobuf_edits.add_finalizer(data, finalizer)
        except ValueError as error:
            raise ResponseLost(f"the apiserver's answer cannot be read: {error}") from error
        if current != version:
            raise Conflict(
                409, "Conflict", f'{resource.plural} "{name}" has been modified since it was read'
            )
        await self._writer.write(Write("PUT", path, body, verify, PROTOBUF))

    async def delete(
        self,
        resource: Resource[Any],
        namespace: str,
        name: str,
        uid: str = "",
        version: str = "",
    ) -> None:
        """Delete an object; only with this uid and this resourceVersion, if given.

        Returns once it is gone, or has a deletionTimestamp. Raises ``Conflict`` if it has another
        uid or version.
        """
        given = {"uid": uid, "resourceVersion": version}
        preconditions = {key: value for key, value in given.items() if value}
        options: JsonObject = {"preconditions": preconditions} if preconditions else {}
        await self._delete(resource.path(namespace, name), options, uid)

    async def _delete(self, path: str, options: JsonObject, uid: str) -> None:
        async def verify() -> bytes | None:
            try:
                meta = _metadata(await self._writer.read(path))
            except NotFound:
                return b""
            # Another uid: ours is gone, and a new object (the next pod of a StatefulSet) has its
            # name. A repeated DELETE would delete that one.
            gone = meta.get("deletionTimestamp") or (uid and meta.get("uid") != uid)
            return b"" if gone else None

        body = _encode({"kind": "DeleteOptions", "apiVersion": "v1", **options})
        await self._writer.write(Write("DELETE", path, body, verify))


def _target(pod: Pod) -> Target:
    return Target(PODS.path(pod.metadata.namespace, pod.metadata.name), pod.metadata.uid)


def _metadata(body: bytes) -> JsonObject:
    metadata = read_json(body).get("metadata")
    if not isinstance(metadata, dict):
        raise ResponseLost("the apiserver answered with an object that has no metadata")
    return metadata


def _bind_conflict(name: str, fault: str) -> Conflict:
    """Return a conflict with the apiserver's message."""
    return Conflict(
        409, "Conflict", f'Operation cannot be fulfilled on pods/binding "{name}": {fault}'
    )
