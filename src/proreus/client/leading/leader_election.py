"""Leader election by a Lease (client-go's ``leaderelection``): the instance that holds it leads.

Safety rests on local observation alone. A Lease held by another instance has expired only when it
has not changed for its duration *on our monotonic clock*; the timestamps in it are informative, so
clock skew does not matter. The leader stops before another instance may start: renewDeadline is
shorter than leaseDuration, and the ``WriteFence`` rejects every write from shortly before the Lease
expires, even if the event loop has stood still. A write whose response was lost is resolved by a
read: a Lease that names us is ours, and its resourceVersion keeps two instances from writing it at
once. docs/adr/0002-leader-election.md says why this is not ``kubernetes.aio.leaderelection``.
"""

import asyncio
import logging
import random
import socket
import time
import uuid
from collections.abc import Callable

import msgspec

from proreus.base.clock import Clock, RealClock
from proreus.base.errors import ApiError, ConfigError, Conflict, LeaseLost, NotFound
from proreus.client.http.responses import ResponseLost, read_json
from proreus.client.http.session import ApiClient
from proreus.client.http.write_fence import WriteFence
from proreus.client.leading.leader_election_config import (
    LeaderCallbacks,
    LeaseOptions,
)
from proreus.client.writing.event_bodies import ObjectReference, micro_time
from proreus.objects.kinds import LEASES
from proreus.objects.meta import JsonObject

logger = logging.getLogger(__name__)

_JITTER = 1.2  # client-go's JitterFactor
_LAST_TRY_SECONDS = 1.0
"""Time for the release after a failed renewal: the process must end before the Lease expires."""
_RELEASE_SECONDS = 3.0
"""Time for the release at the end of the process, which has 30 s in all."""
_FENCE_SECONDS = 1.0
"""Margin between the last write and the end of the Lease: a write is under way for a while."""
_encode = msgspec.json.Encoder().encode


def new_identity() -> str:
    """Return ``hostname_uuid``, unique to this process, as kube-scheduler does."""
    return f"{socket.gethostname()}_{uuid.uuid4()}"


