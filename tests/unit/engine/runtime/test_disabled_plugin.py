"""The class that stands for a plugin none of whose code may run."""

from __future__ import annotations

from typing import Any

import pytest

from proreus.base.feature_gates import FeatureGates
from proreus.base.kubernetes_version import V1_37
from proreus.config.fields import PluginArgs
from proreus.config.load import load
from proreus.engine.runtime.disabled_plugin import never_called
from proreus.engine.runtime.registry import Registry
from proreus.framework.extension_points import POINTS, points_of
from proreus.framework.plugin import (
    BackgroundPlugin,
    FilterPlugin,
    Plugin,
    QueueSortPlugin,
    ScorePlugin,
)
from proreus.objects.kinds import NODES, PODS
from proreus.offline.cluster import OfflineCluster
from proreus.plugins import IN_TREE_PLUGINS
from proreus.testing import make_node, make_pod
from proreus.testing.profiles import profile_with

UNSIGNED = frozenset({"placementGenerate", "placementScore"})


class Args(PluginArgs):
    size: int = 0


def called(*_: Any, **__: Any) -> Any:
    raise AssertionError("it was called")


def forbidden(*bases: type[Plugin]) -> type[Plugin]:
    """Return a plugin of some extension points each of whose methods raises."""
    methods = {
        name: called
        for base in (*bases, Plugin)
        for name, value in vars(base).items()
        if callable(value) and not name.startswith("__")
    }
    namespace = {"__module__": "somebody", "Args": Args, "__init__": called, **methods}
    return type("Forbidden", bases, namespace)


@pytest.mark.parametrize("point", sorted(POINTS.keys() - UNSIGNED))
async def test_no_code_of_it_runs_and_pods_are_bound(point):
    replaced = never_called(forbidden(POINTS[point], BackgroundPlugin), "it blocked")
    assert points_of(replaced) == {point}
    assert (replaced.name, replaced.Args) == ("Forbidden", Args)
    gates = FeatureGates(emulation_version=V1_37)
    registry = Registry((*IN_TREE_PLUGINS, replaced))
    config = load(
        profile_with([replaced], {"Forbidden": {"size": 3}}, {}, alone=False), registry, gates
    )
    cluster = OfflineCluster(config, registry, gates)
    for number in range(12):
        cluster.api.put(NODES, make_node(f"n{number}"))
    for number in range(3):
        cluster.api.put(PODS, make_pod(f"p{number}").pod)
        await cluster.schedule_next()
    assert all(pod.spec.node_name for pod in cluster.api.store(PODS).values())
    profile = cluster.scheduler.profiles["default-scheduler"]
    (shown,) = [health.describe() for health in profile.health_monitors]
    assert shown["skipped"]
    assert (shown["skippedBecause"], shown["triedAgainInSeconds"]) == ("it blocked", None)
    gauge = cluster.metrics.plugin_skipped.labels("Forbidden", "default-scheduler")
    assert gauge.value == 1
    cluster.advance(3600)
    assert profile.health_monitors[0].disabled


def test_it_is_out_of_the_way_of_the_equivalence_cache():
    replaced = never_called(forbidden(FilterPlugin, ScorePlugin), "")
    assert replaced.row_local
    assert not replaced.looks_at_pods
    made: Any = replaced(None, None)  # type: ignore[arg-type]
    assert made.sign(None) == made.sign(None) is not None
    assert tuple(made.events_to_register()) == ()


def test_the_queue_keeps_an_order():
    class Queued:
        def __init__(self, priority: int, timestamp: float) -> None:
            self.info = type("Info", (), {"priority": priority})
            self.timestamp = timestamp

    made: Any = never_called(forbidden(QueueSortPlugin), "")(None, None)  # type: ignore[arg-type]
    first, second, third = Queued(5, 2.0), Queued(0, 1.0), Queued(0, 2.0)
    assert sorted((third, second, first), key=made.sort_key) == [first, second, third]
