"""Which pods may take from which reservations."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

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
"""Label of a pod that may use whatever is reserved, and is no owner of it."""
RESERVATION_AFFINITY = f"{PREFIX}reservation-affinity"
EXACT_MATCH = f"{PREFIX}exact-match-reservation"


class RequiredReservations(ApiStruct, frozen=True):
    """Terms about the labels of reservations, at least one of which has to match."""

    reservation_selector_terms: tuple[NodeSelectorTerm, ...] = ()


class ReservationAffinity(ApiStruct, frozen=True):
    """A pod that has it is scheduled to a reservation, or not at all."""

    name: str = ""
    reservation_selector: dict[str, str] = {}
    required: RequiredReservations | None = msgspec.field(
        default=None, name="requiredDuringSchedulingIgnoredDuringExecution"
    )
    tolerations: tuple[Toleration, ...] = ()

    def matches(self, reservation: ReservationObject) -> bool:
        """Return whether a reservation is one of those that the pod asks for."""
        name, labels = reservation.metadata.name, reservation.metadata.labels
        if self.name and self.name != name:
            return False
        if any(labels.get(key) != value for key, value in self.reservation_selector.items()):
            return False
        if self.required is None or not self.required.reservation_selector_terms:
            return True
        terms = NodeSelector(node_selector_terms=self.required.reservation_selector_terms)
        return parse_node_selector(terms).matches(labels, name)


class ReservationDemand:
    """What a pod says about reservations in its annotations.

    ``affinity``: None: it need not use one. ``exact``: resources of which it requests as much as
    the reservation has. ``is_valid``: False if an annotation cannot be read.
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
                found: Any = json.loads(annotations[EXACT_MATCH])
                self.exact = tuple(map(str, found["resourceNames"]))
        except (*UNDECODABLE, TypeError, KeyError) as error:
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
        """Return whether a pod is one of those that the reservation is for."""
        meta = pod.metadata
        return any(
            (selector is None or selector.matches(meta.labels)) and _is_owner(pod, owner)
            for owner, selector in self._owners
        )


_NOBODY = ReservationOwner()


def _is_owner(pod: Pod, owner: ReservationOwner) -> bool:
    meta = pod.metadata
    if owner.object is not None:
        own = {"kind": "Pod", "namespace": meta.namespace, "name": meta.name, "uid": meta.uid}
        if not _refers_to(owner.object, {**own, "apiVersion": "v1"}):
            return False
    if owner.controller is None:
        return True
    found = controller_of(meta)
    return found is not None and _refers_to(
        owner.controller,
        {
            "kind": found.kind,
            "apiVersion": found.api_version,
            "namespace": meta.namespace,
            "name": found.name,
            "uid": found.uid,
        },
    )


def _refers_to(wanted: ReservedFor, found: Mapping[str, str]) -> bool:
    given = {
        "kind": wanted.kind,
        "apiVersion": wanted.api_version,
        "namespace": wanted.namespace,
        "name": wanted.name,
        "uid": wanted.uid,
    }
    return all(value in ("", found[field]) for field, value in given.items())
