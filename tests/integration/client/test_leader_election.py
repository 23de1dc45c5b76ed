"""Leader election with network faults and wrong clocks (virtual time, real sockets)."""

import asyncio
import random
from contextlib import suppress

import pytest

from proreus.base.errors import LeaseLost
from proreus.client.credentials.credentials import Credentials
from proreus.client.http.session import ApiClient
from proreus.client.http.write_fence import NotLeading, WriteFence
from proreus.client.leading.leader_election import LeaderElector, new_identity
from proreus.client.leading.leader_election_config import (
    LeaderCallbacks,
    LeaseOptions,
)

pytestmark = pytest.mark.looptime

LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
LEASE = f"{LEASES}/kube-scheduler"


class LeaseServer:
    """A Lease with optimistic concurrency; ``fault(call)`` may take a request over.

    A fault returns True when it has dealt with the connection. ``apply`` does what the request
    asks without answering it: for answers that get lost.
    """

    def __init__(self, wire):
        self.wire = wire
        self.lease = None
        self.version = 0
        self.fault = None
        self.history = []

    def apply(self, call):
        """Return (code, body)."""
        if call.method == "GET":
            if self.lease is None:
                return 404, self.wire.status(404, "NotFound", "not found")
            return 200, self.lease
        body = call.json
        if call.method == "POST":
            if self.lease is not None:
                return 409, self.wire.status(409, "AlreadyExists", "already exists")
        elif body["metadata"]["resourceVersion"] != str(self.version):
            return 409, self.wire.status(409, "Conflict", "the object has been modified")
        self.store(body)
        return 200, self.lease

    def store(self, lease):
        self.version += 1
        meta = {**lease["metadata"], "resourceVersion": str(self.version), "uid": "u"}
        self.lease = {**lease, "metadata": meta}
        self.history.append(lease["spec"])

    async def __call__(self, call):
        assert call.query == {"timeout": "5s"}
        if self.fault is not None and await self.fault(call):
            return
        code, body = self.apply(call)
        await call.answer(code, body)

    @property
    def spec(self):
        return self.lease["spec"]


@pytest.fixture
def leases(server, wire):
    server.script = LeaseServer(wire)
    return server.script


class WallClock:
    """A clock that follows the virtual time, wrong by some seconds."""

    def __init__(self, off_seconds=0.0):
        self.off_seconds = off_seconds

    def now(self):
        return 1_800_000_000 + asyncio.get_running_loop().time() + self.off_seconds


class Candidate:
    """An elector with its own connection, and its callbacks in order."""

    def __init__(self, server, name, clock=None, credentials=None):
        self.server, self.name = server, name
        self.clock = clock or WallClock()
        self.credentials = credentials or Credentials(server.url)
        self.health_problem = None
        self.calls = []
        self.events = []
        self.at = {}

    async def __aenter__(self):
        loop = asyncio.get_running_loop()
        self.client = ApiClient(self.credentials)
        self.fence = WriteFence(now=loop.time)

        def record(word):
            self.calls.append(word)
            self.at.setdefault(word, loop.time())

        self.elector = LeaderElector(
            self.client,
            self.name,
            callbacks=LeaderCallbacks(
                on_started_leading=lambda: record("started"),
                on_stopped_leading=lambda: record("stopped"),
                on_new_leader=lambda leader: record(f"new {leader}"),
                on_event=lambda lease, note: self.events.append((lease.name, note)),
                health_problem=lambda: self.health_problem,
            ),
            fence=self.fence,
            clock=self.clock,
            now=loop.time,
            rng=random.Random(1),
        )
        self.task = asyncio.create_task(self.elector.run())
        return self

    async def __aexit__(self, *_):
        self.task.cancel()
        with suppress(asyncio.CancelledError, LeaseLost):
            await self.task
        await self.client.close()


async def test_the_first_instance_creates_the_lease_and_renews_it(server, leases):
    async with Candidate(server, "a", WallClock(0.25)) as a:
        await asyncio.sleep(1)
        assert a.calls == ["new a", "started"]
        assert a.elector.is_leader
        assert leases.history == [
            {
                "holderIdentity": "a",
                "leaseDurationSeconds": 15,
                "acquireTime": "2027-01-15T08:00:00.250000Z",
                "renewTime": "2027-01-15T08:00:00.250000Z",
                "leaseTransitions": 0,
            }
        ]
        await asyncio.sleep(1.5)
        assert leases.spec["renewTime"] == "2027-01-15T08:00:02.250000Z"
        assert leases.spec["acquireTime"] == "2027-01-15T08:00:00.250000Z"
        await asyncio.sleep(20)
        assert 10 <= len(leases.history) <= 13
        assert [call.method for call in server.calls[2:]] == ["PUT"] * (len(server.calls) - 2)


