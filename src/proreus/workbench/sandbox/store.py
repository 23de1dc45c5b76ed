"""The storage of the sandbox, and the effect of each verb on it.

Nothing here waits, so there are no locks and no retries; optimistic concurrency only concerns
clients that read and write in two requests. What differs between kinds is in their
``RegistryStrategy`` (``strategies``, ``pods``), which the creator of the store passes in.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from proreus.base.clock import Clock, RealClock, rfc3339
from proreus.objects.meta import Resource
from proreus.workbench.sandbox.api_errors import already_exists, bad_request, not_found
from proreus.workbench.sandbox.collection import Collection, StoredObject
from proreus.workbench.sandbox.conversions import stored_path
from proreus.workbench.sandbox.metadata import (
    check_preconditions,
    check_type,
    generate_name,
    prepare_create,
    prepare_update,
    should_delete_during_update,
    spec_changed,
)
from proreus.workbench.sandbox.patch import MERGE_PATCH, apply_patch
from proreus.workbench.sandbox.resources import (
    Resources,
    ServedResource,
    StorageKey,
)
from proreus.workbench.sandbox.selectors import ALL, SelectionPredicate

JsonObject = dict[str, Any]
AnyResource = ServedResource | Resource[Any] | str

logger = logging.getLogger(__name__)

DEFAULT_HISTORY_BYTES = 96 * 1024 * 1024
EVENT_SECONDS = 3600.0
"""The life of Events: the default of kube-apiserver's ``--event-ttl``."""
SYSTEM_NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")


class RegistryStrategy:
    """The hooks in which kinds differ; these are the defaults, which do nothing.

    Hooks may alter ``obj`` (``new``) in place and raise ``StatusError``.
    """

    keeps_status_at_create = False

    def prepare_create(self, store: Store, served: ServedResource, obj: JsonObject) -> None:
        """Default and validate a new object with complete metadata."""

    def prepare_update(
        self,
        store: Store,
        served: ServedResource,
        new: JsonObject,
        old: JsonObject,
        subresource: str,
    ) -> None:
        """Validate an update, and restore fields that it must not change."""

    def grace_seconds(self, obj: JsonObject, wanted: int | None) -> int:
        """Return for how many seconds a deleted object remains; 0: it is removed at once.

        ``wanted``: the grace period of the request, or None.
        """
        return 0

    def after_write(self, store: Store, served: ServedResource, obj: JsonObject) -> None:
        """Act on an object that was created or updated."""

    def after_remove(self, store: Store, served: ServedResource, obj: JsonObject) -> None:
        """Act on an object that was removed."""


Strategies = Mapping[tuple[str, str], RegistryStrategy]
"""By (group, plural); ``("", "")`` is for all other kinds."""


