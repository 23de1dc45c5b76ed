"""The sources of the dashboard's pages: one scheduler and its surroundings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from proreus.base.clock import Clock, RealClock
from proreus.base.metrics import SchedulerMetrics
from proreus.engine.scheduler import Scheduler
from proreus.insight.dry_run.service import DryRunService
from proreus.insight.explain import Explainer
from proreus.objects.pod import Pod


@dataclass(frozen=True)
class PageSources:
    """One scheduler and its surroundings; the callables are called for each request.

    pods: all pods by ``namespace/name``.
    standby: returns why this instance decides nothing, "" if it decides.
    synced: returns whether all informers have their first list.
    last_reload: returns the result of the latest reload, None if there was none.
    plugin_health: returns the body of /pluginz.
    version: of proreus and of the kube-scheduler that it emulates, for people.
    changes: whether anything goes on, so that there are figures over time.
    dry_runs: returns what answers the what-if page, always the same; None: there is no such page.
    title: which process this is, in the head of each page.
    """

    scheduler: Scheduler
    explainer: Explainer
    pods: Mapping[str, Pod]
    standby: Callable[[], str]
    synced: Callable[[], bool]
    last_reload: Callable[[], Mapping[str, Any] | None] = lambda: None
    plugin_health: Callable[[], Mapping[str, Any]] = dict
    version: str = ""
    changes: bool = True
    dry_runs: Callable[[], DryRunService] | None = None
    title: str = "proreus"
    clock: Clock = field(default_factory=RealClock)

    @property
    def metrics(self) -> SchedulerMetrics:
        """The metrics of the scheduler."""
        return self.scheduler.metrics
