"""Metrics that are read in the background, and their age.

While they are missing or too old, ``measured`` is None and no plugin looks at the use of any node:
other plugins decide. The gauge ``proreus_stale_node_metrics`` is 1 then, and the log says so once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable

from proreus.addons.node_metrics.metrics import WatcherMetrics
from proreus.addons.node_metrics.providers import NodeMetricsArgs, provider_of
from proreus.framework import ApiError, BackgroundPlugin, Handle, NodeTable, logger

log = logger(__name__)

REFRESH_SECONDS = 30.0


class NodeMetricsReader(BackgroundPlugin):
    """A plugin that reads metrics of nodes; ``measured`` is None while there are no fresh ones.

    Results of a ``row_local`` plugin hold until other metrics are used, or the row changes.
    """

    row_local = True

    def __init__(self, args: NodeMetricsArgs, handle: Handle) -> None:
        super().__init__(args, handle)
        self._provider = provider_of(args, handle)
        self._latest: WatcherMetrics | None = None
        self.measured: WatcherMetrics | None = None
        self._generation = 0
        stale = handle.metrics.gauge(
            "proreus_stale_node_metrics",
            "ALPHA",
            "Whether metrics of nodes that a plugin reads are missing or too old (1) or not (0).",
            "plugin",
        )
        self._stale = stale.labels(self.name)
        self._reported = ""

    def invalidation_key(self, nodes: NodeTable) -> Hashable:
        """Return the generation of the metrics."""
        return self._generation

    def is_stale(self, metrics: WatcherMetrics) -> bool:
        """Return whether metrics are too old."""
        raise NotImplementedError

    async def run_in_background(self) -> None:
        """Read metrics every 30 seconds."""
        while True:
            try:
                self._latest = await self._provider.read()
                self._reported = ""
            except ApiError as error:
                # The last metrics are used until they are too old.
                if str(error) != self._reported:
                    self._reported = str(error)
                    log.warning("Cannot read metrics of nodes", err=error, plugin=self.name)
            self.use(self._latest)
            await asyncio.sleep(REFRESH_SECONDS)

    def use(self, metrics: WatcherMetrics | None) -> None:
        """Use these metrics from now on, unless they are too old."""
        stale = metrics is None or self.is_stale(metrics)
        if stale and not self._stale.value:
            log.warning("Metrics of nodes are missing or too old: not used", plugin=self.name)
        self._stale.set(float(stale))
        measured = None if stale else metrics
        if measured is not self.measured:
            self.measured = measured
            self._generation += 1
