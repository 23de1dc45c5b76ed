"""Matches pods with the reservations that they may take from."""

from __future__ import annotations

import msgspec

from proreus.addons.reservation.objects import (
    PREFIX,
    ReservationObject,
    ReservationOwner,
    ReservedFor,
)
from proreus.framework import logger
from proreus.objects import (
    ApiStruct,
    NodeSelector,
    NodeSelectorTerm,
    Pod,
    Toleration,
    controller_of,
)
from proreus.objects.codec import UNDECODABLE
from proreus.objects.selectors import Selector, parse_label_selector, parse_node_selector
from proreus.objects.taints import first_untolerated

log = logger(__name__)

RESERVATION_IGNORED = f"{PREFIX}reservation-ignored"
"""Label of a pod that may use all reserved room without being an owner."""
RESERVATION_AFFINITY = f"{PREFIX}reservation-affinity"
EXACT_MATCH = f"{PREFIX}exact-match-reservation"


class RequiredReservations(ApiStruct, frozen=True):
    """Terms about the labels of reservations; one of them has to match."""

    reservation_selector_terms: tuple[NodeSelectorTerm, ...] = ()


class ReservationAffinity(ApiStruct, frozen=True):
    """The affinity of a pod that is scheduled to a reservation, or not at all."""

    name: str = ""
    reservation_selector: dict[str, str] = {}
    required: RequiredReservations | None = msgspec.field(
        default=None, name="requiredDuringSchedulingIgnoredDuringExecution"
    )
    tolerations: tuple[Toleration, ...] = ()

    def matches(self, reservation: ReservationObject) -> bool:
        """Return whether a reservation matches the affinity."""
        name, labels = reservation.metadata.name, reservation.metadata.labels
        if self.name and self.name != name:
            return False
        if any(labels.get(key) != value for key, value in self.reservation_selector.items()):
            return False
        if self.required is None or not self.required.reservation_selector_terms:
            return True
        terms = NodeSelector(node_selector_terms=self.required.reservation_selector_terms)
        return parse_node_selector(terms).matches(labels, name)


class ExactAmounts(ApiStruct, frozen=True):
    """Resources with a request equal to the reserved amount."""

    resource_names: tuple[str, ...]


class ReservationDemand:
    """The annotations of a pod about reservations.

    ``affinity``: None if it need not use one. ``exact``: resources with a request equal to the
    reserved amount. ``is_valid``: False if an annotation cannot be read.
    """

    def __init__(self, pod: Pod) -> None:
        annotations = pod.metadata.annotations
        self.is_valid = True
        self.affinity: ReservationAffinity | None = None
        self.exact: tuple[str, ...] = ()
        try:
            if RESERVATION_AFFINITY in annotations:
                text = annotations[RESERVATION_AFFINITY]
                self.affinity = msgspec.json.decode(text, type=ReservationAffinity)
            if EXACT_MATCH in annotations:
                exact = msgspec.json.decode(annotations[EXACT_MATCH], type=ExactAmounts)
                self.exact = exact.resource_names
        except UNDECODABLE as error:
            log.warning("Annotation of a pod cannot be read", pod=pod.metadata.name, err=error)
            self.is_valid = False

    def accepts(self, reservation: ReservationObject) -> bool:
        """Return whether affinity and taints let the pod use a reservation."""
        affinity = self.affinity or _ANY
        untolerated = first_untolerated(reservation.spec.taints, affinity.tolerations)
        return untolerated is None and affinity.matches(reservation)


_ANY = ReservationAffinity()


class OwnerMatcher:
    """Matches pods with the owners of a reservation."""

    def __init__(self, reservation: ReservationObject) -> None:
        self._owners: list[tuple[ReservationOwner, Selector | None]] = []
        for owner in reservation.spec.owners:
            selector = owner.label_selector
            parsed = None if selector is None else parse_label_selector(selector)
            if owner != _NOBODY:
                self._owners.append((owner, parsed))

    def matches(self, pod: Pod) -> bool:
        """Return whether a pod matches an owner of the reservation."""
        meta = pod.metadata
        return any(
            (selector is None or selector.matches(meta.labels)) and _is_owner(pod, owner)
            for owner, selector in self._owners
        )


_NOBODY = ReservationOwner()


def _is_owner(pod: Pod, owner: ReservationOwner) -> bool:
    meta = pod.metadata
    itself = ReservedFor("v1", "Pod", meta.namespace, meta.name, meta.uid)
    if owner.object is not None and not _refers_to(owner.object, itself):
        return False
    if owner.controller is None:
        return True
    found = controller_of(meta)
    return found is not None and _refers_to(
        owner.controller,
        ReservedFor(found.api_version, found.kind, meta.namespace, found.name, found.uid),
    )


def _refers_to(wanted: ReservedFor, found: ReservedFor) -> bool:
    return all(
        getattr(wanted, name) in ("", getattr(found, name))
        for name in ("api_version", "kind", "namespace", "name", "uid")
    )
