"""``proreus controller``: statuses of custom resources, colocation, and rebalancing."""

from __future__ import annotations

import asyncio
from functools import partial
from importlib.util import find_spec
from typing import Any

import click

from proreus.base.errors import ConfigError
from proreus.controller.options import ControllerOptions
from proreus.process.cli.documented_options import with_options_of


@click.command("controller", short_help="Write statuses of groups and quotas; rebalance pods.")
@partial(with_options_of, ControllerOptions)
def command(**flags: Any) -> int:
    """Write the statuses of PodGroups, ElasticQuotas and queues, and rebalance pods.

    Only the instance that holds the Lease works. It keeps no state, so it may be killed at any
    time. See docs/controller.md.
    """
    if find_spec("kopf") is None:
        raise ConfigError("kopf is not installed: pip install 'kopf>=1.45'")

    import uvloop

    from proreus.controller.run import run

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(run(ControllerOptions(**flags)))
