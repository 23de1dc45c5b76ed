"""One of several instances leads: the one that holds the Lease (client-go's leaderelection).

Safety rests on local observation alone: a Lease held by another is free only when it has not
changed for its duration *on our monotonic clock*; the times written in it are for people, so no
clock skew matters. The leader stops before anybody else may start: renewDeadline is shorter than
leaseDuration, and the ``WriteFence`` lets no write pass from shortly before the end of the Lease,
whether or not anybody has noticed. A write whose answer was lost is settled by a read: a Lease that
names us is ours, and the resourceVersion keeps two from writing it at once.
docs/adr/0002-leader-election.md says why this is not ``kubernetes.aio.leaderelection``.
"""

import asyncio
import logging
import random
import socket
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from proreus.client.event_bodies import ObjectReference
from proreus.client.lease_records import held, new_lease, released
from proreus.client.responses import ResponseLost, read_json
from proreus.client.session import ApiClient
from proreus.client.write_fence import WriteFence
from proreus.clock import Clock, RealClock
from proreus.errors import ApiError, ConfigError, Conflict, LeaseLost, NotFound
from proreus.objects.kinds import LEASES
from proreus.objects.meta import JsonObject

logger = logging.getLogger(__name__)

_JITTER = 1.2
_LAST_TRY_SECONDS = 1.0  # the process is to end before the Lease does
_FENCE_SECONDS = (
    1.0  # so long before the Lease ends, writing does: they are on their way for a while
)
_encode = msgspec.json.Encoder().encode


def new_identity() -> str:
    """Return ``hostname_uuid``: who holds the Lease, never the same twice."""
    return f"{socket.gethostname()}_{uuid.uuid4()}"


@dataclass(frozen=True)
class LeaseOptions:
    """Where the Lease is, and the durations of KubeSchedulerConfiguration.leaderElection."""

    namespace: str = "kube-system"
    name: str = "kube-scheduler"
    lease_duration_seconds: float = 15.0
    renew_deadline_seconds: float = 10.0
    retry_period_seconds: float = 2.0

    @property
    def request_seconds(self) -> float:
        """How long one request may take: half of the renew deadline."""
        return max(1.0, self.renew_deadline_seconds / 2)


def _nothing(*_: object) -> None:
    """Do nothing."""


class LeaseRecorder(Protocol):
    """What the elector needs of ``EventRecorder``; its parameters are those of that."""

    def event_about(self, *args: Any, **kwargs: Any) -> None:
        """Note an event about an object."""
        ...