class LeaderElector:
    """Acquires the Lease and keeps it.

    ``fence`` is open while this instance leads, and closed before any callback reports that it no
    longer does. ``now`` is the monotonic clock, in seconds, by which a Lease ages; ``clock`` the
    one for the timestamps written into it.
    """

    def __init__(
        self,
        client: ApiClient,
        identity: str,
        options: LeaseOptions | None = None,
        callbacks: LeaderCallbacks | None = None,
        *,
        fence: WriteFence | None = None,
        clock: Clock | None = None,
        now: Callable[[], float] = time.monotonic,
        rng: random.Random | None = None,
    ) -> None:
        self.identity = identity
        self.is_leader = False
        self._client = client
        self._options = options or LeaseOptions()
        self._callbacks = callbacks or LeaderCallbacks()
        self._fence = fence or WriteFence(now=now)
        self._clock = clock or RealClock()
        self._now = now
        self._rng = rng or random.Random()
        self._collection = LEASES.path(self._options.namespace)
        self._path = LEASES.path(self._options.namespace, self._options.name)
        self._observed_lease: JsonObject | None = None  # as last seen, or written by us
        self._observed_at = 0.0  # when its spec last changed, on our clock
        self._reported_leader = ""
        self._deadline = 0.0  # by which the present attempt must end, on our clock
        self._last_error = ""
        self._health_problem = ""  # why the Lease was given up, if it was

    @property
    def leader(self) -> str:
        """The identity of the leader last seen; empty if the Lease has no holder."""
        return self._reported_leader

    async def run(self) -> None:
        """Acquire the Lease and keep it renewed; raise ``LeaseLost`` when that fails.

        On cancellation, a Lease that is held is released first, so that another instance can take
        over at once (client-go's ReleaseOnCancel).
        """
        self._keep_fence_open(await self._acquire())
        self.is_leader = True
        self._record_event("became leader")
        logger.info("%s: %s leads", self._path, self.identity)
        try:
            self._callbacks.on_started_leading()
            await self._renew()
        except asyncio.CancelledError:
            self._stop()
            await self._release(min(self._options.request_seconds, _RELEASE_SECONDS))
            raise
        self._stop()
        await self._release(_LAST_TRY_SECONDS)
        raise LeaseLost(self._loss())

    def _loss(self) -> str:
        name = f"{self._options.namespace}/{self._options.name}"
        if self._health_problem:
            return f"the Lease {name} is given up: {self._health_problem}"
        seconds = self._options.renew_deadline_seconds
        text = f"the Lease {name} is lost: it could not be renewed within {seconds:g} s"
        return text + (f", {self._reported_leader} holds it now" if self._held_by_other() else "")

    def _stop(self) -> None:
        # The fence first: from here on another instance may lead, and bindings that are under way
        # in tasks must not be sent while the callbacks run.
        self._fence.close()
        self.is_leader = False
        self._callbacks.on_stopped_leading()
        self._record_event("stopped leading")

    async def _acquire(self) -> float:
        """Wait until the Lease is ours; return the time just before the successful request."""
        started = self._now()
        while not await self._try("acquire", self._options.request_seconds):
            # Jitter, so that candidates do not all write in the instant in which a Lease expires.
            period = self._options.retry_period_seconds
            await asyncio.sleep(period * (1.0 + self._rng.random() * _JITTER))
            started = self._now()
        return started

    def _keep_fence_open(self, renewed_at: float) -> None:
        self._fence.until = renewed_at + self._options.lease_duration_seconds - _FENCE_SECONDS

    async def _renew(self) -> None:
        """Renew until that has failed for the renew deadline, or another instance has the Lease.

        A health problem ends it at once. As in client-go the deadline counts from the first failed
        attempt.
        """
        options = self._options
        period = options.retry_period_seconds
        renewed_at = self._now()
        while True:
            await asyncio.sleep(period)
            started = self._now()
            # Others may take the Lease leaseDuration after the last renewal. The renew deadline
            # alone could let us retry until then if this attempt starts late (a stopped process, a
            # slow machine): 5 s after the renewal, 10 s more are all of a 15 s Lease. So the
            # attempts end earlier, by the time for the release and for the process to end.
            end_of_lease = renewed_at + options.lease_duration_seconds - 2 * _LAST_TRY_SECONDS
            deadline = min(started + options.renew_deadline_seconds, end_of_lease)
            if not self._check_health():
                return
            while not await self._try("renew", deadline - self._now()):
                left_seconds = deadline - self._now()
                if left_seconds <= 0 or self._held_by_other():
                    return
                await asyncio.sleep(min(period, left_seconds))
                started = self._now()
                if not self._check_health():
                    return
            # Count from before the request: the others count from when they see the write, which is
            # later. So our Lease always ends first.
            renewed_at = started
            self._keep_fence_open(renewed_at)

    def _check_health(self) -> bool:
        """Return whether the Lease may be renewed, and remember why not."""
        self._health_problem = self._callbacks.health_problem() or ""
        return not self._health_problem

    async def _try(self, purpose: str, at_most_seconds: float) -> bool:
        """Try once to hold the Lease for another lease duration; return whether we do.

        Ends after ``at_most_seconds``, whatever hangs (a credential plugin, for example).
        """
        self._deadline = self._now() + at_most_seconds
        try:
            renewed = await self._acquire_or_renew()
            self._last_error = ""
            return renewed
        except (ApiError, ConfigError, RecursionError) as error:
            # A standby may meet the same error every few seconds for hours.
            if str(error) != self._last_error:
                self._last_error = str(error)
                logger.warning("%s: cannot %s the Lease: %s", self._path, purpose, error)
            return False

    async def _acquire_or_renew(self) -> bool:
        # A leader knows the Lease it wrote last, and renews it without a read (client-go's fast
        # path). The resourceVersion in it makes the write fail if another instance wrote since.
        if self.is_leader and self._observed_lease is not None and self._holder() == self.identity:
            try:
                await self._put(self._renewed(self._observed_lease))
                self._callbacks.on_renew(False)
                return True
            except (Conflict, ResponseLost) as error:
                # Another wrote it, or our own write happened and its response was lost, so that our
                # version is outdated: only a read can show which.
                logger.info("%s: renewing after a read: %s", self._path, error)
        try:
            self._observe(read_json(await self._request("GET", self._path)))
        except NotFound:
            await self._create()
            return True
        assert self._observed_lease is not None
        if self._held_by_other():
            return False
        await self._put(self._renewed(self._observed_lease))
        self._callbacks.on_renew(True)
        return True

    async def _create(self) -> None:
        options, now = self._options, self._clock.now()
        lease = _new_lease(
            options.namespace,
            options.name,
            self.identity,
            options.lease_duration_seconds,
            now,
        )
        self._observe(read_json(await self._request("POST", self._collection, _encode(lease))))

    def _renewed(self, lease: JsonObject) -> JsonObject:
        """Return the Lease with this instance as its holder, renewed now."""
        return _held(lease, self.identity, self._options.lease_duration_seconds, self._clock.now())

    async def _put(self, lease: JsonObject) -> None:
        self._observe(read_json(await self._request("PUT", self._path, _encode(lease))))

    async def _release(self, at_most_seconds: float) -> None:
        """Release the Lease if it is still ours, so that others need not wait until it expires."""
        self._deadline = self._now() + at_most_seconds
        try:
            # Read first: what we observed last may be outdated, and a Lease that another instance
            # has taken must not be emptied.
            self._observe(read_json(await self._request("GET", self._path)))
            if self._observed_lease is None or self._holder() != self.identity:
                return
            lease = _released(self._observed_lease, self._clock.now())
            await self._request("PUT", self._path, _encode(lease))
        except (ApiError, ConfigError, RecursionError) as error:
            logger.warning("%s: the Lease could not be released: %s", self._path, error)
        else:
            logger.info("%s: the Lease is released", self._path)

    async def _request(self, method: str, path: str, body: bytes | None = None) -> bytes:
        seconds = min(self._options.request_seconds, self._deadline - self._now())
        if seconds <= 0:
            raise ResponseLost("there was no time left for a request to the apiserver")
        query = f"timeout={int(self._options.request_seconds)}s"
        try:
            # The client's time limit covers the HTTP exchange only. Fetching a token comes before
            # it and may run an exec plugin, which must not outlast the Lease either.
            async with asyncio.timeout(seconds):
                return await self._client.request(
                    method, path, body, query=query, timeout_seconds=seconds
                )
        except TimeoutError as error:
            text = f"{method} {path}: not done within {seconds:.3g} s"
            raise ResponseLost(text) from error

    def _observe(self, lease: JsonObject) -> None:
        """Remember the Lease, and when its spec last changed on our clock."""
        # Only a changed spec proves that the holder is alive: a change of labels, say, raises the
        # resourceVersion too, and would keep a dead holder's Lease from expiring.
        if self._observed_lease is None or lease.get("spec") != self._observed_lease.get("spec"):
            self._observed_at = self._now()
        self._observed_lease = lease
        holder = self._holder()
        if holder != self._reported_leader:
            self._reported_leader = holder
            if holder:
                self._callbacks.on_new_leader(holder)

    def _holder(self) -> str:
        spec = (self._observed_lease or {}).get("spec") or {}
        return str(spec.get("holderIdentity") or "")

    def _held_by_other(self) -> bool:
        """Return whether another instance holds the Lease, and it has not expired by our clock."""
        if self._holder() in ("", self.identity) or self._observed_lease is None:
            return False
        seconds = self._observed_lease["spec"].get("leaseDurationSeconds") or 0
        return self._observed_at + float(seconds) > self._now()

    def reference(self) -> ObjectReference:
        """Return the reference to the Lease for Events about it."""
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
        self._callbacks.on_event(self.reference(), f"{self.identity} {what}")


