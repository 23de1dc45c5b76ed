"""``proreus simulate --open`` shows the cluster after a simulation in the browser."""

from __future__ import annotations

import asyncio
import webbrowser

import click

from proreus.insight.dashboard import Dashboard
from proreus.insight.decisions.recorder import DecisionRecorder
from proreus.insight.dry_run.service import DryRunService
from proreus.insight.explain import Explainer
from proreus.insight.page_sources import PageSources
from proreus.workbench.cli.sandbox import forever, run_until_signalled
from proreus.workbench.simulation.simulated_cluster import SimulatedCluster


class ResultPage:
    """Records a simulation's decisions, and serves them when it is over."""

    def __init__(self) -> None:
        self._sources: PageSources | None = None

    def watch(self, cluster: SimulatedCluster) -> None:
        """Record the decisions in a cluster from now on."""
        scheduler = cluster.scheduler
        queue = scheduler.queue
        recorder = DecisionRecorder(cluster.clock, lambda key: queue.get(key) is not None)
        scheduler.record(recorder)
        dry_runs = DryRunService(cluster.assembly)
        self._sources = PageSources(
            scheduler,
            Explainer(scheduler, recorder, cluster.pods, cluster.clock),
            cluster.pods,
            standby=str,
            synced=lambda: True,
            title="proreus simulate",
            clock=cluster.clock,
            changes=False,
            dry_runs=lambda: dry_runs,
        )

    def serve(self) -> None:
        """Serve the page on a free port of loopback until interrupted, and open it."""
        run_until_signalled(self._serve)

    async def _serve(self) -> None:
        assert self._sources is not None
        dashboard = Dashboard(self._sources, ("127.0.0.1", 0))
        await dashboard.start()
        try:
            # On standard error: the report on standard output may be read by a program.
            click.echo(f"the result: {dashboard.local_url} (Ctrl-C ends it)", err=True)
            # A browser may need long to start, or run in the terminal.
            await asyncio.to_thread(webbrowser.open, dashboard.local_url)
            await forever()
        finally:
            await dashboard.stop()
