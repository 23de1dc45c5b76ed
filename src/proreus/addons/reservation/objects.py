"""Reservations (scheduling.koordinator.sh), as far as the plugin reads them."""

from __future__ import annotations

from datetime import datetime
from math import inf

from proreus.config.durations import DurationError, parse_duration
from proreus.objects import (
    ApiStruct,
    LabelSelector,
    ObjectMeta,
    PodSpec,
    Resource,
    Taint,
)
from proreus.objects.selectors import parse_int64

PREFIX = "scheduling.koordinator.sh/"
RESERVATION_ORDER = f"{PREFIX}reservation-order"
"""Label of a reservation: the lowest order is taken first; 0 means none."""
RESERVATION_ALLOCATED = f"{PREFIX}reservation-allocated"
"""Annotation of a pod: the reservation that it takes from, ``{"name": …, "uid": …}``."""

AVAILABLE, FAILED, SUCCEEDED = "Available", "Failed", "Succeeded"
PENDING = "Pending"
RESTRICTED = "Restricted"

_DEFAULT_TTL_SECONDS = 86_400.0


class ReservedFor(ApiStruct, frozen=True):
    """An object, or a controller of pods (``controller``); fields that are empty match any."""

    api_version: str = ""
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None


class ReservationOwner(ApiStruct, frozen=True):
    """The pods that may take from a reservation: they match all given fields."""

    object: ReservedFor | None = None
    controller: ReservedFor | None = None
    label_selector: LabelSelector | None = None


class ReservationTemplate(ApiStruct, frozen=True):
    """The pod that is scheduled to find the room."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()


class ReservationSpec(ApiStruct, frozen=True):
    """The held room, its owners, and its end."""

    template: ReservationTemplate = ReservationTemplate()
    owners: tuple[ReservationOwner, ...] = ()
    ttl: str | None = None
    expires: datetime | None = None
    allocate_once: bool | None = None
    allocate_policy: str = ""
    pre_allocation: bool = False
    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()


class ReservationStatus(ApiStruct, frozen=True):
    """The phase and the node."""

    phase: str = ""
    node_name: str = ""


class ReservationObject(ApiStruct, frozen=True):
    """A reservation."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ReservationSpec = ReservationSpec()
    status: ReservationStatus = ReservationStatus()

    @property
    def once(self) -> bool:
        """Whether it ends with its first owner."""
        return self.spec.allocate_once is not False

    @property
    def ends_at(self) -> float:
        """The time of its end, in seconds since the epoch."""
        if self.spec.expires is not None:
            return self.spec.expires.timestamp()
        created = self.metadata.creation_timestamp
        try:
            ttl = _DEFAULT_TTL_SECONDS if self.spec.ttl is None else parse_duration(self.spec.ttl)
        except DurationError:
            ttl = _DEFAULT_TTL_SECONDS
        return inf if not ttl or created is None else created.timestamp() + ttl

    @property
    def order(self) -> float:
        """Its place among several: the lowest first."""
        return parse_int64(self.metadata.labels.get(RESERVATION_ORDER, "0")) or inf

    @property
    def is_over(self) -> bool:
        """Whether it holds nothing any more."""
        return self.status.phase in (FAILED, SUCCEEDED)


RESERVATIONS = Resource(
    "scheduling.koordinator.sh",
    "v1alpha1",
    "reservations",
    "Reservation",
    False,
    ReservationObject,
    custom=True,
)
