"""The flags of ``proreus controller``, parsed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, get_args

import click

from proreus.base.errors import ConfigError

StatusKind = Literal[
    "podgroups",
    "elasticquotas",
    "reservations",
    "volcano-podgroups",
    "volcano-queues",
    "kai-queues",
]
DEFAULT_STATUS_KINDS: tuple[StatusKind, ...] = get_args(StatusKind)[:2]


@dataclass(frozen=True)
class ControllerOptions:
    """All options of a controller process, by the names of their flags.

    --kubeconfig
        Default: the service account of the pod.
    --master
        URL of the apiserver, instead of the kubeconfig's.
    --bind-address
        Address to listen on. [default]
    --secure-port
        Port of metrics and health; 0 for none. [default]
    --cert-dir
        Folder of the serving certificate; by default it is self-signed.
    --tls-cert-file
        Serving certificate.
    --tls-private-key-file
        Key of that certificate.
    --leader-elect-resource-name
        Name of the Lease. [default]
    --leader-elect-resource-namespace
        Namespace of the Lease, and of the record of evictions. [default]
    --leader-elect-lease-duration
        Seconds. [default]
    --leader-elect-renew-deadline
        Seconds. [default]
    --leader-elect-retry-period
        Seconds. [default]
    --status
        Kind of object to write statuses of; may be repeated. Default: podgroups and elasticquotas.
        Name another kind only where its own controller does not run.
    --no-status
        Write no statuses.
    --rebalance-period
        Seconds between two searches for pods that would have a better node; 0 for none. [default]
    --evict
        Evict such pods, within the budgets. Default: only report.
    --rebalance-config
        The scheduler's KubeSchedulerConfiguration. Default: kube-scheduler's.
    --plugin-dir
        Folder with .py files of plugins that it enables; may be repeated.
    --min-gain
        Points by which the better node's score must be higher. [default]
    --max-pods
        Most pods to examine in a period. [default]
    --max-evictions
        Most pods to evict in a period. [default]
    --max-evictions-per-namespace
        Most of them in a namespace. [default]
    --cooldown
        Seconds after an eviction in which the workload is left alone. [default]
    --colocation-period
        Seconds between two computations of each node's resources for offline pods; 0 for none.
        [default]
    --evict-offline
        Evict offline pods where online pods need their resources, within the budgets.
    --colocation-margin
        Percent of a node's allocatable that offline pods never get. [default]
    --colocation-hysteresis
        Percent of a node's allocatable; smaller changes are not written at once. [default]
    --colocation-max-age
        Seconds after which a measurement no longer counts. [default]
    -v, --v
        Verbosity of the log, as klog's.
    --logging-format
        Format of the log.
    """

    kubeconfig: str = ""
    master: str = ""
    bind_address: str = "127.0.0.1"
    secure_port: int = 10269
    cert_dir: str = ""
    tls_cert_file: str = ""
    tls_private_key_file: str = ""
    leader_elect_resource_name: str = "proreus-controller"
    leader_elect_resource_namespace: str = "kube-system"
    leader_elect_lease_duration: float = 15.0
    leader_elect_renew_deadline: float = 10.0
    leader_elect_retry_period: float = 2.0
    status: tuple[StatusKind, ...] = ()
    no_status: bool = False
    rebalance_period: float = 0.0
    evict: bool = False
    rebalance_config: Annotated[Path, click.Path(path_type=Path, dir_okay=False)] | None = None
    plugin_dir: tuple[str, ...] = ()
    min_gain: int = 20
    max_pods: int = 500
    max_evictions: int = 5
    max_evictions_per_namespace: int = 2
    cooldown: float = 1800.0
    colocation_period: float = 0.0
    evict_offline: bool = False
    colocation_margin: int = 30
    # Evictions go on until use is below the margin by as much.
    colocation_hysteresis: int = 5
    colocation_max_age: float = 180.0
    v: int = 0
    logging_format: Literal["text", "json"] = "text"

    def __post_init__(self) -> None:
        if self.evict and not self.rebalance_period:
            raise ConfigError("--evict needs --rebalance-period")
        if self.evict_offline and not self.colocation_period:
            raise ConfigError("--evict-offline needs --colocation-period")
        if self.colocation_margin < 0 or self.colocation_hysteresis < 0:
            raise ConfigError("--colocation-margin and --colocation-hysteresis are not negative")
        if self.colocation_margin + self.colocation_hysteresis >= 100:
            raise ConfigError(
                "--colocation-margin and --colocation-hysteresis are less than 100 together"
            )

    @property
    def statuses(self) -> tuple[StatusKind, ...]:
        """The kinds whose statuses are written."""
        return () if self.no_status else self.status or DEFAULT_STATUS_KINDS