async def test_the_second_instance_takes_over_after_the_lease_duration(server, leases):
    loop = asyncio.get_running_loop()
    async with Candidate(server, "a") as a, Candidate(server, "b") as b:
        await asyncio.sleep(60)
        assert b.calls == ["new a"]
        died = loop.time()
        a.task.cancel()
        leases.fault = lambda call: _cut_of(call, "a")  # killed: no release
        await asyncio.sleep(30)
        assert "started" in b.calls
        assert 13 <= b.at["started"] - died <= 15 + 4.4 + 0.1
        assert leases.spec["leaseTransitions"] == 1
        assert leases.spec["holderIdentity"] == "b"


async def _cut_of(call, name):
    if call.method == "PUT" and call.json["spec"]["holderIdentity"] in ("", name):
        call.cut()
        return True
    return False


async def test_release_on_cancel_allows_an_immediate_takeover(server, leases):
    loop = asyncio.get_running_loop()
    async with Candidate(server, "a") as a, Candidate(server, "b") as b:
        await asyncio.sleep(60)
        ended = loop.time()
        a.task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await a.task
        assert a.calls[-1] == "stopped"
        name = a.elector.reference().name
        assert a.events == [(name, "a became leader"), (name, "a stopped leading")]
        released = leases.history[-1]
        assert (released["holderIdentity"], released["leaseDurationSeconds"]) == ("", 1)
        assert released["leaseTransitions"] == 0
        await asyncio.sleep(5)
        assert b.at["started"] - ended <= 4.5
        assert leases.spec["leaseTransitions"] == 1


async def test_timestamps_of_others_do_not_matter(server, leases):
    """A holder whose clock is years behind renews: its Lease is not taken."""
    loop = asyncio.get_running_loop()
    lease = {"metadata": {"name": "kube-scheduler"}, "spec": {}}

    def renew(second):
        old = f"1999-01-01T00:00:{second:02d}.000000Z"
        spec = {"holderIdentity": "z", "leaseDurationSeconds": 15, "renewTime": old}
        leases.store({**lease, "spec": spec})

    renew(0)
    async with Candidate(server, "b") as b:
        for second in range(1, 50):
            await asyncio.sleep(2)
            renew(second)
        assert b.calls == ["new z"]
        stopped = loop.time()
        await asyncio.sleep(30)
        assert 15 <= b.at["started"] - stopped <= 15 + 4.4 + 2.1


async def test_future_timestamps_do_not_protect_a_dead_holder(server, leases):
    spec = {
        "holderIdentity": "z",
        "leaseDurationSeconds": 15,
        "renewTime": "2999-01-01T00:00:00.000000Z",
    }
    leases.store({"metadata": {"name": "kube-scheduler"}, "spec": spec})
    async with Candidate(server, "b") as b:
        await asyncio.sleep(21)
        assert "started" in b.calls


@pytest.mark.parametrize("fault", ["cut", "silence", "500", "html"])
async def test_leader_that_cannot_renew_stops_before_its_lease_ends(server, leases, fault):
    loop = asyncio.get_running_loop()

    async def broken(call):
        if fault == "cut":
            call.cut()
        elif fault == "silence":
            await asyncio.sleep(100)
        elif fault == "500":
            await call.refuse(500, "InternalError")
        else:
            await call.answer(200, b"<html>sorry</html>")
        return True

    async with Candidate(server, "a") as a:
        await asyncio.sleep(10.5)
        broke = loop.time()
        leases.fault = broken
        with pytest.raises(LeaseLost, match="could not be renewed within 10 s"):
            await a.task
        assert 9 <= a.at["stopped"] - broke <= 12.1
        assert loop.time() - broke <= 13.1  # in time for the process to end
        assert not a.elector.is_leader


async def test_short_faults_do_not_cost_the_lease(server, leases):
    broken_until = 0.0
    loop = asyncio.get_running_loop()

    async def flaky(call):
        if loop.time() < broken_until:
            call.cut()
            return True
        return False

    leases.fault = flaky
    async with Candidate(server, "a") as a:
        for _ in range(5):
            await asyncio.sleep(20)
            broken_until = loop.time() + 7.5
        await asyncio.sleep(20)
        assert a.calls == ["new a", "started"]


@pytest.mark.parametrize("method", ["POST", "PUT"])
async def test_lost_responses_of_writes_are_resolved_by_a_read(server, leases, method):
    lost = []

    async def lose(call):
        if call.method == method and len(lost) < 3 and len(server.calls) % 2 == 0:
            lost.append(leases.apply(call))
            call.cut()
            return True
        return False

    leases.fault = lose
    async with Candidate(server, "a") as a:
        await asyncio.sleep(60)
        assert lost
        assert a.calls == ["new a", "started"]
        assert leases.spec["leaseTransitions"] == 0  # no other instance ever held it


async def test_a_leader_that_finds_another_holder_stops_at_once(server, leases):
    loop = asyncio.get_running_loop()
    async with Candidate(server, "a") as a:
        await asyncio.sleep(10.5)
        usurped = loop.time()
        leases.store({**leases.lease, "spec": {**leases.spec, "holderIdentity": "z"}})
        with pytest.raises(LeaseLost, match="z holds it now"):
            await a.task
        assert a.at["stopped"] - usurped <= 2.1
        assert leases.spec["holderIdentity"] == "z"  # not released: it is not ours