# ---- the contents of a Lease -------------------------------------------------------------------


def _new_lease(namespace: str, name: str, identity: str, seconds: float, now: float) -> JsonObject:
    """Return a new Lease held by ``identity``; ``now`` is in seconds since the epoch."""
    time = micro_time(now)
    return {
        "apiVersion": LEASES.api_version,
        "kind": LEASES.kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "holderIdentity": identity,
            "leaseDurationSeconds": int(seconds),
            "acquireTime": time,
            "renewTime": time,
            "leaseTransitions": 0,
        },
    }


def _held(lease: JsonObject, identity: str, seconds: float, now: float) -> JsonObject:
    """Return the Lease with this holder, renewed at ``now``; fields unknown to us are kept."""
    old = lease.get("spec") or {}
    time = micro_time(now)
    ours = old.get("holderIdentity") == identity
    spec = {
        **old,
        "holderIdentity": identity,
        "leaseDurationSeconds": int(seconds),
        "acquireTime": old.get("acquireTime", time) if ours else time,
        "renewTime": time,
        "leaseTransitions": (old.get("leaseTransitions") or 0) + (0 if ours else 1),
    }
    return {**lease, "spec": spec}


def _released(lease: JsonObject, now: float) -> JsonObject:
    """Return the Lease without a holder, so that others can acquire it at once."""
    time = micro_time(now)
    free = {
        "holderIdentity": "",
        "leaseDurationSeconds": 1,
        "acquireTime": time,
        "renewTime": time,
    }
    return {**lease, "spec": {**lease["spec"], **free}}
