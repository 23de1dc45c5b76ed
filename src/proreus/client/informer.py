"""What the cluster holds of one kind, and who is told of each change.

A change of the store and the calls of the handlers happen in the same tick, without an await in
between: whoever looks at the store between two awaits sees what the handlers have seen. All events
of one network chunk are handled in one go. While paused, nothing changes at all: what arrives
waits, in order, for ``resume`` (the scheduler pauses while an HTTP extender is asked).

No copy is made of any object, and none may be changed: they are frozen.
"""

import asyncio
import random
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

from proreus.client.connectivity import Connectivity
from proreus.client.object_faults import ObjectFaults
from proreus.client.reflector import Reflector, ReflectorOptions
from proreus.client.session import ApiClient
from proreus.client.watch import DELETED, Event, Unreadable, UnreadableEvent
from proreus.errors import ApiError, CacheCorrupted
from proreus.metrics import SchedulerMetrics
from proreus.objects.meta import ApiObject, Resource, key_of

T = TypeVar("T", bound=ApiObject)
S = TypeVar("S", contravariant=True)


FATAL = (CacheCorrupted, MemoryError)
"""Errors of handlers after which nothing that is known can be relied upon."""


class ResourceEventHandler(Protocol[S]):
    """Who is told. What a handler raises is logged, and the others are told all the same; only
    what is in ``FATAL`` ends the informer, and with it the process."""

    def on_add(self, obj: S) -> None:
        """An object is there that was not."""
        ...

    def on_update(self, old: S, new: S) -> None:
        """An object has another resourceVersion than before."""
        ...

    def on_delete(self, obj: S, final_state_unknown: bool) -> None:
        """An object is gone: as it was last, or, when its end was missed, as last seen."""
        ...