async def test_a_suspended_leader_stops_before_it_writes(server, leases):
    """The process was stopped for a minute (SIGSTOP, a sleeping laptop) without a takeover yet."""
    shift = 0.0
    loop = asyncio.get_running_loop()
    async with Candidate(server, "a") as a:
        a.elector._now = lambda: loop.time() + shift
        await asyncio.sleep(10.5)
        written = len(leases.history)
        shift = 60.0
        with pytest.raises(LeaseLost):
            await a.task
        renewals = [spec for spec in leases.history[written:] if spec["holderIdentity"]]
        assert renewals == []


async def test_the_fence_follows_the_renewals_and_closes_by_the_clock_alone(server, leases):
    loop = asyncio.get_running_loop()
    async with Candidate(server, "a") as a, Candidate(server, "b") as b:
        await asyncio.sleep(100)
        assert 100 + 11.5 <= a.fence.until <= 100 + 14
        assert a.fence.open
        assert b.fence.open  # an instance that never led may write Events
        a.fence._now = lambda: loop.time() + 14.1  # stopped and continued: no task has run yet
        assert not a.fence.open
        with pytest.raises(NotLeading):
            a.fence.check()


async def test_the_fence_is_closed_before_the_lease_is_released(server, leases):
    async with Candidate(server, "a") as a:
        open_at_release = []

        async def look(call):
            if call.method == "PUT" and not call.json["spec"]["holderIdentity"]:
                open_at_release.append(a.fence.open)
            return False

        leases.fault = look
        await asyncio.sleep(10)
        a.task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await a.task
        assert open_at_release == [False]
        a.elector._keep_fence_open(1e9)
        assert not a.fence.open


async def test_a_health_problem_releases_the_lease(server, leases):
    loop = asyncio.get_running_loop()
    async with Candidate(server, "a") as a, Candidate(server, "b") as b:
        await asyncio.sleep(60)
        a.health_problem = "the event loop has been blocked for 61 s"
        fell_ill = loop.time()
        with pytest.raises(LeaseLost, match="is given up: the event loop has been blocked"):
            await a.task
        assert loop.time() - fell_ill <= 2.1
        assert (a.calls[-1], a.fence.open) == ("stopped", False)
        await asyncio.sleep(5)
        assert "started" in b.calls


def hanging_after(server, seconds, now):
    """Return credentials whose exec plugin hangs from a point in time on, without a time limit."""

    async def fetch(force):
        if now() > seconds:
            await asyncio.Event().wait()
        return "Bearer x"

    return Credentials(server.url, fetch=fetch, fetch_seconds=1e9, now=now)


async def test_a_hanging_exec_plugin_costs_one_attempt_while_the_token_is_valid(server, leases):
    credentials = hanging_after(server, 100, asyncio.get_running_loop().time)
    async with Candidate(server, "a", credentials=credentials) as a:
        await asyncio.sleep(600)
        assert a.calls == ["new a", "started"]


async def test_hanging_credentials_end_leadership_in_time(server, leases):
    loop = asyncio.get_running_loop()
    credentials = hanging_after(server, 99, loop.time)
    credentials.authorization = lambda: None  # each request needs a new token
    async with Candidate(server, "a", credentials=credentials) as a:
        await asyncio.sleep(99.5)
        renewed_at = a.fence.until - 14
        async with asyncio.timeout(60):
            with pytest.raises(LeaseLost):
                await a.task
        assert a.at["stopped"] - renewed_at <= 13.1
        assert loop.time() - renewed_at <= 14.1


async def test_unknown_fields_of_the_lease_are_kept(server, leases):
    async with Candidate(server, "a"):
        await asyncio.sleep(3)
        leases.lease["metadata"]["labels"] = {"team": "x"}
        leases.lease["spec"]["strategy"] = "OldestEmulationVersion"
        leases.version += 1
        leases.lease["metadata"]["resourceVersion"] = str(leases.version)
        await asyncio.sleep(10)
        assert leases.lease["metadata"]["labels"] == {"team": "x"}
        assert leases.spec["strategy"] == "OldestEmulationVersion"


async def test_two_simultaneous_creates_have_one_leader(server, leases):
    behind, ahead = WallClock(-1e6), WallClock(1e6)
    async with Candidate(server, "a", behind) as a, Candidate(server, "b", ahead) as b:
        await asyncio.sleep(100)
        assert ("started" in a.calls) + ("started" in b.calls) == 1


def test_identity_and_times_of_kube_scheduler():
    assert new_identity() != new_identity()
    host, unique = new_identity().rsplit("_", 1)
    assert host
    assert len(unique) == 36
    options = LeaseOptions()
    assert (options.lease_duration_seconds, options.renew_deadline_seconds) == (15, 10)
    assert (options.retry_period_seconds, options.request_seconds) == (2, 5)
