"""Parameters of ``LeaderElector``: the Lease, its durations, and callbacks."""

from collections.abc import Callable

from msgspec import Struct

from proreus.client.writing.event_bodies import ObjectReference


class LeaseOptions(Struct, frozen=True):
    """The Lease's namespace and name, and the durations of leaderElection in the configuration."""

    namespace: str = "kube-system"
    name: str = "kube-scheduler"
    lease_duration_seconds: float = 15.0
    renew_deadline_seconds: float = 10.0
    retry_period_seconds: float = 2.0

    @property
    def request_seconds(self) -> float:
        """The time limit of one request: half of the renew deadline, so that a retry fits in."""
        return max(1.0, self.renew_deadline_seconds / 2)


def _nothing(*_: object) -> None:
    """Default of a callback."""


def _healthy() -> None:
    """Default of the health check."""


class LeaderCallbacks(Struct, frozen=True):
    """Callbacks of the elector (client-go's LeaderCallbacks, and its health check).

    ``on_started_leading()`` is called once, when this instance becomes the leader, and
    ``on_stopped_leading()`` as soon as it no longer leads, before the Lease is released.
    ``on_new_leader(identity)`` is called for each new holder, this instance included.
    ``on_renew(slow)`` is called after each renewal; slow means that it needed a read first (for
    leader_election_slowpath_total). ``health_problem()`` returns why the Lease must not be renewed,
    or None: a leader that no longer schedules has to be replaced. ``on_event(lease, note)`` records
    a LeaderElection Event, as kube-scheduler does.
    """

    on_started_leading: Callable[[], None] = _nothing
    on_stopped_leading: Callable[[], None] = _nothing
    on_new_leader: Callable[[str], None] = _nothing
    on_renew: Callable[[bool], None] = _nothing
    on_event: Callable[[ObjectReference, str], None] = _nothing
    health_problem: Callable[[], str | None] = _healthy
