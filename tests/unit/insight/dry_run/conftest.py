"""An offline cluster that can be asked where pods would be placed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest

from proreus.base.feature_gates import FeatureGates
from proreus.config.load import default_configuration
from proreus.engine.runtime.registry import Registry
from proreus.insight.dry_run.api import DryRunSpec, DryRunStatus
from proreus.insight.dry_run.service import DryRunService
from proreus.offline.cluster import OfflineCluster, OfflineOptions
from proreus.plugins import IN_TREE_PLUGINS
from unit.offline_objects import node as node
from unit.offline_objects import pod as pod

_OPTIONS = OfflineOptions()


class World:
    """A cluster in which pods are scheduled one after another, and dry runs are made."""

    def __init__(
        self,
        runner: asyncio.Runner,
        plugins: Any = (),
        configure: Callable[[Registry, FeatureGates], Any] = default_configuration,
        options: OfflineOptions = _OPTIONS,
        **service: Any,
    ) -> None:
        gates = FeatureGates()
        registry = Registry((*IN_TREE_PLUGINS, *plugins))
        self._runner = runner

        async def build() -> None:
            config = configure(registry, gates)
            self.cluster = OfflineCluster(config, registry, gates, options)
            self.service = DryRunService(self.cluster.assembly, **service)

        runner.run(build())
        self.scheduler = self.cluster.scheduler

    def add(self, *objects: Any) -> None:
        for obj in objects:
            self.cluster.api.add(obj)

    def schedule(self, *pods: Any) -> None:
        self.add(*pods)

        async def run() -> None:
            while await self.cluster.schedule_next() is not None:
                pass

        self._runner.run(run())

    def run(self, work: Any) -> Any:
        return self._runner.run(work)

    def ask(self, *pods: Any, **fields: Any) -> DryRunStatus:
        with self.service.admit():
            return self._runner.run(self.service.answer(spec(*pods, **fields)))


def spec(*pods: Any, **fields: Any) -> DryRunSpec:
    items = [one if "pod" in one else {"pod": one} for one in pods]
    return msgspec.json.decode(msgspec.json.encode({"pods": items, **fields}), type=DryRunSpec)


@pytest.fixture
def make_world() -> Iterator[Callable[..., World]]:
    with asyncio.Runner() as runner:
        yield lambda **options: World(runner, **options)


@pytest.fixture
def world(make_world: Callable[..., World]) -> World:
    return make_world()
