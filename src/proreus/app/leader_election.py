"""Taking the lead: the elector that the configuration asks for, with its metrics."""

from __future__ import annotations

from collections.abc import Callable

from proreus.client.event_recorder import EventRecorder
from proreus.client.leader_election import LeaderElector, LeaseOptions, new_identity
from proreus.client.session import ApiClient
from proreus.clock import Clock
from proreus.config.types import LeaderElection
from proreus.metrics import SchedulerMetrics


def make_leader_elector(
    client: ApiClient,
    election: LeaderElection,
    metrics: SchedulerMetrics,
    lead: Callable[[], None],
    *,
    recorder: EventRecorder,
    component: str,
    clock: Clock,
) -> LeaderElector:
    """Return an elector that calls ``lead`` once the Lease is ours."""
    status = metrics.leader_election_master_status.labels(election.resource_name)
    slow_path = metrics.leader_election_slowpath_total.labels(election.resource_name)

    def started() -> None:
        status.set(1)
        lead()

    return LeaderElector(
        client,
        new_identity(),
        LeaseOptions(
            namespace=election.resource_namespace,
            name=election.resource_name,
            lease_duration_seconds=election.lease_duration_seconds,
            renew_deadline_seconds=election.renew_deadline_seconds,
            retry_period_seconds=election.retry_period_seconds,
        ),
        on_started_leading=started,
        on_stopped_leading=lambda: status.set(0),
        on_renew=lambda slow: slow_path.inc(1.0 if slow else 0.0),
        recorder=recorder,
        component=component,
        clock=clock,
    )