class LeaderElector:
    """Acquires the Lease and keeps it.

    ``on_started_leading()`` is called once, when we lead, ``on_stopped_leading()`` as soon as we do
    not, before the Lease is released; ``on_new_leader(identity)`` when another holder, also
    ourselves, is seen; ``on_renew(slow)`` after each renewal, for the metric. ``now`` is the
    monotonic clock on which a Lease ages, ``clock`` the one for the times written into it.
    ``ailment()`` says why the Lease must not be renewed, None while it may: a leader that no longer
    works is to be replaced. ``fence`` is kept open while we lead, and closed before anybody is told
    that we do not.
    ``component`` is the source of the LeaderElection Events (the first profile's name).
    """

    def __init__(
        self,
        client: ApiClient,
        identity: str,
        options: LeaseOptions | None = None,
        *,
        on_started_leading: Callable[[], None] = _nothing,
        on_stopped_leading: Callable[[], None] = _nothing,
        on_new_leader: Callable[[str], None] = _nothing,
        on_renew: Callable[[bool], None] = _nothing,
        ailment: Callable[[], str | None] = lambda: None,
        fence: WriteFence | None = None,
        recorder: LeaseRecorder | None = None,
        component: str = "default-scheduler",
        clock: Clock | None = None,
        now: Callable[[], float] = time.monotonic,
        rng: random.Random | None = None,
    ) -> None:
        self.identity = identity
        self.is_leader = False
        self._client = client
        self._options = options or LeaseOptions()
        self._on_started_leading = on_started_leading
        self._on_stopped_leading = on_stopped_leading
        self._on_new_leader = on_new_leader
        self._on_renew = on_renew
        self._ailment = ailment
        self._fence = fence or WriteFence(now=now)
        self._recorder = recorder
        self._component = component
        self._clock = clock or RealClock()
        self._now = now
        self._rng = rng or random.Random()
        self._collection = LEASES.path(self._options.namespace)
        self._path = LEASES.path(self._options.namespace, self._options.name)
        self._observed_lease: JsonObject | None = None  # as last seen, or written by us
        self._observed_at = 0.0  # when its spec last changed, on our clock
        self._reported_leader = ""
        self._deadline = 0.0  # by which the present attempt must end, on our clock
        self._ails = ""  # why the Lease was given up, if it was

    @property
    def leader(self) -> str:
        """Return who leads, as far as we have seen; empty when nobody does."""
        return self._reported_leader

    async def run(self) -> None:
        """Acquire the Lease, keep it, and raise ``LeaseLost`` when that fails.

        Cancel it to end: a Lease that is held is released first, so that another can take over at
        once.
        """
        self._keep_fence_open(await self._acquire())
        self.is_leader = True
        self._record_event("became leader")
        logger.info("%s: %s leads", self._path, self.identity)
        try:
            self._on_started_leading()
            await self._renew()
        except asyncio.CancelledError:
            self._stop()
            await self._release(self._options.request_seconds)
            raise
        self._stop()
        await self._release(_LAST_TRY_SECONDS)
        raise LeaseLost(self._loss())

    def _loss(self) -> str:
        name = f"{self._options.namespace}/{self._options.name}"
        if self._ails:
            return f"the Lease {name} is given up: {self._ails}"
        seconds = self._options.renew_deadline_seconds
        text = f"the Lease {name} is lost: it could not be renewed within {seconds:g} s"
        return text + (f", {self._reported_leader} holds it now" if self._held_by_other() else "")

    def _stop(self) -> None:
        self._fence.close()
        self.is_leader = False
        self._on_stopped_leading()
        self._record_event("stopped leading")

    async def _acquire(self) -> float:
        """Return once the Lease is ours, with the instant before it was asked for."""
        started = self._now()
        while not await self._try("acquire", self._options.request_seconds):
            period = self._options.retry_period_seconds
            await asyncio.sleep(period * (1.0 + self._rng.random() * _JITTER))
            started = self._now()
        return started

    def _keep_fence_open(self, renewed_at: float) -> None:
        self._fence.until = renewed_at + self._options.lease_duration_seconds - _FENCE_SECONDS

    async def _renew(self) -> None:
        """Renew until that has failed for the renew deadline, or another holds the Lease.

        Or until there is an ailment: then the Lease is given up at once.

        As in client-go the deadline counts from the first failure; but it never reaches the end of
        the Lease, so that we have stopped before another may start.
        """
        options = self._options
        period = options.retry_period_seconds
        renewed_at = self._now()
        while True:
            await asyncio.sleep(period)
            started = self._now()
            end_of_lease = renewed_at + options.lease_duration_seconds - 2 * _LAST_TRY_SECONDS
            deadline = min(started + options.renew_deadline_seconds, end_of_lease)
            if self._is_unwell():
                return
            while not await self._try("renew", deadline - self._now()):
                left_seconds = deadline - self._now()
                if left_seconds <= 0 or self._held_by_other():
                    return
                await asyncio.sleep(min(period, left_seconds))
                started = self._now()
                if self._is_unwell():
                    return
            renewed_at = started  # before the request: the safe side
            self._keep_fence_open(renewed_at)

    def _is_unwell(self) -> bool:
        self._ails = self._ailment() or ""
        return bool(self._ails)

    async def _try(self, purpose: str, at_most_seconds: float) -> bool:
        """Try once to hold the Lease for another lease duration; tell whether we do.

        Whatever hangs, be it a credential plugin, this ends after ``at_most_seconds``.
        """
        self._deadline = self._now() + at_most_seconds
        try:
            return await self._acquire_or_renew()
        except (ApiError, ConfigError, RecursionError) as error:
            logger.warning("%s: cannot %s the Lease: %s", self._path, purpose, error)
            return False

    async def _acquire_or_renew(self) -> bool:
        if self.is_leader and self._observed_lease is not None and self._holder() == self.identity:
            try:
                await self._put(self._renewed_spec_of(self._observed_lease))
                self._on_renew(False)
                return True
            except (Conflict, ResponseLost) as error:
                # changed meanwhile, or changed by us with the answer lost: reading tells
                logger.info("%s: renewing after a read: %s", self._path, error)
        try:
            self._observe(read_json(await self._request("GET", self._path)))
        except NotFound:
            await self._create()
            return True
        assert self._observed_lease is not None
        if self._held_by_other():
            return False
        await self._put(self._renewed_spec_of(self._observed_lease))
        self._on_renew(True)
        return True

    async def _create(self) -> None:
        options, now = self._options, self._clock.now()
        lease = new_lease(
            options.namespace,
            options.name,
            self.identity,
            options.lease_duration_seconds,
            now,
        )
        self._observe(read_json(await self._request("POST", self._collection, _encode(lease))))

    def _renewed_spec_of(self, lease: JsonObject) -> JsonObject:
        """Return the Lease with us as its holder."""
        return held(lease, self.identity, self._options.lease_duration_seconds, self._clock.now())

    async def _put(self, lease: JsonObject) -> None:
        self._observe(read_json(await self._request("PUT", self._path, _encode(lease))))

    async def _release(self, at_most_seconds: float) -> None:
        """Give the Lease back, if it is still ours, so that nobody waits for its end."""
        self._deadline = self._now() + at_most_seconds
        try:
            self._observe(read_json(await self._request("GET", self._path)))
            if self._observed_lease is None or self._holder() != self.identity:
                return
            lease = released(self._observed_lease, self._clock.now())
            await self._request("PUT", self._path, _encode(lease))
        except (ApiError, ConfigError, RecursionError) as error:
            logger.warning("%s: the Lease could not be released: %s", self._path, error)
        else:
            logger.info("%s: the Lease is released", self._path)

    async def _request(self, method: str, path: str, body: bytes | None = None) -> bytes:
        seconds = min(self._options.request_seconds, self._deadline - self._now())
        if seconds <= 0:
            raise ResponseLost("there was no time left to ask the apiserver")
        query = f"timeout={int(self._options.request_seconds)}s"
        try:
            # the client's own time limit is that of the exchange: getting a token comes before it
            async with asyncio.timeout(seconds):
                return await self._client.request(
                    method, path, body, query=query, timeout_seconds=seconds
                )
        except TimeoutError as error:
            text = f"{method} {path}: not done within {seconds:.3g} s"
            raise ResponseLost(text) from error

    def _observe(self, lease: JsonObject) -> None:
        """Remember the Lease, and when it last changed by our clock."""
        if self._observed_lease is None or lease.get("spec") != self._observed_lease.get("spec"):
            self._observed_at = self._now()
        self._observed_lease = lease
        holder = self._holder()
        if holder != self._reported_leader:
            self._reported_leader = holder
            if holder:
                self._on_new_leader(holder)

    def _holder(self) -> str:
        spec = (self._observed_lease or {}).get("spec") or {}
        return str(spec.get("holderIdentity") or "")

    def _held_by_other(self) -> bool:
        """Whether somebody else holds the Lease, and may still believe so."""
        if self._holder() in ("", self.identity) or self._observed_lease is None:
            return False
        seconds = self._observed_lease["spec"].get("leaseDurationSeconds") or 0
        return self._observed_at + float(seconds) > self._now()

    def reference(self) -> ObjectReference:
        """Return the Lease as Events refer to it."""
        meta = (self._observed_lease or {}).get("metadata") or {}
        return ObjectReference(
            "Lease",
            self._options.name,
            self._options.namespace,
            meta.get("uid", ""),
            LEASES.api_version,
            meta.get("resourceVersion", ""),
        )

    def _record_event(self, what: str) -> None:
        """Record the Event that kube-scheduler records on its Lease."""
        if self._recorder is None:
            return
        self._recorder.event_about(
            self.reference(),
            "Normal",
            "LeaderElection",
            "",
            f"{self.identity} {what}",
            self._component,
            core=True,
        )