class Store:
    """All objects of the sandbox. Methods raise ``StatusError`` where kube-apiserver would.

    A resource is given as a ``ServedResource``, an ``objects`` Resource, or by name (``"pods"``,
    ``"replicasets.apps"``). ``history_bytes`` bounds the history of each resource, from which
    watches can resume.
    """

    def __init__(
        self,
        strategies: Strategies,
        clock: Clock | None = None,
        history_bytes: int = DEFAULT_HISTORY_BYTES,
    ) -> None:
        self.resources = Resources()
        self._strategies = strategies
        self.clock = clock or RealClock()
        self.revision = 0
        """The resourceVersion of the latest change to any object."""
        self._history_bytes = history_bytes
        self._collections: dict[StorageKey, Collection] = {}
        for name in SYSTEM_NAMESPACES:
            self.create("namespaces", {"metadata": {"name": name}})
        for name, value in (
            ("system-cluster-critical", 2_000_000_000),
            ("system-node-critical", 2_000_001_000),
        ):
            priority_class = {"metadata": {"name": name}, "value": value}
            self.create("priorityclasses.scheduling.k8s.io", priority_class)

    def now(self) -> str:
        """Return the current time as metav1.Time encodes it."""
        return rfc3339(self.clock.now())

    # -- reading ---------------------------------------------------------------------------------

    def collection(self, resource: AnyResource) -> Collection:
        """Return the collection that stores the objects of a resource."""
        served = self.resources.find(resource)
        key = served.storage_key
        collection = self._collections.get(key)
        if collection is None:
            paths = tuple(stored_path(f) if key[1] == "events" else f for f in served.fields)
            collection = Collection(paths, self._history_bytes, self.revision)
            self._collections[key] = collection
        return collection

    def get(self, resource: AnyResource, name: str, namespace: str = "") -> StoredObject:
        """Return an object; raises ``StatusError`` 404."""
        served = self.resources.find(resource)
        version = self.collection(served).get(name, namespace)
        if version is None:
            raise not_found(served.name, name)
        return version

    def list(
        self,
        resource: AnyResource,
        namespace: str | None = None,
        selector: SelectionPredicate = ALL,
    ) -> list[StoredObject]:
        """Return the selected objects of a namespace (None: of all), sorted by key."""
        return self.collection(resource).select(namespace, selector)

    def expire_events(self) -> int:
        """Remove Events older than ``EVENT_SECONDS``; return how many."""
        oldest = rfc3339(self.clock.now() - EVENT_SECONDS)
        stale = []
        for events in self.collection("events").by_namespace():
            for version in events:  # in the order of their creation, so the first fresh one ends it
                obj = version.object()
                if obj["metadata"]["creationTimestamp"] >= oldest:
                    break
                stale.append(obj)
        for obj in stale:
            self.remove("events", obj)
        return len(stale)

    def compact(self) -> None:
        """Drop all history: a watch that resumes from an earlier resourceVersion gets 410."""
        for collection in self._collections.values():
            collection.compact(self.revision)

    # -- writing ---------------------------------------------------------------------------------

    def create(
        self,
        resource: AnyResource,
        obj: JsonObject,
        namespace: str = "",
        *,
        keep_status: bool = False,
        dry_run: bool = False,
    ) -> StoredObject:
        """Create an object. Its own namespace is used if none is given, or else "default".

        ``keep_status``: store the given status, which kube-apiserver drops. Parts of ``obj`` may
        be altered.
        """
        served = self.resources.find(resource)
        obj = check_type(served, obj)
        namespace = self._namespace_of(served, obj, namespace)
        generated = not (obj.get("metadata") or {}).get("name")
        obj["metadata"] = metadata = prepare_create(served, obj, namespace, self.now())
        collection = self.collection(served)
        while collection.get(metadata["name"], namespace) is not None:
            if not generated:
                raise already_exists(served.name, metadata["name"])
            metadata["name"] = generate_name(metadata["generateName"])
        strategy = self._strategy_of(served)
        if served.status and not keep_status and not strategy.keeps_status_at_create:
            obj.pop("status", None)
        strategy.prepare_create(self, served, obj)
        if served.to_storage is not None:
            obj = served.to_storage(obj)
        version = self._write(collection, obj, dry_run)
        if not dry_run:
            strategy.after_write(self, served, obj)
        return version

    def update(
        self,
        resource: AnyResource,
        obj: JsonObject,
        namespace: str = "",
        *,
        name: str = "",
        subresource: str = "",
        dry_run: bool = False,
    ) -> StoredObject:
        """Replace an object, or only its status with ``subresource="status"``."""
        served = self.resources.find(resource)
        obj = check_type(served, obj)
        obj["metadata"] = dict(obj.get("metadata") or {})
        namespace = self._namespace_of(served, obj, namespace, must_exist=False)
        name = name or obj["metadata"].get("name") or ""
        current = self.get(served, name, namespace)
        if served.to_storage is not None:
            obj = served.to_storage(obj)
        return self._replace(served, current, current.object(), obj, subresource, dry_run)

    def patch(
        self,
        resource: AnyResource,
        name: str,
        patch: Any,
        namespace: str = "",
        *,
        content_type: str = MERGE_PATCH,
        subresource: str = "",
        dry_run: bool = False,
    ) -> StoredObject:
        """Patch an object; a server-side apply creates it if it does not exist."""
        served = self.resources.find(resource)
        if content_type.startswith("application/apply-patch") and not subresource:
            found = self.collection(served).get(name, namespace)
            if found is None:
                return self.create(served, patch, namespace, dry_run=dry_run)
        current = self.get(served, name, namespace)
        old = current.object()
        new = apply_patch(content_type, served.shown(old), patch, served.custom)
        new["metadata"] = dict(new.get("metadata") or {})
        if served.to_storage is not None:
            new = served.to_storage(new)
        return self._replace(served, current, old, new, subresource, dry_run)

    def _replace(
        self,
        served: ServedResource,
        current: StoredObject,
        old: JsonObject,
        new: JsonObject,
        subresource: str,
        dry_run: bool,
    ) -> StoredObject:
        metadata = prepare_update(served, new["metadata"], old["metadata"])
        if subresource == "status":
            new = {**old, "status": new.get("status") or {}}
        elif served.status:
            new = {key: value for key, value in new.items() if key != "status"}
            if "status" in old:
                new["status"] = old["status"]
        new["metadata"] = metadata
        strategy = self._strategy_of(served)
        strategy.prepare_update(self, served, new, old, subresource)
        if new == old:
            return current
        if subresource != "status" and spec_changed(new, old):
            metadata["generation"] = metadata.get("generation", 0) + 1
        collection = self.collection(served)
        if should_delete_during_update(metadata) and not dry_run:
            return self.remove(served, new)
        version = self._write(collection, new, dry_run)
        if not dry_run:
            strategy.after_write(self, served, new)
        return version

    def write(self, resource: AnyResource, obj: JsonObject) -> StoredObject:
        """Store an object that was read in the same event-loop tick: no checks, no hooks."""
        return self._write(self.collection(resource), obj, False)

    def delete(
        self,
        resource: AnyResource,
        name: str,
        namespace: str = "",
        *,
        grace_seconds: int | None = None,
        preconditions: Mapping[str, str] | None = None,
        dry_run: bool = False,
    ) -> tuple[StoredObject, bool]:
        """Delete an object; return its last state, and whether it has been removed.

        With finalizers or a grace period it is only marked by ``deletionTimestamp``, until the last
        finalizer is removed or the kubelet has stopped the pod.
        """
        served = self.resources.find(resource)
        current = self.get(served, name, namespace)
        obj = current.object()
        metadata = obj["metadata"]
        if preconditions:
            check_preconditions(served, dict(preconditions), metadata)
        grace = self._strategy_of(served).grace_seconds(obj, grace_seconds)
        if grace == 0 and not metadata.get("finalizers"):
            if dry_run:
                return current, True
            return self.remove(served, obj), True
        if "deletionTimestamp" in metadata and grace >= metadata["deletionGracePeriodSeconds"]:
            return current, False
        metadata["deletionTimestamp"] = rfc3339(self.clock.now() + grace)
        metadata["deletionGracePeriodSeconds"] = grace
        metadata["generation"] = metadata.get("generation", 0) + 1
        return self._write(self.collection(served), obj, dry_run), False

    def remove(self, resource: AnyResource, obj: JsonObject) -> StoredObject:
        """Remove an object at once, regardless of finalizers and grace period."""
        served = self.resources.find(resource)
        self.revision += 1
        version = self.collection(served).remove(obj, self.revision)
        self._strategy_of(served).after_remove(self, served, obj)
        return version

    def _write(self, collection: Collection, obj: JsonObject, dry_run: bool) -> StoredObject:
        if dry_run:
            return collection.draft(obj, self.revision)
        self.revision += 1
        return collection.write(obj, self.revision)

    def _strategy_of(self, served: ServedResource) -> RegistryStrategy:
        return self._strategies.get((served.group, served.plural), self._strategies["", ""])

    def _namespace_of(
        self, served: ServedResource, obj: JsonObject, namespace: str, must_exist: bool = True
    ) -> str:
        given = (obj.get("metadata") or {}).get("namespace") or ""
        if not served.namespaced:
            return ""
        if namespace and given and namespace != given:
            raise bad_request(
                "the namespace of the provided object does not match the namespace sent on the "
                "request"
            )
        namespace = namespace or given or "default"
        if must_exist and self.collection("namespaces").get(namespace) is None:
            raise not_found("namespaces", namespace)
        return namespace
