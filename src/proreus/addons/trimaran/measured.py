"""What the plugins of the family share: metrics that are read in the background, and their age.

While metrics are missing or stale, all nodes score 0: equally, so that other plugins decide. The
gauge ``proreus_trimaran_stale_metrics`` is 1 then, and the log says so once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Iterable

from proreus.addons.trimaran.args import TrimaranArgs
from proreus.addons.trimaran.metrics import WatcherMetrics
from proreus.addons.trimaran.providers import provider_of
from proreus.framework import (
    ApiError,
    BackgroundPlugin,
    ClusterEvent,
    CycleState,
    Handle,
    NodeInfo,
    NodeTable,
    PodInfo,
    ScorePlugin,
    logger,
)
from proreus.objects import Pod, ResourceRequirements, parse_amount

log = logger(__name__)

REFRESH_SECONDS = 30.0
_DEFAULT_WINDOW_SECONDS = 900.0


class MeasuredScorePlugin(ScorePlugin, BackgroundPlugin):
    """A plugin that scores by ``measured``, None while there are no fresh metrics."""

    row_local = True

    def __init__(self, args: TrimaranArgs, handle: Handle) -> None:
        super().__init__(args, handle)
        self._provider = provider_of(args, handle)
        self._latest: WatcherMetrics | None = None
        self.measured: WatcherMetrics | None = None
        self._generation = 0
        stale = handle.metrics.gauge(
            "proreus_trimaran_stale_metrics",
            "ALPHA",
            "Whether the metrics that a plugin scores by are missing or too old (1) or not (0).",
            "plugin",
        )
        self._stale = stale.labels(self.name)
        self._reported = ""

    def events_to_register(self) -> Iterable[ClusterEvent]:
        """Register nothing: the plugin rejects no pod."""
        return []

    def invalidation_key(self, nodes: NodeTable) -> Hashable:
        """Return which metrics results were made of."""
        return self._generation

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        """Score one node; 0 without fresh metrics."""
        return 0 if self.measured is None else self.score_measured(self.measured, pod, node)

    def score_measured(self, measured: WatcherMetrics, pod: PodInfo, node: NodeInfo) -> int:
        """Score one node by fresh metrics."""
        raise NotImplementedError

    async def run_in_background(self) -> None:
        """Read metrics every 30 seconds."""
        while True:
            try:
                self._latest = await self._provider.read()
                self._reported = ""
            except ApiError as error:
                # What was read before is used until it is too old.
                if str(error) != self._reported:
                    self._reported = str(error)
                    log.warning("Cannot read metrics of nodes", err=error, plugin=self.name)
            self.use(self._latest)
            await asyncio.sleep(REFRESH_SECONDS)

    def use(self, metrics: WatcherMetrics | None) -> None:
        """Score by these metrics from now on, unless they are too old."""
        stale = metrics is None or self._is_stale(metrics)
        if stale and not self._stale.value:
            log.warning("Metrics of nodes are missing or too old: all score 0", plugin=self.name)
        self._stale.set(float(stale))
        measured = None if stale else metrics
        if measured is not self.measured:
            self.measured = measured
            self._generation += 1

    def _is_stale(self, metrics: WatcherMetrics) -> bool:
        window = metrics.window
        seconds = window.end - window.start
        if seconds <= 0:
            seconds = _DEFAULT_WINDOW_SECONDS
        age = self.handle.clock.now() - window.end
        limit: float = self.args.staleness_windows * seconds
        return age > limit


def effective_amounts(pod: Pod, *, limits: bool = False, overhead: bool = True) -> dict[str, int]:
    """Return a pod's requests (or limits) of cpu and memory: milli-CPU, bytes.

    The sum of the containers or, where that is more, an init container alone; then ``overhead``.
    Sidecars count as plain init containers, as in the original.
    """
    found = {}
    for resource in ("cpu", "memory"):
        total = sum(_amount(c.resources, resource, limits) for c in pod.spec.containers)
        alone = [_amount(c.resources, resource, limits) for c in pod.spec.init_containers]
        found[resource] = max([total, *alone])
        if overhead:
            found[resource] += parse_amount(resource, pod.spec.overhead.get(resource, 0))
    return found


def _amount(resources: ResourceRequirements, resource: str, limits: bool) -> int:
    amounts = resources.limits if limits else resources.requests
    return parse_amount(resource, amounts.get(resource, 0))
