"""An API in memory: typed objects, informer handlers and writes.

Implements ``Stores`` and ``framework.handle.ApiWriter``. A write calls all handlers before it
returns, as if the watch had no delay.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any, TypeVar

import msgspec

from proreus.base.errors import Conflict, NotFound
from proreus.objects.codec import decoder_for, to_plain
from proreus.objects.kinds import BY_KIND, PODS
from proreus.objects.merge_patch import merge_patch
from proreus.objects.meta import Resource, key_of
from proreus.objects.pod import Pod, is_terminal
from proreus.objects.scheduling import CompositePodGroup, PodGroup

T = TypeVar("T")

JsonObject = dict[str, Any]


class InMemoryApi:
    """All objects of an offline cluster.

    ``hide_finished``: finished pods are deleted, as the field selector of the live watch makes them
    appear. ``deleted``: keys of the pods deleted by ``delete_pod``, in order. ``bound``: keys and
    nodes of the pods bound by ``bind``, in order.
    """

    def __init__(self, hide_finished: bool = True) -> None:
        self._hide_finished = hide_finished
        self._stores: dict[str, dict[str, Any]] = {}
        self._custom: dict[str, Resource[Any]] = {}
        self._unread: list[JsonObject] = []
        self._handlers: dict[str, list[Any]] = {}
        self._version = 0
        self.deleted: list[str] = []
        self.bound: list[tuple[str, str]] = []

    # ---- objects -------------------------------------------------------------------------------

    def add(self, obj: JsonObject) -> None:
        """Create or replace an object from plain data; raises ``KeyError`` for an unknown kind.

        Custom objects (their group has a dot) that nobody has read or watched yet are kept as they
        are until somebody does: their type is not known before.
        """
        resource = self._resource_of(obj)
        if resource is not None:
            for form in (resource, *self._views(resource)):
                self.put(form, decoder_for(form.type).convert(obj))
        elif "." in obj.get("apiVersion", "").rpartition("/")[0]:
            self._unread.append(obj)
        else:
            raise KeyError(obj["kind"])

    def _resource_of(self, obj: JsonObject) -> Resource[Any] | None:
        version, kind = obj.get("apiVersion", ""), obj["kind"]
        builtin = BY_KIND.get(kind)
        group = version.rpartition("/")[0]
        if builtin is not None and group in ("", builtin.group):
            return builtin
        for resource in self._custom.values():
            if resource.kind == kind and resource.api_version == version:
                return resource
        return None

    def _views(self, resource: Resource[Any]) -> list[Resource[Any]]:
        """Return resources that are the same objects, decoded into another type."""
        return [
            one
            for one in self._custom.values()
            if one is not resource and one.path() == resource.path()
        ]

    def put(self, resource: Resource[Any], obj: Any) -> None:
        """Create or replace a typed object."""
        self._note(resource)
        obj = self._stamped(obj)
        key = key_of(obj)
        store = self._stores.setdefault(resource.id, {})
        old = store.get(key)
        if self._hide_finished and isinstance(obj, Pod) and is_terminal(obj):
            if old is not None:
                self._remove(resource.id, key)
            return
        store[key] = obj
        for handler in self._handlers.get(resource.id, ()):
            if old is None:
                handler.on_add(obj)
            else:
                handler.on_update(old, obj)

    def merge(self, kind: str, key: str, patch: JsonObject) -> None:
        """Apply a JSON merge patch to an object, if it exists."""
        for form in self._forms(kind, key):
            self._merge(form, self._stores[form.id][key], patch)

    def _merge(self, resource: Resource[Any], obj: Any, patch: JsonObject) -> None:
        merged = merge_patch(to_plain(obj), patch)
        self.put(resource, decoder_for(resource.type).convert(merged))

    def remove(self, kind: str, key: str) -> None:
        """Delete an object, if it exists."""
        for form in self._forms(kind, key):
            self._remove(form.id, key)

    def _forms(self, kind: str, key: str) -> list[Resource[Any]]:
        """Return the resources of an object: the first of this kind that has it, and its views."""
        for resource in self.resources_of(kind):
            if key in self._stores.get(resource.id, {}):
                views = self._views(resource)
                return [resource, *(one for one in views if key in self._stores.get(one.id, {}))]
        return []

    def resources_of(self, kind: str) -> list[Resource[Any]]:
        """Return the resources with a kind of this name: custom ones, then kube-scheduler's."""
        builtin = BY_KIND.get(kind)
        found = [one for one in self._custom.values() if one.kind == kind]
        if builtin is None:
            return found
        return [*(one for one in found if one.path() != builtin.path()), builtin]

    def _remove(self, id_: str, key: str) -> None:
        old = self._stores[id_].pop(key)
        for handler in self._handlers.get(id_, ()):
            handler.on_delete(old, False)

    def _stamped(self, obj: Any) -> Any:
        """Return the object with a UID and a new resourceVersion."""
        self._version += 1
        meta = obj.metadata
        meta = msgspec.structs.replace(
            meta,
            resource_version=str(self._version),
            uid=meta.uid or f"{key_of(obj)}",
        )
        return msgspec.structs.replace(obj, metadata=meta)

    # ---- Stores --------------------------------------------------------------------------------

    def store(self, resource: Resource[T]) -> Mapping[str, T]:
        """Return the objects of a resource by key."""
        self._note(resource)
        return self._stores.setdefault(resource.id, {})

    def on_change(
        self, resource: Resource[T], handler: Callable[[T | None, T | None], None]
    ) -> Callable[[], None]:
        """Call ``handler(old, new)`` on each change of a resource, before other handlers.

        It is called at once for existing objects. Returns a function that removes the handler.
        """
        self._note(resource)
        function = SimpleNamespace(
            on_add=lambda obj: handler(None, obj),
            on_update=handler,
            on_delete=lambda obj, final_state_unknown: handler(obj, None),
        )
        for obj in self._stores.get(resource.id, {}).values():
            handler(None, obj)
        self._handlers[resource.id] = [function, *self._handlers.get(resource.id, ())]

        def end() -> None:
            # A new list, since the present one may be being iterated over.
            handlers = self._handlers[resource.id]
            self._handlers[resource.id] = [one for one in handlers if one is not function]

        return end

    def add_handler(self, resource: Resource[Any], handler: Any) -> None:
        """Call an informer handler on each change from now on."""
        self._note(resource)
        self._handlers.setdefault(resource.id, []).append(handler)

    def _note(self, resource: Resource[Any]) -> None:
        is_builtin = not resource.custom and resource.kind in BY_KIND
        if is_builtin or resource.id in self._custom:
            return
        self._custom[resource.id] = resource
        unread, self._unread = self._unread, []
        for obj in unread:
            self.add(obj)

    # ---- ApiWriter -----------------------------------------------------------------------------

    async def bind(self, pod: Pod, node_name: str) -> None:
        """Set the pod's node; raises ``Conflict`` if it has one."""
        live = self._live(pod)
        if live.spec.node_name:
            name, taken = live.metadata.name, live.spec.node_name
            fault = f'pod {name} is already assigned to node "{taken}"'
            text = f'Operation cannot be fulfilled on pods/binding "{name}": {fault}'
            raise Conflict(409, "Conflict", text)
        spec = msgspec.structs.replace(live.spec, node_name=node_name)
        status = msgspec.structs.replace(live.status, nominated_node_name="")
        self.bound.append((key_of(live), node_name))
        self.put(PODS, msgspec.structs.replace(live, spec=spec, status=status))

    async def wait_for_patches(self, pod: Pod) -> None:
        """Do nothing: writes are complete when they return."""

    async def patch_pod_status(self, pod: Pod, patch: JsonObject) -> None:
        """Apply a strategic merge patch to the pod's status: conditions merge by type."""
        self._patch_status(PODS, self._live(pod), patch)

    async def patch_status(
        self, resource: Resource[Any], namespace: str, name: str, patch: JsonObject
    ) -> JsonObject:
        """Apply a strategic merge patch to an object's status: conditions merge by type."""
        self._patch_status(resource, await self.get(resource, namespace, name), patch)
        return self._response(resource, {"namespace": namespace, "name": name})

    def _patch_status(self, resource: Resource[Any], live: Any, patch: JsonObject) -> None:
        status = dict(patch["status"])
        builtin = to_plain(live)
        merged: dict[str, JsonObject] = {
            condition["type"]: condition
            for condition in builtin.get("status", {}).get("conditions", ())
        }
        for condition in status.pop("conditions", ()):
            name = condition["type"]
            merged[name] = merge_patch(merged.get(name, {}), condition)
        status["conditions"] = list(merged.values())
        builtin = merge_patch(builtin, {"status": status})
        self.put(resource, decoder_for(resource.type).convert(builtin))

    async def delete_pod(self, pod: Pod) -> None:
        """Delete a pod without a grace period."""
        key = key_of(self._live(pod))
        self.deleted.append(key)
        self._remove("Pod", key)

    async def get(self, resource: Resource[T], namespace: str, name: str) -> T:
        """Return an object; raises ``NotFound``."""
        found: T = self._found(resource, {"namespace": namespace, "name": name})
        return found

    async def list_all(self, resource: Resource[T], namespace: str = "") -> list[T]:
        """Return all objects of a resource (in one namespace)."""
        self._note(resource)
        found = self._stores.get(resource.id, {}).values()
        return [obj for obj in found if not namespace or obj.metadata.namespace == namespace]

    async def create(
        self, resource: Resource[Any], obj: JsonObject, subresource: str = ""
    ) -> JsonObject:
        """Create an object; a number is appended to ``generateName``."""
        meta = obj["metadata"]
        if not meta.get("name"):
            meta = {**meta, "name": f"{meta.get('generateName', '')}{self._version}"}
        created = {**obj, "metadata": meta}
        self.put(resource, decoder_for(resource.type).convert(created))
        return self._response(resource, meta)

    async def update(
        self, resource: Resource[Any], obj: JsonObject, subresource: str = ""
    ) -> JsonObject:
        """Replace an object."""
        self._found(resource, obj["metadata"])
        self.put(resource, decoder_for(resource.type).convert(obj))
        return self._response(resource, obj["metadata"])

    async def patch(
        self,
        resource: Resource[Any],
        namespace: str,
        name: str,
        patch: JsonObject,
        subresource: str = "",
    ) -> JsonObject:
        """Apply a merge patch to an object."""
        meta = {"namespace": namespace, "name": name}
        live = self._found(resource, meta)
        expected = patch.get("metadata", {}).get("resourceVersion")
        if expected is not None and expected != live.metadata.resource_version:
            raise Conflict(409, "Conflict", f'{resource.plural} "{name}" has been modified')
        self._merge(resource, live, patch)
        return self._response(resource, meta)

    async def add_finalizer(
        self, resource: Resource[Any], namespace: str, name: str, version: str, finalizer: str
    ) -> None:
        """Add a finalizer; raises ``Conflict`` if the resourceVersion is not ``version``."""
        found = await self.get(resource, namespace, name)
        meta = found.metadata
        if meta.resource_version != version:
            raise Conflict(409, "Conflict", f'{resource.plural} "{name}" has been modified')
        finalizers = [*meta.finalizers, finalizer]
        patch = {"metadata": {"finalizers": finalizers}}
        await self.patch(resource, namespace, name, patch)

    async def delete(
        self,
        resource: Resource[Any],
        namespace: str,
        name: str,
        uid: str = "",
        version: str = "",
    ) -> None:
        """Delete an object; only with this uid and this resourceVersion, if given."""
        meta = {"namespace": namespace, "name": name}
        found = self._found(resource, meta).metadata
        if uid not in ("", found.uid) or version not in ("", found.resource_version):
            raise Conflict(409, "Conflict", f'the precondition for "{name}" does not hold')
        self._remove(resource.id, _key(meta))

    def _live(self, pod: Pod) -> Pod:
        live = self._stores.get("Pod", {}).get(key_of(pod))
        if live is None:
            raise NotFound(404, "NotFound", f'pods "{pod.metadata.name}" not found')
        assert isinstance(live, Pod)
        return live

    def _found(self, resource: Resource[Any], meta: JsonObject) -> Any:
        found = self._stores.get(resource.id, {}).get(_key(meta))
        if found is None:
            raise NotFound(404, "NotFound", f'{resource.plural} "{meta["name"]}" not found')
        return found

    def _response(self, resource: Resource[Any], meta: JsonObject) -> JsonObject:
        response: JsonObject = to_plain(self._found(resource, meta))
        return response | {"apiVersion": resource.api_version, "kind": resource.kind}


def _key(meta: JsonObject) -> str:
    namespace = meta.get("namespace")
    return f"{namespace}/{meta['name']}" if namespace else str(meta["name"])


class FakeRecorder:
    """Keeps Events in memory, newest last."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str, str]] = []
        """(pod key, reason, note)"""
        self.related: dict[tuple[str, str], str] = {}
        """(pod key, reason) -> key of the related object"""

    def event(
        self,
        regarding: Pod,
        event_type: str,
        reason: str,
        action: str,
        note: str,
        controller: str,
        related: Pod | PodGroup | CompositePodGroup | None = None,
    ) -> None:
        """Record an Event."""
        self.events.append((key_of(regarding), reason, note))
        if related is not None:
            self.related[key_of(regarding), reason] = key_of(related)
