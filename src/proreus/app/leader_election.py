"""Taking the lead: the elector that the configuration asks for, with its metrics."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

from proreus.app.clients import Clients, call_on
from proreus.app.election_thread import ElectionThread
from proreus.client.event_recorder import EventRecorder
from proreus.client.leader_election import LeaderElector, new_identity
from proreus.client.leader_election_config import (
    LeaderCallbacks,
    LeaseOptions,
    ResourceLockConfig,
)
from proreus.client.session import ApiClient
from proreus.clock import Clock
from proreus.config.types import LeaderElection
from proreus.metrics import SchedulerMetrics


def make_election(
    clients: Clients,
    election: LeaderElection,
    metrics: SchedulerMetrics,
    lead: Callable[[], None],
    *,
    ailment: Callable[[], str | None],
    recorder: EventRecorder,
    component: str,
    clock: Clock,
) -> ElectionThread:
    """Return an election that calls ``lead`` on the running loop once the Lease is ours.

    ``ailment`` is called in the election's thread, see ``LeaderElector``; everything else that the
    elector tells reaches those who are told on the running loop.
    """
    loop = asyncio.get_running_loop()
    status = metrics.leader_election_master_status.labels(election.resource_name)
    slow_path = metrics.leader_election_slowpath_total.labels(election.resource_name)

    def started() -> None:
        status.set(1)
        lead()

    def make(client: ApiClient) -> LeaderElector:
        return LeaderElector(
            client,
            ResourceLockConfig(new_identity(), _RecorderElsewhere(loop, recorder), component),
            LeaseOptions(
                namespace=election.resource_namespace,
                name=election.resource_name,
                lease_duration_seconds=election.lease_duration_seconds,
                renew_deadline_seconds=election.renew_deadline_seconds,
                retry_period_seconds=election.retry_period_seconds,
            ),
            LeaderCallbacks(
                on_started_leading=lambda: call_on(loop, started),
                on_stopped_leading=lambda: call_on(loop, status.set, 0),
                on_renew=lambda slow: call_on(loop, slow_path.inc, 1.0 if slow else 0.0),
                health_problem=ailment,
            ),
            fence=clients.fence,
            clock=clock,
        )

    return ElectionThread(clients.connect_for_lease, make, clients.fence)


class _RecorderElsewhere:
    """An event recorder that belongs to another thread's loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, recorder: EventRecorder) -> None:
        self._loop = loop
        self._recorder = recorder

    def event_about(self, *args: Any, **kwargs: Any) -> None:
        call_on(self._loop, partial(self._recorder.event_about, *args, **kwargs))
