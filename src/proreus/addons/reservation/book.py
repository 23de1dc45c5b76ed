"""All reservations, their owners, and the pods that hold the rest: shared by profiles.

After a restart they are read from the objects: a reservation's status has its node, and the
annotation ``reservation-allocated`` of a pod on that node names the reservation. It counts for pods
that match the owners of the reservation when first seen (``addons.pod_charges``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import msgspec

from proreus.addons.pod_charges import PodCharges, of_cluster
from proreus.addons.reservation.held import HeldReservation, Owner
from proreus.addons.reservation.matching import ReservationDemand
from proreus.addons.reservation.objects import (
    RESERVATION_ALLOCATED,
    RESERVATIONS,
    ReservationObject,
)
from proreus.framework import Handle, PodInfo, PodSourcePlugin
from proreus.objects import PODS, PRIORITY_CLASSES, ApiStruct, Pod, PodStatus, PriorityClass
from proreus.objects.codec import UNDECODABLE


class _Taking(NamedTuple):
    """The reservation of a pod. ``claimant``: the pod, if only its annotation names it."""

    reservation_uid: str
    claimant: Pod | None = None


class ReservationBook:
    """The reservations of a cluster."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self._source: PodSourcePlugin | None = None
        self._held: dict[str, HeldReservation] = {}
        """By UID of the reservation."""
        self._owners: dict[str, dict[str, Owner]] = {}
        """By UID of the reservation and of the pod."""
        self._charges = PodCharges(handle, "Reservation", _claim)
        self._priority_classes = handle.store(PRIORITY_CLASSES)
        self._pods = handle.store(PODS)
        handle.on_change(PODS, self._pod_changed)
        handle.on_change(RESERVATIONS, self._reservation_changed)
        handle.on_change(PRIORITY_CLASSES, self._priority_class_changed)

    @staticmethod
    def of(handle: Handle, source: PodSourcePlugin) -> ReservationBook:
        """Return the book that belongs to a handle's nodes; ``source`` provides its pods."""
        book = of_cluster(handle, ReservationBook, lambda: ReservationBook(handle.shared))
        book._use(source)
        return book

    def _use(self, source: PodSourcePlugin) -> None:
        self._source = source
        for held in self._held.values():
            self._hold(held)

    # ---- what the cluster says -----------------------------------------------------------------

    def _reservation_changed(
        self, old: ReservationObject | None, new: ReservationObject | None
    ) -> None:
        if old is not None and (new is None or new.metadata.uid != old.metadata.uid):
            self.drop(old.metadata.uid)
        if new is None:
            return
        if new.is_over or new.metadata.deletion_timestamp or self._is_expired(new):
            self.drop(new.metadata.uid)
            return
        before = self._held.get(new.metadata.uid)
        owners = self._owners.setdefault(new.metadata.uid, {})
        held = HeldReservation(new, owners, self._priority_of(new))
        if before is not None:
            held.status = before.status
            # The answer to our own write may have been faster than the watch.
            held.node_name = held.node_name or before.node_name
        self._held[held.uid] = held
        self._hold(held)

    def _priority_of(self, reservation: ReservationObject) -> int | None:
        name = reservation.spec.template.spec.priority_class_name
        found = self._priority_classes.get(name)
        return None if found is None else found.value

    def _priority_class_changed(self, old: PriorityClass | None, new: PriorityClass | None) -> None:
        for held in self._held.values():
            priority = self._priority_of(held.reservation)
            if priority != held.priority:
                held.priority = priority
                self._hold(held)

    def _pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        pod = new or old
        assert pod is not None
        before = self._charges.get(pod.metadata.uid)
        self._charges.pod_changed(old, new)
        self._follow(pod, pod.spec.node_name, before)

    def _follow(self, pod: Pod, node_name: str, before: _Taking | None) -> None:
        """Bring the owners in line with the charge of a pod; ``before``: its earlier charge."""
        taking = self._charges.get(pod.metadata.uid)
        if before is not None and (
            taking is None or taking.reservation_uid != before.reservation_uid
        ):
            self._release(before.reservation_uid, pod.metadata.uid)
        if taking is not None and node_name:
            self._take(taking, PodInfo(pod), node_name)

    # ---- what is held --------------------------------------------------------------------------

    def _hold(self, held: HeldReservation) -> None:
        """Derive the rest of a reservation, and provide its pod."""
        held.update()
        self._provide(held)

    def _provide(self, held: HeldReservation) -> None:
        """Provide the pod that waits for a node, or holds the rest on one."""
        for claimant in held.refused:
            why = f"reservation {held.name} is for other pods, or another pod has all of it"
            self._charges.refuse(claimant, why)
        held.refused.clear()
        if held.node_name and held.is_used_up:
            self._handle.remove_pod(held.pod.key)
        elif self._source is not None:
            self._handle.put_pod(held.pod.pod, self._source)

    def drop(self, uid: str) -> None:
        """Hold a reservation's room no more."""
        held = self._held.pop(uid, None)
        if held is not None:
            self._handle.remove_pod(held.pod.key)
            if not held.owners:
                self._owners.pop(uid, None)

    def find(self, obj: Pod | ReservationObject) -> HeldReservation | None:
        """Return a reservation by its object, or by its pod."""
        return self._held.get(obj.metadata.uid)

    def scheduled(self, held: HeldReservation, node_name: str) -> None:
        """Hold the room of a reservation on its node from now on."""
        # The watch may have brought a new version meanwhile, or its end.
        now = self._held.get(held.uid)
        if now is not None:
            now.node_name = node_name
            self._hold(now)

    def note_status(self, held: HeldReservation, status: PodStatus) -> None:
        """Keep the status of a provided pod that waits."""
        held.status = status
        if self._held.get(held.uid) is held and not held.node_name:
            self._hold(held)

    def expired(self) -> Iterator[HeldReservation]:
        """Drop expired reservations, and yield them."""
        for held in list(self._held.values()):
            if self._is_expired(held.reservation):
                self.drop(held.uid)
                yield held

    def succeeded(self) -> list[HeldReservation]:
        """Return the reservations that are allocated once, and have an owner that is bound."""
        return [one for one in self._held.values() if one.reservation.once and self.is_bound(one)]

    def is_bound(self, held: HeldReservation) -> bool:
        """Return whether an owner of a reservation has a node by the apiserver."""
        found = (self._pods.get(owner.key) for owner in held.owners_here.values())
        return any(pod is not None and pod.spec.node_name for pod in found)

    def _is_expired(self, reservation: ReservationObject) -> bool:
        return reservation.ends_at <= self._handle.clock.now()

    # ---- what pods take ------------------------------------------------------------------------

    @property
    def available(self) -> list[HeldReservation]:
        """The reservations that have a node and something left."""
        return [one for one in self._held.values() if one.node_name and not one.is_used_up]

    def is_for(self, held: HeldReservation, pod: PodInfo, demand: ReservationDemand) -> bool:
        """Return whether a pod may take from a reservation, as far as that has something left."""
        reservation = held.reservation
        return (
            not reservation.spec.unschedulable
            and held.matcher.matches(pod.pod)
            and demand.accepts(reservation)
        )

    def available_on(self, node_name: str) -> list[HeldReservation]:
        """Return the available reservations of a node."""
        return [one for one in self.available if one.node_name == node_name]

    def usable(self, pod: PodInfo, demand: ReservationDemand) -> dict[str, HeldReservation]:
        """Return the best reservation that a pod may take from, by node."""
        found: dict[str, HeldReservation] = {}
        requests = pod.requests.amounts
        for held in self.available:
            if not self.is_for(held, pod, demand) or not held.fits(requests, demand.exact):
                continue
            known = found.get(held.node_name)
            if known is None or _rank(held, requests) < _rank(known, requests):
                found[held.node_name] = held
        return found

    def take(self, uid: str, pod: PodInfo, node_name: str) -> bool:
        """Let a pod take from a reservation; return False if that is gone, or too little is left.

        ``uid``: of the reservation, "" for none.
        """
        if uid:
            held = self._held.get(uid)
            if held is None or held.is_used_up or not held.fits(pod.requests.amounts, ()):
                return False
        before = self._charges.get(pod.uid)
        self._charges.reserve(pod, node_name, _Taking(uid) if uid else None)
        self._follow(pod.pod, node_name, before)
        return True

    def _take(self, taking: _Taking, pod: PodInfo, node_name: str) -> None:
        reservation_uid = taking.reservation_uid
        owner = Owner(pod.key, node_name, pod.requests.amounts, taking.claimant)
        owners = self._owners.setdefault(reservation_uid, {})
        if owners.get(pod.uid) == owner:
            return
        held = self._held.get(reservation_uid)
        if held is None:
            owners[pod.uid] = owner
        else:
            held.add(pod.uid, owner)
            self._provide(held)

    def release(self, pod: PodInfo) -> None:
        """Give back the amounts that a pod took at Reserve."""
        before = self._charges.get(pod.uid)
        self._charges.unreserve(pod)
        found = self._pods.get(pod.key)
        if found is None or found.metadata.uid != pod.uid:
            found = pod.pod
        self._follow(found, found.spec.node_name, before)

    def _release(self, reservation_uid: str, pod_uid: str) -> None:
        """Give back the amounts of a pod, to its reservation if that is still there."""
        held = self._held.get(reservation_uid)
        if held is not None:
            held.remove(pod_uid)
            self._provide(held)
            return
        owners = self._owners.get(reservation_uid, {})
        owners.pop(pod_uid, None)
        if not owners:
            self._owners.pop(reservation_uid, None)

    def reservation_taken_by(self, pod_uid: str) -> HeldReservation | None:
        """Return the reservation that a pod takes from; None if there is none any more."""
        taking = self._charges.get(pod_uid)
        return None if taking is None else self._held.get(taking.reservation_uid)


def _rank(held: HeldReservation, requests: Mapping[str, int]) -> tuple[float, float, str]:
    # The best one covers all requests, and has the least besides.
    fit = held.share(requests) + held.covers(requests)
    return held.reservation.order, -fit, held.name


def _claim(pod: Pod) -> _Taking | None:
    uid = reservation_of(pod)
    return _Taking(uid, pod) if uid else None


class _Allocated(ApiStruct, frozen=True):
    uid: str = ""


def reservation_of(pod: Pod) -> str:
    """Return the UID of the reservation that a pod's annotation names, "" for none."""
    text = pod.metadata.annotations.get(RESERVATION_ALLOCATED, "{}")
    try:
        return msgspec.json.decode(text, type=_Allocated).uid
    except UNDECODABLE:
        return ""
