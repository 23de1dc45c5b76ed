"""A local store of the objects of one resource, and the handlers notified of each change.

A change of the store and the calls of its handlers happen in the same tick of the event loop, with
no ``await`` in between: code that reads the store between two awaits sees the state that the
handlers have seen. All events of one network chunk are handled together. While an informer is
paused, its store does not change: what arrives is queued, in order, until ``resume`` (the scheduler
pauses while it waits for an HTTP extender).

Objects are passed on without a copy; they are frozen. The model is client-go's SharedIndexInformer.
"""

import asyncio
import random
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from time import perf_counter
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

from proreus.base.errors import ApiError, CacheCorrupted
from proreus.base.metrics import Histogram, SchedulerMetrics
from proreus.client.http.connectivity import Connectivity
from proreus.client.http.session import ApiClient
from proreus.client.watching.history_check import is_older
from proreus.client.watching.list_watch import ListWatch
from proreus.client.watching.object_faults import ObjectFaults
from proreus.client.watching.reflector import Reflector, ReflectorOptions
from proreus.client.watching.watch import DELETED, Event, Unreadable, UnreadableEvent
from proreus.objects.meta import ApiObject, Resource, key_of

T = TypeVar("T", bound=ApiObject)
S = TypeVar("S", contravariant=True)


FATAL = (CacheCorrupted, MemoryError)
"""Exceptions of handlers after which the state of the process cannot be trusted."""


class ResourceEventHandler(Protocol[S]):
    """Notified of each change.

    An exception of a handler is logged, and the other handlers are still called; only the types in
    ``FATAL`` end the informer, and with it the process.
    """

    def on_add(self, obj: S) -> None:
        """An object was added to the store."""
        ...

    def on_update(self, old: S, new: S) -> None:
        """An object was replaced by one of another resourceVersion."""
        ...

    def on_delete(self, obj: S, final_state_unknown: bool) -> None:
        """An object was deleted.

        ``obj`` is its final state or, if ``final_state_unknown`` (the DELETED event was missed),
        the last state seen.
        """
        ...


@runtime_checkable
class BulkHandler(Protocol[S]):
    """A ``ResourceEventHandler`` to which the many objects of a first list can be added at once."""

    def on_add_all(self, objects: Sequence[S]) -> None:
        """Handle a whole list of new objects as ``on_add`` handles each.

        If it raises, ``on_add`` is called for each after all, so that only those that it fails for
        are affected: what has been added by then may be added again.
        """
        ...


