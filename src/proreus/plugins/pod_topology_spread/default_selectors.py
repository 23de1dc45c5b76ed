"""The selector of default constraints, deduced from a pod's services and its owner.

Services are found by the pod's labels in an index. A selector is cached for pods with the same
labels and owner until any service or owner changes.

Worked example: a pod with the labels ``app=web, tier=front`` of a ReplicaSet that selects
``app=web``; a Service selects ``tier=front``. The selector is ``tier=front, app=web``.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Any

from proreus.base.bounded_cache import BYTES_AN_ENTRY, BoundedCache, approximate_size
from proreus.framework.handle import Handle
from proreus.framework.selector_index import LabelNeeds, SelectorIndex
from proreus.objects.meta import OwnerReference, controller_of, key_of
from proreus.objects.pod import Pod
from proreus.objects.selectors import (
    NOTHING,
    Selector,
    SelectorError,
    parse_label_selector,
    selector_of_map,
)
from proreus.objects.workloads import (
    REPLICA_SETS,
    REPLICATION_CONTROLLERS,
    SERVICES,
    STATEFUL_SETS,
    ReplicaSet,
    Service,
    StatefulSet,
)

_EMPTY = selector_of_map({})


class DefaultSelectors:
    """Deduces selectors (kube-scheduler's ``DefaultSelector``)."""

    # Invariant: the cached selectors are deduced from the present objects.

    def __init__(self, handle: Handle) -> None:
        self._services: dict[str, SelectorIndex[str]] = {}
        self._service_maps: dict[str, dict[str, str]] = {}
        self._cache: BoundedCache[object, Selector] = BoundedCache(16 * 2**20)
        self._replication_controllers = handle.store(REPLICATION_CONTROLLERS)
        replica_sets, stateful_sets = handle.store(REPLICA_SETS), handle.store(STATEFUL_SETS)
        self._controllers: dict[tuple[str, str], Mapping[str, ReplicaSet | StatefulSet]] = {
            ("apps/v1", "ReplicaSet"): replica_sets,
            ("apps/v1", "StatefulSet"): stateful_sets,
        }
        handle.on_change(SERVICES, self._service_changed)
        handle.on_change(REPLICATION_CONTROLLERS, self._owner_changed)
        handle.on_change(REPLICA_SETS, self._owner_changed)
        handle.on_change(STATEFUL_SETS, self._owner_changed)

    def of(self, pod: Pod) -> Selector:
        """Return the selector for a pod; the empty one if nothing selects it."""
        meta = pod.metadata
        owner = controller_of(meta) if meta.owner_references else None
        if owner is None and meta.namespace not in self._services:
            return _EMPTY
        key = meta.namespace, tuple(meta.labels.items()), owner
        selector = self._cache.get(key)
        if selector is None:
            selector = self._deduce(pod, owner)
            size_bytes = BYTES_AN_ENTRY + approximate_size(key) + approximate_size(selector)
            self._cache.put(key, selector, size_bytes)
        return selector

    def _deduce(self, pod: Pod, owner: OwnerReference | None) -> Selector:
        merged = self._selected_by_services(pod)
        if owner is None:
            return selector_of_map(merged)
        key = f"{pod.metadata.namespace}/{owner.name}"
        kind = owner.api_version, owner.kind
        # Its selector is a map like a service's, and replaces equal keys of services; those of
        # the other owners are added as further requirements.
        if kind == ("v1", "ReplicationController"):
            found = self._replication_controllers.get(key)
            return selector_of_map(merged | ((found and found.spec.selector) or {}))
        selector = selector_of_map(merged)
        controllers = self._controllers.get(kind)
        controller = None if controllers is None else controllers.get(key)
        if controller is not None:
            own = _lenient(controller)
            selector = Selector(selector.requirements + own.requirements)
        return selector

    def _selected_by_services(self, pod: Pod) -> dict[str, str]:
        """Merge the selectors of the services that select a pod."""
        labels = pod.metadata.labels
        merged: dict[str, str] = {}
        services = self._services.get(pod.metadata.namespace)
        for key in services.candidates(labels) if services is not None else ():
            selector = self._service_maps[key]
            if selector.items() <= labels.items():
                merged |= selector
        return merged

    # ---- changes -------------------------------------------------------------------------------

    def _service_changed(self, old: Service | None, new: Service | None) -> None:
        if old is not None and new is not None and old.spec == new.spec:
            return
        service = new if new is not None else old
        assert service is not None
        key, namespace = key_of(service), service.metadata.namespace
        services = self._services.setdefault(namespace, SelectorIndex())
        known = self._service_maps.pop(key, None)
        if known is not None:
            services.discard(_needs_of(known), key)
        if new is not None and new.spec.selector is not None:
            self._service_maps[key] = new.spec.selector
            services.add(_needs_of(new.spec.selector), key)
        if not services:
            del self._services[namespace]
        self._cache.clear()

    def _owner_changed(self, old: Any, new: Any) -> None:
        if old is None or new is None or old.spec != new.spec:
            self._cache.clear()


def _needs_of(labels: dict[str, str]) -> LabelNeeds:
    # One label is enough to find a service, which may have a megabyte of them.
    return LabelNeeds(tuple(islice(labels.items(), 1)))


def _lenient(controller: ReplicaSet | StatefulSet) -> Selector:
    """Return a controller's selector; an absent or invalid one adds nothing."""
    try:
        return parse_label_selector(controller.spec.selector)
    except SelectorError:
        return NOTHING
