"""The metrics of the controller, of its requests, of authentication and of the Lease."""

from __future__ import annotations

from proreus.base.metrics import MetricsRegistry, SchedulerMetrics
from proreus.base.metrics.declarations import Declarations, describe
from proreus.base.metrics.families import AnyFamily

_OF_THE_PROCESS = (
    "authenticat",
    "authorization_",
    "apiserver_client_certificate_",
    "leader_election_",
    "rest_client_",
)


_ALPHA = Declarations("proreus_controller_", "ALPHA")


class ControllerMetrics(MetricsRegistry):
    """``process`` counts for client, server and elector; only their families of it are shown."""

    status_writes_total = _ALPHA.counter(
        "Writes of statuses, by resource and result (written, conflict, error).",
        "resource",
        "result",
    )
    statuses_due = _ALPHA.computed("Objects whose status has to be computed again.")
    colocation_nodes = _ALPHA.gauge(
        "Nodes as of the latest cycle of colocation, by state (measured, stale).", "state"
    )
    rebalancing_cycles_total = _ALPHA.counter(
        "Cycles of the rebalancer, by result (done, error).", "result"
    )
    moves_advised = _ALPHA.computed("Pods that would have a better node, as of the latest cycle.")
    evictions_total = _ALPHA.counter(
        "Evictions asked for, by result (evicted, gone, refused, error).", "result"
    )

    def __init__(self) -> None:
        super().__init__()
        self.process = SchedulerMetrics()
        describe(self)

    def families(self) -> list[AnyFamily]:
        """Return the controller's own families and the process's."""
        others = self.process.families()
        shown = [one for one in others if one.description.name.startswith(_OF_THE_PROCESS)]
        return [*super().families(), *shown]
