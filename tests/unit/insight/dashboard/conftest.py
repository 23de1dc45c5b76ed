"""A small cluster with a scheduler, its dashboard, and a browser's requests to it."""

from __future__ import annotations

import re
from typing import Any

import aiohttp
import pytest

from proreus.base.feature_gates import FeatureGates
from proreus.config.load import default_configuration
from proreus.engine.runtime.registry import Registry
from proreus.insight.dashboard import Dashboard
from proreus.insight.decisions.recorder import DecisionRecorder
from proreus.insight.dry_run.service import DryRunService
from proreus.insight.explain import Explainer
from proreus.insight.page_sources import PageSources
from proreus.objects.kinds import PODS
from proreus.offline.cluster import OfflineCluster
from proreus.plugins import IN_TREE_PLUGINS

ZONE = "topology.kubernetes.io/zone"


def node(name: str, cpu: str = "4", **labels: str) -> Any:
    amounts = {"cpu": cpu, "memory": "16Gi", "pods": "110"}
    return {
        "kind": "Node",
        "metadata": {"name": name, "uid": name, "labels": labels},
        "status": {"allocatable": amounts, "capacity": amounts},
    }


def pod(name: str, cpu: str = "1", **spec: Any) -> Any:
    container = {"name": "c", "resources": {"requests": {"cpu": cpu}}}
    return {
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "uid": name},
        "spec": {"schedulerName": "default-scheduler", "containers": [container], **spec},
    }


class World:
    """A scheduler with three nodes, and what a dashboard shows of it."""

    node = staticmethod(node)
    pod = staticmethod(pod)

    def __init__(self) -> None:
        gates, registry = FeatureGates(), Registry(IN_TREE_PLUGINS)
        self.cluster = OfflineCluster(default_configuration(registry, gates), registry, gates)
        self.scheduler = self.cluster.scheduler
        clock = self.cluster.clock
        recorder = DecisionRecorder.of(self.scheduler, clock)
        pods = self.cluster.api.store(PODS)
        self.standby = ""
        self.reload: dict[str, Any] | None = None
        self.plugins: list[dict[str, Any]] = []
        self.sources = PageSources(
            self.scheduler,
            Explainer(self.scheduler, recorder, pods, clock),
            pods,
            standby=lambda: self.standby,
            synced=lambda: True,
            last_reload=lambda: self.reload,
            plugin_health=lambda: {"plugins": self.plugins},
            version="0.1",
            clock=clock,
            dry_runs=lambda: self.dry_runs,
        )
        self.dry_runs = DryRunService(self.cluster.assembly)
        for number in range(3):
            self.cluster.api.add(node(f"n{number}", **{ZONE: f"z{number % 2}"}))

    def node_of(self, name: str) -> str:
        return str(self.sources.pods[f"default/{name}"].spec.node_name)

    async def schedule(self, *pods: Any) -> None:
        for one in pods:
            self.cluster.api.add(one)
        while await self.cluster.schedule_next() is not None:
            pass


class Browser:
    """Asks for pages; ``text`` is what is left of one without its markup."""

    def __init__(self, session: aiohttp.ClientSession, base: str) -> None:
        self.session = session
        self.base = base
        self.html = ""
        self.headers: Any = {}

    async def get(self, path: str, **options: Any) -> int:
        options.setdefault("allow_redirects", False)
        async with self.session.get(f"{self.base}{path}", **options) as answer:
            self.html = await answer.text()
            self.headers = answer.headers
            return answer.status

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", self.html))


@pytest.fixture
async def world() -> World:
    return World()


@pytest.fixture
async def browser(world: World):
    """Return a browser of the address without authentication."""
    dashboard = Dashboard(world.sources, ("127.0.0.1", 0))
    await dashboard.start()
    async with aiohttp.ClientSession() as session:
        yield Browser(session, dashboard.local_url.removesuffix("/dashboard/"))
    await dashboard.stop()
