"""The informers of a process, one for each resource that the scheduler or a plugin reads.

Implements ``Stores`` of the scheduler's assembly and of the plugins' handles. Informers are created
while the scheduler is assembled, and started together later (client-go: SharedInformerFactory).
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Generic, TypeVar

from msgspec.structs import replace

from proreus.base.errors import ApiError
from proreus.base.kubernetes_version import DEFAULT_VERSION, Change, KubernetesVersion
from proreus.base.metrics import SchedulerMetrics
from proreus.client.http.connectivity import Connectivity
from proreus.client.http.session import ApiClient
from proreus.client.watching.informer import Informer, InformerGroup, ResourceEventHandler
from proreus.client.watching.reflector import ReflectorOptions
from proreus.objects.kinds import BY_KIND, PODS
from proreus.objects.meta import ApiObject, Resource

T = TypeVar("T", bound=ApiObject)

NON_TERMINAL_PODS = "status.phase!=Succeeded,status.phase!=Failed"
"""Terminated pods hold no resources: kube-scheduler's pod informer leaves them out too."""

_DIGITS_OF_VERSION = 15
"""The number of digits that a float holds exactly."""

_CUSTOM = ReflectorOptions(not_served_retry_seconds=30.0)
"""A CustomResourceDefinition may be installed at any time after the plugin that reads it."""


class InformerFactory:
    """Informers by ``Resource.id``, created on first use."""

    def __init__(
        self,
        client: ApiClient,
        on_error: Callable[[Resource[Any], ApiError], bool],
        types: Mapping[str, type] | None = None,
        metrics: SchedulerMetrics | None = None,
        kubernetes_version: KubernetesVersion = DEFAULT_VERSION,
    ) -> None:
        """``types``: by kind, the type to decode objects into instead of the resource's own.

        ``kubernetes_version``: decides which API version of a kind is watched.
        """
        self._kubernetes_version = kubernetes_version
        self.group = InformerGroup()
        self._client = client
        self._on_error = on_error
        self._connectivity = Connectivity()
        self._types = types or {}
        self._metrics = metrics
        if metrics is not None:
            metrics.informer_queued_items.set_function(self._queued_events)
            metrics.informer_store_resource_version.set_function(self._store_versions)

    def store(self, resource: Resource[T]) -> Mapping[str, T]:
        """Return the objects of a resource by key; the first call creates its informer."""
        return self._informer(resource).store

    def on_change(
        self, resource: Resource[T], handler: Callable[[T | None, T | None], None]
    ) -> Callable[[], None]:
        """Call ``handler(old, new)`` on each change, before the other handlers.

        It is called at once for each object that is in the store, with None for ``old``. Returns a
        function that removes the handler.
        """
        informer = self._informer(resource)
        function: _HandlerFunc[T] = _HandlerFunc(handler)
        informer.add_handler(function, first=True)
        return partial(informer.remove_handler, function)

    def add_handler(self, resource: Resource[T], handler: ResourceEventHandler[T]) -> None:
        """Report each change of a resource to a handler."""
        self._informer(resource).add_handler(handler)

    def _informer(self, resource: Resource[T]) -> Informer[T]:
        informer = self.group.by_kind.get(resource.id)
        if informer is None:
            selector = NON_TERMINAL_PODS if resource.path() == PODS.path() else ""
            if resource.id in self._types:
                resource = replace(resource, type=self._types[resource.id])
            informer = Informer(
                self._client,
                resource.as_of(self._kubernetes_version),
                field_selector=selector,
                options=_CUSTOM if resource.custom else None,
                on_error=self._on_error,
                connectivity=self._connectivity,
                metrics=self._metrics,
            )
            # As in kube-scheduler, informers of custom resources are not measured.
            if self._metrics is not None and resource.id in BY_KIND:
                labels = self._labels(informer)
                family = self._metrics.informer_processing_latency_seconds
                informer.time_events(family.labels(*labels))
            self.group.add(informer)
        return informer

    def _measured(self) -> list[Informer[Any]]:
        return [one for kind, one in self.group.by_kind.items() if kind in BY_KIND]

    def _queued_events(self) -> dict[tuple[str, ...], float]:
        return {self._labels(one): one.queued_events for one in self._measured()}

    def _store_versions(self) -> dict[tuple[str, ...], float]:
        return {
            self._labels(one): float(version[-_DIGITS_OF_VERSION:])
            for one in self._measured()
            if (version := one.store_version).isdecimal()
        }

    def _labels(self, informer: Informer[Any]) -> tuple[str, ...]:
        resource = informer.resource
        plurals = self._kubernetes_version.includes(Change.INFORMERS_NAMED_BY_PLURAL)
        name = resource.plural if plurals else f"{resource.kind.lower()}s"
        return ("kube-scheduler", resource.group, resource.version, name)


class _HandlerFunc(Generic[T]):
    """A function of (old, new) as an informer handler."""

    def __init__(self, function: Callable[[T | None, T | None], None]) -> None:
        self._function = function

    def on_add(self, obj: T) -> None:
        """Call the function for an added object."""
        self._function(None, obj)

    def on_update(self, old: T, new: T) -> None:
        """Call the function for a changed object."""
        self._function(old, new)

    def on_delete(self, obj: T, final_state_unknown: bool) -> None:
        """Call the function for a deleted object."""
        self._function(obj, None)
