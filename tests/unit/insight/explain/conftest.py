"""A recorded offline cluster that can be asked."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from proreus.base.feature_gates import FeatureGates
from proreus.config.load import default_configuration, load
from proreus.engine.runtime.registry import Registry
from proreus.insight.decisions.recorder import DecisionRecorder
from proreus.insight.explain import Explainer
from proreus.objects.kinds import PODS
from proreus.offline.api import InMemoryApi
from proreus.offline.cluster import OfflineCluster, OfflineOptions
from proreus.offline.fake_extenders import FakeExtenders
from proreus.plugins import IN_TREE_PLUGINS
from unit.offline_objects import node as node
from unit.offline_objects import pod as pod


class World:
    """A cluster in which pods are scheduled one after another, and explained."""

    def __init__(
        self,
        runner: asyncio.Runner,
        gates: FeatureGates | None = None,
        plugins: Any = (),
        configuration: Any = None,
        extenders: Any = None,
    ) -> None:
        """``extenders``: their behaviours by URL."""
        gates, registry = gates or FeatureGates(), Registry([*IN_TREE_PLUGINS, *plugins])
        self._runner = runner

        async def build() -> OfflineCluster:
            if configuration is None:
                loaded = default_configuration(registry, gates)
            else:
                loaded = load(configuration, registry, gates)
            api = InMemoryApi()
            options = OfflineOptions()
            if extenders is not None:
                transport = FakeExtenders(extenders, api).transport
                options = OfflineOptions(use_extenders=True, extender_transport=transport)
            return OfflineCluster(loaded, registry, gates, options, api)

        self.cluster = runner.run(build())
        self.scheduler = self.cluster.scheduler
        self.recorder = DecisionRecorder.of(self.scheduler, self.cluster.clock)
        self.explainer = Explainer(
            self.scheduler, self.recorder, self.cluster.api.store(PODS), self.cluster.clock
        )

    def add(self, *objects: Any) -> None:
        for obj in objects:
            self.cluster.api.add(obj)

    def schedule(self, *pods: Any, attempts: int = 10_000) -> None:
        """``attempts``: at most; 1.36 tries a group that backs off whenever nothing else waits."""
        self.add(*pods)

        async def run() -> None:
            for _ in range(attempts):
                if await self.cluster.schedule_next() is None:
                    return

        self._runner.run(run())

    def settle(self) -> None:
        """Let binding cycles go on as far as they can."""
        self._runner.run(self.cluster.settle())

    def explain(self, name: str, **options: Any) -> Any:
        return self.explainer.pod("default", name, **options)


@pytest.fixture
def make_world() -> Iterator[Callable[..., World]]:
    with asyncio.Runner() as runner:
        yield lambda **options: World(runner, **options)


@pytest.fixture
def world(make_world: Callable[..., World]) -> World:
    return make_world()
