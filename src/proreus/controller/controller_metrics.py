"""The metrics of the controller, of its requests, of authentication and of the Lease."""

from __future__ import annotations

from proreus.base.metrics import MetricsRegistry, SchedulerMetrics
from proreus.base.metrics.families import AnyFamily

_OF_THE_PROCESS = (
    "authenticat",
    "authorization_",
    "apiserver_client_certificate_",
    "leader_election_",
    "rest_client_",
)


class ControllerMetrics(MetricsRegistry):
    """``process`` counts for client, server and elector; only their families of it are shown."""

    def __init__(self) -> None:
        super().__init__()
        self.process = SchedulerMetrics()
        self.status_writes_total = self.counter(
            "proreus_controller_status_writes_total",
            "ALPHA",
            "Writes of statuses, by resource and result (written, conflict, error).",
            "resource",
            "result",
        )
        self.statuses_due = self.gauge(
            "proreus_controller_statuses_due",
            "ALPHA",
            "Objects whose status has to be computed again.",
        )
        self.colocation_nodes = self.gauge(
            "proreus_controller_colocation_nodes",
            "ALPHA",
            "Nodes as of the latest cycle of colocation, by state (measured, stale).",
            "state",
        )
        self.rebalancing_cycles_total = self.counter(
            "proreus_controller_rebalancing_cycles_total",
            "ALPHA",
            "Cycles of the rebalancer, by result (done, error).",
            "result",
        )
        self.moves_advised = self.gauge(
            "proreus_controller_moves_advised",
            "ALPHA",
            "Pods that would have a better node, as of the latest cycle.",
        )
        self.evictions_total = self.counter(
            "proreus_controller_evictions_total",
            "ALPHA",
            "Evictions asked for, by result (evicted, gone, refused, error).",
            "result",
        )

    def families(self) -> list[AnyFamily]:
        """Return the controller's own families and the process's."""
        others = self.process.families()
        shown = [one for one in others if one.description.name.startswith(_OF_THE_PROCESS)]
        return [*super().families(), *shown]
