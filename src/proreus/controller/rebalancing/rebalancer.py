"""The cycles of the rebalancer: finish planned evictions, look for better nodes, advise, evict."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from proreus.base import logs
from proreus.base.errors import ApiError, ConfigError
from proreus.base.feature_gates import FeatureGates
from proreus.base.kubernetes_version import DEFAULT_VERSION, KubernetesVersion
from proreus.client.http.session import ApiClient
from proreus.config.load import default_configuration, load_file
from proreus.controller.controller_metrics import ControllerMetrics
from proreus.controller.evictions.budgets import EvictionBudget
from proreus.controller.evictions.eviction_record import RecordedEviction, UnreadableRecord
from proreus.controller.evictions.pod_evictor import PodEvictor
from proreus.controller.evictions.safe_to_evict import SAFE_TO_EVICT
from proreus.controller.options import ControllerOptions
from proreus.controller.rebalancing.better_nodes import (
    Move,
    find_better_nodes,
    is_movable,
)
from proreus.insight.snapshots.cluster_objects import ClusterObjects
from proreus.insight.snapshots.snapshot import take_snapshot
from proreus.objects.kinds import PODS
from proreus.process.loading.load import PluginSources, load
from proreus.workbench.simulation.controllers import Controllers
from proreus.workbench.simulation.simulated_cluster import Settings

log = logs.logger(__name__)


def settings_of(
    config: Path | None,
    version: KubernetesVersion = DEFAULT_VERSION,
    plugin_folders: tuple[str, ...] = (),
) -> Settings:
    """Return the scheduler's configuration for simulations, or None for the default.

    Raises ``ConfigError``.
    """
    gates = FeatureGates.from_list((), version)
    loaded = load(PluginSources(folders=plugin_folders))
    if config is None:
        configuration = default_configuration(loaded.registry, gates, loaded.default_plugins())
    else:
        configuration = load_file(str(config), loaded.registry, gates)
        if problems := loaded.problems(configuration):
            raise ConfigError(*problems)
    return Settings(configuration, loaded.registry, gates)


class Rebalancer:
    """Runs cycles until cancelled. ``advice`` has the moves that the latest cycle has proved."""

    def __init__(
        self,
        client: ApiClient,
        settings: Settings,
        options: ControllerOptions,
        evictor: PodEvictor,
        metrics: ControllerMetrics,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._client = client
        self._settings = settings
        self._options = options
        self._evictor = evictor
        self._metrics = metrics
        self._now = now
        self._stopped = threading.Event()
        self._last_examined = ""
        self.advice: Sequence[Move] = ()
        metrics.moves_advised.set_function(lambda: {(): len(self.advice)})

    def describe(self) -> dict[str, Any]:
        """Return the advice as JSON, for a page."""
        return {"evicts": self._options.evict, "moves": [asdict(move) for move in self.advice]}

    async def run(self) -> None:
        """Run a cycle each period; one that fails is logged, and the next one tries again."""
        try:
            while True:
                started = time.monotonic()
                try:
                    await self.cycle()
                    result = "done"
                except (ApiError, UnreadableRecord) as error:
                    log.warning("A cycle of the rebalancer failed", err=str(error))
                    result = "error"
                self._metrics.rebalancing_cycles_total.labels(result).inc()
                spent = time.monotonic() - started
                await asyncio.sleep(max(1.0, self._options.rebalance_period - spent))
        finally:
            self._stopped.set()

    async def cycle(self) -> None:
        """Run one cycle; raises ``ApiError``."""
        options = self._options
        if options.evict:
            # Evictions planned by a killed process change which nodes are better.
            await self._evictor.finish()
        kept = frozenset({SAFE_TO_EVICT})
        objects, _ = await take_snapshot(self._client, kept)
        self.advice = await asyncio.to_thread(
            find_better_nodes,
            objects,
            self._settings,
            self._candidates(objects),
            options.min_gain,
            self._stopped.is_set,
        )
        for move in self.advice:
            log.info("A pod would have a better node", **asdict(move))
        if options.evict:
            await self._evictor.evict(self._choose)

    def _candidates(self, objects: ClusterObjects) -> list[str]:
        """Return the pods to examine in this cycle, after the last one examined."""
        controllers = Controllers(objects)
        keys = sorted(k for k, pod in objects.of(PODS).items() if is_movable(pod, controllers))
        later = [key for key in keys if key > self._last_examined]
        in_order = [*later, *keys[: len(keys) - len(later)]][: self._options.max_pods]
        self._last_examined = in_order[-1] if in_order else ""
        return in_order

    def _choose(self, recorded: list[RecordedEviction]) -> list[RecordedEviction]:
        now = self._now()
        return [
            RecordedEviction(move.pod, move.uid, move.workload, move.node, now)
            for move in choose(self.advice, recorded, self._options, now)
        ]


def choose(
    moves: Iterable[Move],
    recorded: Sequence[RecordedEviction],
    options: ControllerOptions,
    now: float,
) -> list[Move]:
    """Return the moves to make, the best first; ``now``: Unix seconds.

    A workload is left alone for the cooldown, whichever of its pods was evicted, or could not be:
    its successor may be the next that would be better elsewhere.
    """
    budget = EvictionBudget(recorded, now - options.rebalance_period, options)
    resting = {one.workload for one in recorded if one.at > now - options.cooldown}
    chosen: list[Move] = []
    for move in sorted(moves, key=lambda move: (-move.gain, move.pod)):
        if move.workload not in resting and budget.take(move.pod, move.uid):
            chosen.append(move)
            resting.add(move.workload)
    return chosen