class Informer(Generic[T]):
    """Objects of one resource by key ("namespace/name" or "name"), kept in step with the apiserver.

    Invariants: each key in ``store`` was announced by on_add, and is withdrawn by on_delete before
    it is announced again; an object that was replaced by one of the same name but another uid is a
    delete and an add. ``synced`` is set once the first whole state was handled.
    """

    def __init__(
        self,
        client: ApiClient,
        resource: Resource[T],
        *,
        field_selector: str = "",
        label_selector: str = "",
        options: ReflectorOptions | None = None,
        on_error: Callable[[Resource[T], ApiError], None] | None = None,
        connectivity: Connectivity | None = None,
        metrics: SchedulerMetrics | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self.resource = resource
        self.store: dict[str, T] = {}
        self.synced = asyncio.Event()
        self._handlers: list[ResourceEventHandler[T]] = []
        self._batch_hooks: list[Callable[[], None]] = []
        self._paused = 0
        self._deferred: deque[Callable[[], None]] = deque()
        self._faults = ObjectFaults(resource.plural, metrics)
        self._reflector = Reflector(
            client,
            resource,
            self,
            field_selector=field_selector,
            label_selector=label_selector,
            options=options,
            on_error=on_error,
            connectivity=connectivity,
            faults=self._faults,
            rng=rng,
        )

    def add_handler(self, handler: ResourceEventHandler[T], *, first: bool = False) -> None:
        """Tell ``handler`` of what is there now, and of each change from now on.

        ``first``: before the handlers that were there already.
        """
        self._handlers.insert(0 if first else len(self._handlers), handler)
        for obj in self.store.values():
            try:
                handler.on_add(obj)
            except Exception as error:
                self._survive(handler, obj, error)

    def remove_handler(self, handler: ResourceEventHandler[T]) -> None:
        """Tell ``handler`` no more; not to be called while changes are handed out."""
        # another list, for one that is being walked through stays as it is
        self._handlers = [one for one in self._handlers if one is not handler]

    def add_batch_hook(self, hook: Callable[[], None]) -> None:
        """Call ``hook`` after each batch of changes (one network chunk), once all are handled."""
        self._batch_hooks.append(hook)

    async def run(self) -> None:
        """Keep in step until cancelled."""
        await self._reflector.run()

    def pause(self) -> None:
        """Let the world stand still; pauses nest."""
        self._paused += 1

    def resume(self) -> None:
        """End one pause; the last one delivers what has arrived meanwhile."""
        if self._paused == 0:
            raise RuntimeError(f"resume of {self.resource.plural} without a pause")
        self._paused -= 1
        while self._deferred and not self._paused:
            self._deferred.popleft()()

    def replace(self, objects: list[T], unreadable: Sequence[Unreadable] = ()) -> None:
        """Take the whole state (the reflector's call): handlers hear of the differences alone.

        What is unreadable and known stays as it was last read (see ``_outdate``).
        """
        if self._paused:
            self._deferred.append(partial(self.replace, objects, unreadable))
            return
        fresh = {key_of(obj): obj for obj in objects}
        there = {key_of(obj): obj for obj in unreadable}
        for key in [key for key in self.store if key not in fresh]:
            if (outdating := there.get(key)) is not None:
                self._outdate(key, outdating)
            else:
                self._remove(key, None)
        for key, obj in fresh.items():
            self._put(key, obj)
        self.synced.set()
        self._end_batch()

    def apply(self, events: list[Event[T]]) -> None:
        """Take changes in order (the reflector's call)."""
        if self._paused:
            self._deferred.append(partial(self.apply, events))
            return
        for event in events:
            if type(event) is UnreadableEvent:  # several times as fast as isinstance
                self._apply_unreadable(event)
                continue
            obj = event.object
            if event.type == DELETED:
                self._remove(key_of(obj), obj)
            else:
                self._put(key_of(obj), obj)
        self._end_batch()

    def _apply_unreadable(self, event: UnreadableEvent) -> None:
        key = key_of(event.object)
        if event.type == DELETED:
            self._remove(key, None)
        else:
            self._outdate(key, event.object)

    def _outdate(self, key: str, obj: Unreadable) -> None:
        """An object is there in a version that cannot be read: keep the last one that could be.

        It is nearer to the truth than that there is no such object. A pod's requests stay counted
        on its node and a claim's devices stay taken, so nothing is given away twice; and a write
        that was decided by an old version is refused by the apiserver, which knows the new one.
        Where the old version is of another object of that name, that one is gone.
        """
        old = self.store.get(key)
        if old is not None and obj.metadata.uid and old.metadata.uid != obj.metadata.uid:
            self._remove(key, None)

    def _put(self, key: str, obj: T) -> None:
        old = self.store.get(key)
        if old is None:
            self.store[key] = obj
            for handler in self._handlers:
                try:
                    handler.on_add(obj)
                except Exception as error:
                    self._survive(handler, obj, error)
        elif old.metadata.uid != obj.metadata.uid:
            self._remove(key, None)
            self._put(key, obj)
        elif old.metadata.resource_version != obj.metadata.resource_version:
            self.store[key] = obj
            for handler in self._handlers:
                try:
                    handler.on_update(old, obj)
                except Exception as error:
                    self._survive(handler, obj, error)

    def _remove(self, key: str, last: T | None) -> None:
        """Withdraw an object; ``last`` is its final state, or None when its end was missed."""
        old = self.store.pop(key, None)
        if old is None:
            return
        for handler in self._handlers:
            try:
                handler.on_delete(old if last is None else last, last is None)
            except Exception as error:
                self._survive(handler, old, error)

    def _survive(self, handler: ResourceEventHandler[T], obj: T, error: Exception) -> None:
        """Let an error of a handler be about that object alone, unless it is about everything."""
        if isinstance(error, FATAL):
            raise error
        self._faults.handler_failed(handler, obj, error)

    def _end_batch(self) -> None:
        for hook in self._batch_hooks:
            hook()


class InformerGroup:
    """The informers of a process, by kind: started, synced and paused together."""

    def __init__(self) -> None:
        self.by_kind: dict[str, Informer[Any]] = {}
        self._running: asyncio.TaskGroup | None = None

    def add(self, informer: Informer[Any]) -> None:
        """Take an informer in, one per kind; it starts at once if the others run."""
        kind = informer.resource.kind
        if kind in self.by_kind:
            raise ValueError(f"there is an informer of {kind} already")
        self.by_kind[kind] = informer
        if self._running is not None:
            self._start(kind, self._running)

    async def run(self) -> None:
        """Run all until cancelled, or until one fails."""
        async with asyncio.TaskGroup() as tasks:
            self._running = tasks
            for kind in self.by_kind:
                self._start(kind, tasks)

    def _start(self, kind: str, tasks: asyncio.TaskGroup) -> None:
        tasks.create_task(self.by_kind[kind].run(), name=f"informer {kind}")

    async def wait_for_sync(self) -> None:
        """Return once every informer holds the whole state of its kind."""
        for informer in list(self.by_kind.values()):
            await informer.synced.wait()

    @property
    def unsynced(self) -> list[str]:
        """Return the kinds that are still waited for."""
        return [kind for kind, informer in self.by_kind.items() if not informer.synced.is_set()]

    def pause(self) -> None:
        """Pause all."""
        for informer in self.by_kind.values():
            informer.pause()

    def resume(self) -> None:
        """Resume all."""
        for informer in self.by_kind.values():
            informer.resume()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Pause all for the length of a ``with`` block."""
        self.pause()
        try:
            yield
        finally:
            self.resume()
