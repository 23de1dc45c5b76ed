"""One reservation in the scheduler: the rest of it, and the pod that holds the rest on its node.

Worked example: 4 CPUs are reserved on node ``a``, and a pod of 1 CPU takes from them. The provided
pod ``default/reservation/web`` requested 4 CPUs there, and requests 3 from then on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from msgspec.structs import replace

from proreus.addons.pod_amounts import count, quantities
from proreus.addons.pod_charges import bound_at
from proreus.addons.reservation.matching import OwnerMatcher
from proreus.addons.reservation.objects import RESTRICTED, ReservationObject
from proreus.framework import PodInfo
from proreus.objects import (
    Affinity,
    Container,
    NodeAffinity,
    NodeSelector,
    NodeSelectorTerm,
    ObjectMeta,
    Pod,
    PodStatus,
    ResourceRequirements,
)
from proreus.objects.selectors import LabelSelectorRequirement

POD_PREFIX = "reservation/"
"""The prefix of the names of provided pods."""

_DEFAULT_NAMESPACE = "default"
_DEFAULT_SCHEDULER = "default-scheduler"


class Owner(NamedTuple):
    """A pod that takes from a reservation: ``key`` is ``namespace/name``.

    ``claimant``: the pod as it was first seen, if only its annotation says that it takes from it.
    """

    key: str
    node_name: str
    requests: Mapping[str, int]
    claimant: Pod | None = None

    @property
    def order(self) -> tuple[bool, str, str]:
        """Its place among several: choices of this process first, then the first bound."""
        claimant = self.claimant
        return claimant is not None, "" if claimant is None else bound_at(claimant), self.key


class HeldReservation:
    """A reservation that is pending or available.

    ``owners``: pods that take from it, or claim to, by UID. Pods on another node do not count, nor
    pods that do not match.
    """

    def __init__(
        self,
        reservation: ReservationObject,
        owners: dict[str, Owner],
        priority: int | None,
    ) -> None:
        """``priority``: of the template's priority class."""
        self.reservation = reservation
        self.matcher = OwnerMatcher(reservation)
        self.owners = owners
        self.node_name = reservation.status.node_name
        self.status = PodStatus()
        """Of the provided pod."""
        self.priority = priority
        """``spec.priority`` of the provided pod, where the template has none."""
        self.reserved: Mapping[str, int] = PodInfo(self._template()).requests.amounts
        """All that is reserved, by resource."""
        self.owners_here: dict[str, Owner] = {}
        self.refused: list[Pod] = []
        """Pods on its node with claims that do not count, until they are told."""
        self._taken: dict[str, int] = {}
        """The amounts that owners have taken, by resource."""
        self.left: Mapping[str, int] = {}
        """The rest that no owner has taken, by resource."""
        self.is_used_up = False
        """Whether nothing is held any more."""
        self.pod = PodInfo(self._template())
        """The pod to provide: one to be scheduled, or one that holds the rest on its node."""
        self.update()

    def update(self) -> None:
        """Derive the rest and the pod, after a change of owners, node, status or priority."""
        self.owners_here, self._taken, self.refused = {}, {}, []
        for uid, owner in sorted(self.owners.items(), key=lambda one: one[1].order):
            self._count(uid, owner)
        self._derive()

    def add(self, uid: str, owner: Owner) -> None:
        """Let a pod take from it."""
        others = self.owners_here.values() if self.reservation.once else ()
        if uid in self.owners or any(owner.order < one.order for one in others):
            self.owners[uid] = owner
            self.update()
        else:
            self.owners[uid] = owner
            self._count(uid, owner)
            self._derive()

    def remove(self, uid: str) -> None:
        """Give back the amounts of a pod."""
        self.owners.pop(uid, None)
        owner = self.owners_here.pop(uid, None)
        if owner is None:
            return
        if self.reservation.once:
            # Another pod may be its one owner now.
            self.update()
        else:
            count(self._taken, owner.requests, -1)
            self._derive()

    def _count(self, uid: str, owner: Owner) -> None:
        """Count an owner after the ones before it, or refuse it."""
        claimant = owner.claimant
        if owner.node_name != self.node_name:
            return
        if claimant is None or (
            not (self.reservation.once and self.owners_here) and self.matcher.matches(claimant)
        ):
            self.owners_here[uid] = owner
            count(self._taken, owner.requests)
        else:
            self.refused.append(claimant)

    def _derive(self) -> None:
        self.left = {
            name: max(amount - self.taken(name), 0) for name, amount in self.reserved.items()
        }
        nothing_left = any(self.reserved.values()) and not any(self.left.values())
        self.is_used_up = nothing_left or (self.reservation.once and bool(self.owners_here))
        self.pod = PodInfo(self._provided())

    @property
    def name(self) -> str:
        """Name of the reservation."""
        return self.reservation.metadata.name

    @property
    def uid(self) -> str:
        """UID of the reservation, and of its pod."""
        return self.reservation.metadata.uid

    def taken(self, resource: str) -> int:
        """Return the amount of a resource that owners have taken."""
        return self._taken.get(resource, 0)

    def fits(self, requests: Mapping[str, int], exact: tuple[str, ...]) -> bool:
        """Return whether a pod with these requests may take from it."""
        if any(requests.get(name, 0) != self.reserved.get(name, 0) for name in exact):
            return False
        left = self.left
        if self.reservation.spec.allocate_policy == RESTRICTED:
            return all(requests.get(name, 0) <= amount for name, amount in left.items())
        return any(left.get(name, 0) for name, amount in requests.items() if amount)

    def covers(self, requests: Mapping[str, int]) -> bool:
        """Return whether enough is left of all that a pod requests and the reservation has."""
        left = self.left
        return all(amount <= left.get(name, amount) for name, amount in requests.items())

    def share(self, requests: Mapping[str, int]) -> float:
        """Return the part of the rest that a pod would take: 0 to 1, a mean over resources."""
        parts = [
            min(requests.get(name, 0), amount) / amount
            for name, amount in self.left.items()
            if amount
        ]
        return sum(parts) / len(parts) if parts else 0.0

    def _provided(self) -> Pod:
        pod = self._template()
        if not self.node_name:
            return pod
        spec = replace(pod.spec, node_name=self.node_name)
        if self.owners_here:
            left = {name: amount for name, amount in self.left.items() if amount}
            resources = ResourceRequirements(requests={**quantities(left)})
            rest = Container(name="rest", resources=resources)
            spec = replace(
                spec, containers=(rest,), init_containers=(), overhead={}, resources=None
            )
        return replace(pod, spec=spec)

    def _template(self) -> Pod:
        template, meta = self.reservation.spec.template, self.reservation.metadata
        spec = template.spec
        if spec.node_name:
            spec = replace(spec, node_name="", affinity=_only_on(spec.node_name, spec.affinity))
        if spec.priority is None:
            spec = replace(spec, priority=self.priority)
        if not spec.scheduler_name:
            spec = replace(spec, scheduler_name=_DEFAULT_SCHEDULER)
        # Room for a pod of a PodGroup is no pod of it.
        spec = replace(spec, scheduling_group=None)
        return Pod(
            metadata=ObjectMeta(
                name=f"{POD_PREFIX}{meta.name}",
                namespace=template.metadata.namespace or _DEFAULT_NAMESPACE,
                uid=meta.uid,
                labels=template.metadata.labels,
                annotations=template.metadata.annotations,
                creation_timestamp=meta.creation_timestamp,
            ),
            spec=spec,
            status=self.status,
        )


def _only_on(node_name: str, affinity: Affinity | None) -> Affinity:
    """Return an affinity to one node in addition to another affinity."""
    here = LabelSelectorRequirement(key="metadata.name", operator="In", values=(node_name,))
    affinity = affinity or Affinity()
    node = affinity.node_affinity or NodeAffinity()
    terms = () if node.required is None else node.required.node_selector_terms
    required = NodeSelector(
        node_selector_terms=tuple(
            replace(term, match_fields=(*term.match_fields, here))
            for term in terms or (NodeSelectorTerm(),)
        )
    )
    return replace(affinity, node_affinity=replace(node, required=required))
