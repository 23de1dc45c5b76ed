"""The watched objects of a process: an informer for each kind that somebody asks for.

Implements what the scheduler's assembly and the plugins' handles call ``Stores``. Informers are
made while the scheduler is put together and started later, all at once.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Generic, TypeVar

from proreus.client.connectivity import Connectivity
from proreus.client.informer import Informer, InformerGroup, ResourceEventHandler
from proreus.client.session import ApiClient
from proreus.errors import ApiError
from proreus.metrics import SchedulerMetrics
from proreus.objects.kinds import PODS
from proreus.objects.meta import ApiObject, Resource

T = TypeVar("T", bound=ApiObject)

NON_TERMINAL_PODS = "status.phase!=Succeeded,status.phase!=Failed"
"""Finished pods hold nothing; for a scheduler they are gone."""


class InformerFactory:
    """Informers by kind, made on first use."""

    def __init__(
        self,
        client: ApiClient,
        on_error: Callable[[Resource[Any], ApiError], None],
        types: Mapping[str, type] | None = None,
        metrics: SchedulerMetrics | None = None,
    ) -> None:
        """``types``: by kind, what objects become instead of the resource's own type."""
        self.group = InformerGroup()
        self._client = client
        self._on_error = on_error
        self._connectivity = Connectivity()
        self._types = types or {}
        self._metrics = metrics

    def store(self, resource: Resource[T]) -> Mapping[str, T]:
        """Return the objects of a resource by key; the first call begins to watch it."""
        return self._informer(resource).store

    def on_change(
        self, resource: Resource[T], handler: Callable[[T | None, T | None], None]
    ) -> Callable[[], None]:
        """Call ``handler(old, new)`` on each change, before other handlers hear of it.

        What is there already is told of at once. Returns what ends all that.
        """
        informer = self._informer(resource)
        function: _HandlerFunc[T] = _HandlerFunc(handler)
        informer.add_handler(function, first=True)
        return partial(informer.remove_handler, function)

    def add_handler(self, resource: Resource[T], handler: ResourceEventHandler[T]) -> None:
        """Tell a handler of each change."""
        self._informer(resource).add_handler(handler)

    def _informer(self, resource: Resource[T]) -> Informer[T]:
        informer = self.group.by_kind.get(resource.kind)
        if informer is None:
            selector = NON_TERMINAL_PODS if resource.kind == PODS.kind else ""
            if resource.kind in self._types:
                resource = replace(resource, type=self._types[resource.kind])
            informer = Informer(
                self._client,
                resource,
                field_selector=selector,
                on_error=self._on_error,
                connectivity=self._connectivity,
                metrics=self._metrics,
            )
            self.group.add(informer)
        return informer


class _HandlerFunc(Generic[T]):
    """A function of (old, new) as an informer handler."""

    def __init__(self, function: Callable[[T | None, T | None], None]) -> None:
        self._function = function

    def on_add(self, obj: T) -> None:
        """Hand on an object that appeared."""
        self._function(None, obj)

    def on_update(self, old: T, new: T) -> None:
        """Hand on a change."""
        self._function(old, new)

    def on_delete(self, obj: T, final_state_unknown: bool) -> None:
        """Hand on the end of an object."""
        self._function(obj, None)
