"""``proreus controller``: statuses of custom resources, colocation, and rebalancing."""

from __future__ import annotations

import asyncio
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click

from proreus.base.errors import ConfigError
from proreus.controller.options import (
    DEFAULT_STATUS_KINDS,
    STATUS_KINDS,
    ColocationOptions,
    ControllerOptions,
    RebalancingOptions,
)

_option = partial(click.option, show_default=True)


@click.command("controller", short_help="Write statuses of groups and quotas; rebalance pods.")
@click.option("--kubeconfig", default="", help="Default: the service account of the pod.")
@click.option("--master", default="", help="URL of the apiserver, instead of the kubeconfig's.")
@_option("--bind-address", default="127.0.0.1", help="Address to listen on.")
@_option("--secure-port", default=10269, help="Port of metrics and health; 0 for none.")
@click.option(
    "--cert-dir",
    default="",
    help="Folder of the serving certificate; by default it is self-signed.",
)
@click.option("--tls-cert-file", default="", help="Serving certificate.")
@click.option("--tls-private-key-file", default="", help="Key of that certificate.")
@_option("--leader-elect-resource-name", default="proreus-controller")
@_option("--leader-elect-resource-namespace", default="kube-system")
@_option("--leader-elect-lease-duration", default=15.0, help="Seconds.")
@_option("--leader-elect-renew-deadline", default=10.0, help="Seconds.")
@_option("--leader-elect-retry-period", default=2.0, help="Seconds.")
@click.option(
    "--status",
    "statuses",
    multiple=True,
    type=click.Choice(STATUS_KINDS),
    help="Kind of object to write statuses of; may be repeated. Default: podgroups and "
    "elasticquotas. Name another kind only where its own controller does not run.",
)
@click.option("--no-status", is_flag=True, help="Write no statuses.")
@_option(
    "--rebalance-period",
    default=0.0,
    help="Seconds between two searches for pods that would have a better node; 0 for none.",
)
@click.option(
    "--evict", is_flag=True, help="Evict such pods, within the budgets. Default: only report."
)
@click.option(
    "--rebalance-config",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The scheduler's KubeSchedulerConfiguration. Default: kube-scheduler's.",
)
@_option("--min-gain", default=20, help="Points by which the better node's score must be higher.")
@_option("--max-pods", default=500, help="Most pods to examine in a period.")
@_option("--max-evictions", default=5, help="Most pods to evict in a period.")
@_option("--max-evictions-per-namespace", default=2, help="Most of them in a namespace.")
@_option(
    "--cooldown",
    default=1800.0,
    help="Seconds after an eviction in which the workload is left alone.",
)
@_option(
    "--colocation-period",
    default=0.0,
    help="Seconds between two computations of each node's resources for offline pods; 0 for none.",
)
@click.option(
    "--evict-offline",
    is_flag=True,
    help="Evict offline pods where online pods need their resources, within the budgets.",
)
@_option(
    "--colocation-margin",
    default=30,
    help="Percent of a node's allocatable that offline pods never get.",
)
@_option(
    "--colocation-hysteresis",
    default=5,
    help="Percent of a node's allocatable; smaller changes are not written at once.",
)
@_option(
    "--colocation-max-age",
    default=180.0,
    help="Seconds after which a measurement no longer counts.",
)
@click.option("-v", "--v", "verbosity", default=0, help="Verbosity of the log, as klog's.")
@click.option("--logging-format", type=click.Choice(["text", "json"]), default="text")
def command(**flags: Any) -> int:
    """Write the statuses of PodGroups, ElasticQuotas and queues, and rebalance pods.

    Only the instance that holds the Lease works. It keeps no state, so it may be killed at any
    time. See docs/controller.md.
    """
    if find_spec("kopf") is None:
        raise ConfigError("kopf is not installed: pip install 'proreus[controller]'")

    import uvloop

    from proreus.controller.run import run

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(run(options_of(flags)))


def options_of(flags: dict[str, Any]) -> ControllerOptions:
    """Return the options from the flags."""
    from proreus.client.leading.leader_election_config import LeaseOptions
    from proreus.server.options import AuthenticationOptions, AuthorizationOptions, ServingOptions

    statuses = flags["statuses"] or DEFAULT_STATUS_KINDS
    return ControllerOptions(
        kubeconfig=flags["kubeconfig"],
        server=flags["master"],
        lease=LeaseOptions(
            flags["leader_elect_resource_namespace"],
            flags["leader_elect_resource_name"],
            flags["leader_elect_lease_duration"],
            flags["leader_elect_renew_deadline"],
            flags["leader_elect_retry_period"],
        ),
        serving=ServingOptions(
            bind_address=flags["bind_address"],
            secure_port=flags["secure_port"],
            cert_dir=flags["cert_dir"],
            tls_cert_file=flags["tls_cert_file"],
            tls_private_key_file=flags["tls_private_key_file"],
            authentication=AuthenticationOptions(kubeconfig=flags["kubeconfig"]),
            authorization=AuthorizationOptions(kubeconfig=flags["kubeconfig"]),
        ),
        rebalancing=RebalancingOptions(
            period_seconds=flags["rebalance_period"],
            evict=flags["evict"],
            min_gain=flags["min_gain"],
            max_pods=flags["max_pods"],
            max_evictions=flags["max_evictions"],
            max_evictions_per_namespace=flags["max_evictions_per_namespace"],
            cooldown_seconds=flags["cooldown"],
            config=flags["rebalance_config"],
        ),
        colocation=ColocationOptions(
            period_seconds=flags["colocation_period"],
            evict_offline=flags["evict_offline"],
            margin_percent=flags["colocation_margin"],
            hysteresis_percent=flags["colocation_hysteresis"],
            max_age_seconds=flags["colocation_max_age"],
        ),
        statuses=() if flags["no_status"] else tuple(statuses),
        verbosity=flags["verbosity"],
        logging_format=flags["logging_format"],
    )
