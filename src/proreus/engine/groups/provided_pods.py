"""Pods that plugins provide (``PodSourcePlugin``).

    handle.put_pod ─► ProvidedPods ─► the handlers of the pod informer
    queue, failure handler, cache comparer ─► ProvidedPods.with_stored ─► its pods, then the store's
    binding cycle, failure handler, preemption ─► ProvidedPodWrites ─► the plugin, or the apiserver

Only where a configuration enables such a plugin: otherwise none of these objects exists.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol, TypeVar, cast

from msgspec import to_builtins
from msgspec.structs import replace

from proreus.base.errors import NotFound
from proreus.engine.environment import Environment
from proreus.framework.handle import ApiWriter, EventRecorder
from proreus.framework.plugin import Plugin
from proreus.framework.pod_source import PodSourcePlugin, is_provided
from proreus.objects.kinds import PODS
from proreus.objects.meta import ApiObject, Resource, key_of
from proreus.objects.pod import Pod
from proreus.objects.scheduling import CompositePodGroup, PodGroup

T = TypeVar("T", bound=ApiObject)

PodChangeFn = Callable[[Pod | None, Pod | None], None]


class PodInformerHandlers(Protocol):
    """Handlers of the pod informer."""

    def on_add(self, pod: Pod) -> None:
        """A pod appeared."""
        ...

    def on_update(self, old: Pod, new: Pod) -> None:
        """A pod changed."""
        ...

    def on_delete(self, pod: Pod) -> None:
        """A pod is gone."""
        ...


class ProvidedPods:
    """The provided pods by ``namespace/name``, and the name of the plugin of each."""

    def __init__(self) -> None:
        self._pods: dict[str, Pod] = {}
        self._source_names: dict[str, str] = {}
        self._sources: dict[str, PodSourcePlugin] = {}
        """By name, those in force. A plugin is made for more than that: for a configuration that
        is refused then, or for one that is tried in the shadow and must not write."""
        self._handlers: PodInformerHandlers | None = None
        self._changed: list[PodChangeFn] = []

    def use(self, plugins: Iterable[Plugin]) -> None:
        """Let plugins answer for their pods from now on, in place of former ones of their names."""
        self._sources |= {one.name: one for one in plugins if isinstance(one, PodSourcePlugin)}

    def with_stored(self, pods: Mapping[str, Any]) -> Mapping[str, Pod]:
        """Return the stored and the provided pods."""
        # The store first: nearly all keys that are asked for are there.
        return ChainMap(cast(dict[str, Pod], pods), self._pods)

    def connect(self, handlers: PodInformerHandlers) -> None:
        """Report pods to these handlers, present ones as added."""
        self._handlers = handlers
        for pod in list(self._pods.values()):
            handlers.on_add(pod)

    def on_change(self, changed: PodChangeFn) -> Callable[[], None]:
        """Call ``changed(old, new)`` on each change, before the handlers; return its end.

        For present pods it is called at once. The result ends the calls.
        """
        self._changed.append(changed)
        for pod in list(self._pods.values()):
            changed(None, pod)

        def end() -> None:
            self._changed.remove(changed)

        return end

    def put(self, pod: Pod, source: PodSourcePlugin) -> None:
        """Add a pod, or its new version."""
        if not is_provided(pod):
            raise ValueError(
                f"the name of a pod that a plugin provides needs a slash: {key_of(pod)}"
            )
        key = key_of(pod)
        old, self._pods[key] = self._pods.get(key), pod
        self._source_names[key] = source.name
        if old == pod:
            return
        self._tell(old, pod)
        if self._handlers is None:
            return
        if old is None:
            self._handlers.on_add(pod)
        else:
            self._handlers.on_update(old, pod)

    def remove(self, key: str) -> None:
        """Remove a pod, if it is there."""
        pod = self._pods.pop(key, None)
        self._source_names.pop(key, None)
        if pod is not None:
            self._tell(pod, None)
            if self._handlers is not None:
                self._handlers.on_delete(pod)

    def _tell(self, old: Pod | None, new: Pod | None) -> None:
        for changed in list(self._changed):
            changed(old, new)

    def source_of(self, pod: Pod) -> PodSourcePlugin:
        """Return the plugin of a pod; raises ``NotFound``."""
        source = self._sources.get(self._source_names.get(key_of(pod), ""))
        if source is None:
            raise NotFound(404, "NotFound", f"pod {key_of(pod)} is no longer provided")
        return source

    def get(self, key: str) -> Pod | None:
        """Return a pod by ``namespace/name``."""
        return self._pods.get(key)


class ProvidedPodWrites:
    """An ``ApiWriter`` whose writes about provided pods go to their plugins."""

    def __init__(self, api: ApiWriter, provided: ProvidedPods) -> None:
        self._api = api
        self._provided = provided

    def __getattr__(self, name: str) -> Any:
        return getattr(self._api, name)

    async def bind(self, pod: Pod, node_name: str) -> None:
        """Create the pod's Binding."""
        if is_provided(pod):
            await self._provided.source_of(pod).bind_provided_pod(pod, node_name)
        else:
            await self._api.bind(pod, node_name)

    async def wait_for_patches(self, pod: Pod) -> None:
        """Return once all earlier patches of the pod's status are done."""
        if not is_provided(pod):
            await self._api.wait_for_patches(pod)

    async def patch_pod_status(self, pod: Pod, patch: dict[str, Any]) -> None:
        """Patch the pod's status."""
        if is_provided(pod):
            await self._provided.source_of(pod).patch_provided_pod_status(pod, patch)
        else:
            await self._api.patch_pod_status(pod, patch)

    async def patch(
        self,
        resource: Resource[Any],
        namespace: str,
        name: str,
        patch: dict[str, Any],
        subresource: str = "",
    ) -> dict[str, Any]:
        """Apply a merge patch; the pod as it was is returned where it is a provided one."""
        pod = self._find(resource, namespace, name)
        if pod is None:
            return await self._api.patch(resource, namespace, name, patch, subresource)
        source = self._provided.source_of(pod)
        if subresource == "status":
            await source.patch_provided_pod_status(pod, patch)
        else:
            await source.patch_provided_pod(pod, patch)
        return cast(dict[str, Any], to_builtins(pod))

    async def get(self, resource: Resource[T], namespace: str, name: str) -> T:
        """Read one object, or a provided pod."""
        pod = self._find(resource, namespace, name)
        if pod is None:
            return await self._api.get(resource, namespace, name)
        return cast(T, pod)

    def _find(self, resource: Resource[Any], namespace: str, name: str) -> Pod | None:
        return self._provided.get(f"{namespace}/{name}") if resource.id == PODS.id else None

    async def delete_pod(self, pod: Pod) -> None:
        """Delete a pod."""
        if is_provided(pod):
            await self._provided.source_of(pod).delete_provided_pod(pod)
        else:
            await self._api.delete_pod(pod)

    async def delete(
        self,
        resource: Resource[Any],
        namespace: str,
        name: str,
        uid: str = "",
        version: str = "",
    ) -> None:
        """Delete an object."""
        pod = self._find(resource, namespace, name)
        if pod is not None:
            await self.delete_pod(pod)
        else:
            await self._api.delete(resource, namespace, name, uid, version)


class RealPodEvents:
    """An ``EventRecorder`` that records nothing about provided pods."""

    def __init__(self, recorder: EventRecorder) -> None:
        self._recorder = recorder

    def __getattr__(self, name: str) -> Any:
        return getattr(self._recorder, name)

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
        """Record an Event, unless it regards a pod that the apiserver does not have."""
        if is_provided(regarding):
            return
        if isinstance(related, Pod) and is_provided(related):
            related = None
        self._recorder.event(regarding, event_type, reason, action, note, controller, related)


def with_provided_pods(environment: Environment, provided: ProvidedPods) -> Environment:
    """Return an environment in which writes about provided pods go to their plugins."""
    return replace(
        environment,
        api=cast(ApiWriter, ProvidedPodWrites(environment.api, provided)),
        event_recorder=cast(EventRecorder, RealPodEvents(environment.event_recorder)),
    )
