"""The flags of ``proreus controller``, parsed."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from proreus.base.errors import ConfigError

if TYPE_CHECKING:
    from proreus.base.logs import Format
    from proreus.client.leading.leader_election_config import LeaseOptions
    from proreus.server.options import ServingOptions

STATUS_KINDS = (
    "podgroups",
    "elasticquotas",
    "reservations",
    "volcano-podgroups",
    "volcano-queues",
    "kai-queues",
)
DEFAULT_STATUS_KINDS = STATUS_KINDS[:2]


@dataclass(frozen=True)
class RebalancingOptions:
    """The period of the rebalancer, its budgets, and whether it evicts.

    ``period_seconds``: of its cycles; 0 = none. ``min_gain``: by how many points the total score
    of another node has to be higher, of 100 that a plugin of weight 1 gives at most. ``max_pods``:
    how many pods one cycle examines. ``max_evictions`` and ``max_evictions_per_namespace``:
    budgets of any period. ``cooldown_seconds``: how long a workload is left alone after an
    eviction, the memory against ping-pong. ``config``: the scheduler's configuration file, None
    for kube-scheduler's default one.
    """

    period_seconds: float = 0.0
    evict: bool = False
    min_gain: int = 20
    max_pods: int = 500
    max_evictions: int = 5
    max_evictions_per_namespace: int = 2
    cooldown_seconds: float = 1800.0
    config: Path | None = None

    def __post_init__(self) -> None:
        if self.evict and not self.period_seconds:
            raise ConfigError("--evict needs --rebalance-period")


@dataclass(frozen=True)
class ColocationOptions:
    """The period of batch resources of nodes, and the eviction of offline pods.

    ``period_seconds``: of the cycles; 0 = none. ``margin_percent``: what of a node's allocatable
    offline pods never get. ``hysteresis_percent``: changes up to that part of the allocatable are
    not written at once, and evictions go on until use is below the margin by as much.
    ``max_age_seconds``: older measurements do not count.
    """

    period_seconds: float = 0.0
    evict_offline: bool = False
    margin_percent: int = 30
    hysteresis_percent: int = 5
    max_age_seconds: float = 180.0

    def __post_init__(self) -> None:
        if self.evict_offline and not self.period_seconds:
            raise ConfigError("--evict-offline needs --colocation-period")
        if self.margin_percent < 0 or self.hysteresis_percent < 0:
            raise ConfigError("--colocation-margin and --colocation-hysteresis are not negative")
        if self.margin_percent + self.hysteresis_percent >= 100:
            raise ConfigError(
                "--colocation-margin and --colocation-hysteresis are less than 100 together"
            )


@dataclass(frozen=True)
class ControllerOptions:
    """All options of a controller process.

    ``statuses``: the kinds of ``STATUS_KINDS`` whose statuses are written.
    """

    kubeconfig: str = ""
    server: str = ""
    lease: LeaseOptions = field(default_factory=lambda: _default_lease())
    serving: ServingOptions = field(default_factory=lambda: _default_serving())
    statuses: tuple[str, ...] = DEFAULT_STATUS_KINDS
    rebalancing: RebalancingOptions = field(default_factory=RebalancingOptions)
    colocation: ColocationOptions = field(default_factory=ColocationOptions)
    verbosity: int = 0
    logging_format: Format = "text"

    @property
    def remember_evictions_seconds(self) -> float:
        """For how long budgets and cooldown need to know of an eviction."""
        return max(
            self.rebalancing.cooldown_seconds,
            self.rebalancing.period_seconds,
            self.colocation.period_seconds,
        )


# Imported there, since `proreus --help` imports this module, and does without msgspec.


def _default_lease() -> LeaseOptions:
    from proreus.client.leading.leader_election_config import LeaseOptions

    return LeaseOptions()


def _default_serving() -> ServingOptions:
    from proreus.server.options import ServingOptions

    return ServingOptions()