class Informer(Generic[T]):
    """The objects of one resource by key ("namespace/name" or "name"), in step with the apiserver.

    Invariants: handlers receive on_add for each key in ``store``, and on_delete before the next
    on_add of that key; an object that is replaced by one of the same name but another uid is
    reported as a delete and an add. ``synced`` is set once the first list has been handled.
    """

    def __init__(
        self,
        client: ApiClient,
        resource: Resource[T],
        *,
        field_selector: str = "",
        options: ReflectorOptions | None = None,
        on_error: Callable[[Resource[T], ApiError], bool] | None = None,
        connectivity: Connectivity | None = None,
        metrics: SchedulerMetrics | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self.resource = resource
        self.store: dict[str, T] = {}
        self.synced = asyncio.Event()
        self._handlers: list[ResourceEventHandler[T]] = []
        self._batch_hooks: list[Callable[[], None]] = []
        # Versions of aggregated APIs need not be comparable (KEP-5504).
        self._versions_compare = "." not in resource.group or resource.group.endswith(".k8s.io")
        self._paused = 0
        self._deferred: deque[tuple[int, Callable[[], None]]] = deque()
        self._version_when_paused = ""
        self._seconds_an_event: Histogram | None = None
        self.faults = ObjectFaults(resource.plural, metrics)
        self.list_watch = ListWatch(client, resource, field_selector)
        self._reflector = Reflector(
            self.list_watch,
            self,
            options=options,
            on_error=on_error,
            connectivity=connectivity,
            faults=self.faults,
            rng=rng,
        )

    def add_handler(self, handler: ResourceEventHandler[T], *, first: bool = False) -> None:
        """Call ``handler.on_add`` for the objects in the store, then report each change to it.

        ``first``: call it before the handlers that were added already.
        """
        self._handlers.insert(0 if first else len(self._handlers), handler)
        self._add_each(handler)

    def _add_each(self, handler: ResourceEventHandler[T]) -> None:
        for obj in self.store.values():
            try:
                handler.on_add(obj)
            except Exception as error:
                self._handle_error(handler, obj, error)

    def remove_handler(self, handler: ResourceEventHandler[T]) -> None:
        """Stop reporting changes to ``handler``; the one being delivered may still reach it."""
        # A new list: a handler may remove itself while the old one is being iterated over.
        self._handlers = [one for one in self._handlers if one is not handler]

    def add_batch_hook(self, hook: Callable[[], None]) -> None:
        """Call ``hook()`` after each batch of changes (one network chunk) has been handled."""
        self._batch_hooks.append(hook)

    async def run(self) -> None:
        """List and watch until cancelled."""
        await self._reflector.run()

    @property
    def connected(self) -> asyncio.Event:
        """Set while the store is in step with the apiserver: a watch is open."""
        return self._reflector.connected

    def pause(self) -> None:
        """Queue arriving events instead of applying them; pauses nest."""
        self._paused += 1

    def resume(self) -> None:
        """End one pause; the end of the last one handles the queued events."""
        if self._paused == 0:
            raise RuntimeError(f"resume of {self.resource.plural} without a pause")
        self._paused -= 1
        # A handler may pause again while the queue is drained: the rest then stays queued.
        while self._deferred and not self._paused:
            self._deferred.popleft()[1]()

    def replace(
        self, objects: list[T], unreadable: Sequence[Unreadable] = (), restored: bool = False
    ) -> None:
        """Replace the store with the result of a list (called by the reflector).

        Handlers are notified of the differences only. Objects in ``unreadable`` keep the last state
        that could be decoded (see ``_keep_outdated``). ``restored``: the list is of an earlier
        history than the store; an object that differs is then reported as a delete and an add.
        """
        if self._paused:
            self._defer(1, partial(self.replace, objects, unreadable, restored))
            return
        started = perf_counter()
        fresh = {key_of(obj): obj for obj in objects}
        undecoded = {key_of(obj): obj for obj in unreadable}
        # Deletions first: a deleted pod's resources must be free before additions are counted.
        for key in [key for key in self.store if key not in fresh]:
            if (obj_now := undecoded.get(key)) is not None:
                self._keep_outdated(key, obj_now)
            else:
                self._remove(key, None)
        # No update leads from one history to the other: immutable fields may differ (a pod that
        # was bound after the backup is unbound), and the same version may name two states.
        if restored:
            for key in [key for key, old in self.store.items() if old != fresh.get(key, old)]:
                self._remove(key, None)
        if not self.store and any(isinstance(one, BulkHandler) for one in self._handlers):
            self._fill(fresh)
        else:
            for key, obj in fresh.items():
                self._put(key, obj)
        self.synced.set()
        self._end_batch()
        self._observe(1, started)

    def apply(self, events: list[Event[T]]) -> None:
        """Apply watch events in order, but no outdated ones (called by the reflector)."""
        if self._paused:
            self._defer(len(events), partial(self.apply, events))
            return
        started = perf_counter()
        for event in events:
            if type(event) is UnreadableEvent:  # several times as fast as isinstance
                self._apply_unreadable(event)
                continue
            obj = event.object
            key = key_of(obj)
            # A stream that repeats itself, or begins earlier than we asked: an outdated event must
            # not undo later ones. A bound pod would become unbound, which ends the process.
            old = self.store.get(key) if self._versions_compare else None
            if old is not None and is_older(
                obj.metadata.resource_version, old.metadata.resource_version
            ):
                continue
            if event.type == DELETED:
                self._remove(key, obj)
            else:
                self._put(key, obj)
        self._end_batch()
        self._observe(len(events), started)

    def correct(self, key: str, seen: T | None, obj: T | None) -> None:
        """Apply the present state of an object whose event was lost (None: it does not exist).

        Does nothing if the store no longer has what the caller has ``seen`` there.
        """
        if self._paused:
            self._defer(1, partial(self.correct, key, seen, obj))
            return
        if self.store.get(key) is not seen:
            return
        if obj is None:
            self._remove(key, None)
        else:
            self._put(key, obj)
        self._end_batch()

    def _apply_unreadable(self, event: UnreadableEvent) -> None:
        key = key_of(event.object)
        if event.type == DELETED:
            self._remove(key, None)
        else:
            self._keep_outdated(key, event.object)

    def _keep_outdated(self, key: str, obj: Unreadable) -> None:
        """Keep the last decoded version of an object whose current one cannot be decoded.

        A stale object is safer than a missing one: a pod's requests stay counted on its node and a
        claim's devices stay allocated, so nothing is given away twice; a write based on the old
        version is rejected by the apiserver, which knows the new one.
        """
        old = self.store.get(key)
        # Another uid: the object that we hold was deleted, and another took its name.
        if old is not None and obj.metadata.uid and old.metadata.uid != obj.metadata.uid:
            self._remove(key, None)

    def _fill(self, objects: dict[str, T]) -> None:
        """Put objects into the store, which is empty, and notify one handler after another."""
        self.store.update(objects)
        for handler in self._handlers:
            if isinstance(handler, BulkHandler):
                try:
                    handler.on_add_all([*objects.values()])
                    continue
                except FATAL:
                    raise
                except Exception:  # which object it is about, on_add tells
                    pass
            self._add_each(handler)

    def _put(self, key: str, obj: T) -> None:
        old = self.store.get(key)
        if old is None:
            self.store[key] = obj
            for handler in self._handlers:
                try:
                    handler.on_add(obj)
                except Exception as error:
                    self._handle_error(handler, obj, error)
        elif old.metadata.uid != obj.metadata.uid:
            # Deleted and created anew between two lists: two objects for the handlers. What the
            # first held on its node must be released before the second is counted.
            self._remove(key, None)
            self._put(key, obj)
        elif old.metadata.resource_version != obj.metadata.resource_version:
            self.store[key] = obj
            for handler in self._handlers:
                try:
                    handler.on_update(old, obj)
                except Exception as error:
                    self._handle_error(handler, obj, error)

    def _remove(self, key: str, last: T | None) -> None:
        """Remove an object; ``last`` is its final state, None if the DELETED event was missed."""
        old = self.store.pop(key, None)
        if old is None:
            return
        for handler in self._handlers:
            try:
                handler.on_delete(old if last is None else last, last is None)
            except Exception as error:
                self._handle_error(handler, old, error)

    def _handle_error(self, handler: ResourceEventHandler[T], obj: T, error: Exception) -> None:
        """Log a handler's exception as one about this object, unless it is in ``FATAL``."""
        if isinstance(error, FATAL):
            raise error
        self.faults.handler_failed(handler, obj, error)

    def _defer(self, events: int, call: Callable[[], None]) -> None:
        if not self._deferred:
            self._version_when_paused = self._reflector.resource_version
        self._deferred.append((events, call))

    def time_events(self, seconds: Histogram) -> None:
        """Observe how long each event takes, from now on.

        The events of a network chunk count with their mean: a look at the clock for each would cost
        more than handling some of them does.
        """
        self._seconds_an_event = seconds

    def _observe(self, events: int, started: float) -> None:
        if self._seconds_an_event is not None and events:
            mean = (perf_counter() - started) / events
            self._seconds_an_event.observe_times(mean, events)

    @property
    def queued_events(self) -> int:
        """The number of events that have arrived and are not handled yet."""
        return sum(events for events, _ in self._deferred)

    @property
    def store_version(self) -> str:
        """The resourceVersion that the store is at; empty before the first list."""
        return self._version_when_paused if self._deferred else self._reflector.resource_version

    def _end_batch(self) -> None:
        for hook in self._batch_hooks:
            hook()


class InformerGroup:
    """The informers of a process, by ``Resource.id``: started, synced and paused together."""

    def __init__(self) -> None:
        self.by_kind: dict[str, Informer[Any]] = {}
        self._running: asyncio.TaskGroup | None = None

    def add(self, informer: Informer[Any]) -> None:
        """Add an informer, at most one per kind; it starts at once if the group is running."""
        kind = informer.resource.id
        if kind in self.by_kind:
            raise ValueError(f"there is an informer of {kind} already")
        self.by_kind[kind] = informer
        if self._running is not None:
            self._start(kind, self._running)

    async def run(self) -> None:
        """Run all informers until cancelled, or until one fails."""
        async with asyncio.TaskGroup() as tasks:
            self._running = tasks
            for kind in self.by_kind:
                self._start(kind, tasks)

    def _start(self, kind: str, tasks: asyncio.TaskGroup) -> None:
        tasks.create_task(self.by_kind[kind].run(), name=f"informer {kind}")

    async def wait_for_sync(self, kinds: Collection[str] | None = None) -> None:
        """Return once every informer, or each of ``kinds``, has handled its first list."""
        for kind, informer in list(self.by_kind.items()):
            if kinds is None or kind in kinds:
                await informer.synced.wait()

    async def wait_until_connected(self) -> None:
        """Return once every informer that has ever listed had an open watch since the call."""
        for informer in list(self.by_kind.values()):
            if informer.synced.is_set():
                await informer.connected.wait()

    @property
    def disconnected(self) -> list[str]:
        """The kinds that are not watched at the moment."""
        return [kind for kind, one in self.by_kind.items() if not one.connected.is_set()]

    @property
    def unsynced(self) -> list[str]:
        """The kinds whose informers have not handled their first lists yet."""
        return [kind for kind, informer in self.by_kind.items() if not informer.synced.is_set()]

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Pause all informers for the length of a ``with`` block."""
        # The present ones: nothing in the cycle reads informers that a reload adds meanwhile.
        informers = tuple(self.by_kind.values())
        for informer in informers:
            informer.pause()
        try:
            yield
        finally:
            for informer in informers:
                informer.resume()
