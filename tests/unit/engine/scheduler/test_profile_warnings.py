"""Valid profiles that do nothing useful are warned about when they are loaded."""

from __future__ import annotations

from typing import Any

import pytest

from proreus.base.errors import ConfigError
from proreus.framework.events import (
    ADD,
    ALL,
    ALL_EVENTS,
    ASSIGNED_POD,
    DELETE,
    NODE,
    POD,
    STORAGE_CLASS,
    UNSCHEDULABLE_POD,
    UPDATE,
    UPDATE_NODE_LABEL,
    UPDATE_POD_LABEL,
    ClusterEvent,
    plugin_event,
)
from proreus.framework.plugin import BindPlugin, FilterPlugin, PostFilterPlugin
from proreus.framework.post_filter_result import PostFilterResult
from proreus.framework.status import Status
from proreus.testing import Harness, HarnessOptions, make_node, make_pod

CONFIG = {
    "apiVersion": "kubescheduler.config.k8s.io/v1",
    "kind": "KubeSchedulerConfiguration",
}
called: list[str] = []


class Binder(BindPlugin):
    """Records that it was called, and leaves binding to the next plugin."""

    async def bind(self, state: Any, pod: Any, node_name: str) -> Status | None:
        called.append(pod.name)
        return Status.skip()


def cluster_with(sets: dict[str, Any]) -> Harness:
    config = {**CONFIG, "profiles": [{"plugins": sets}]}
    return Harness([Binder], [make_node("n0")], config=config)


def warnings(caplog: pytest.LogCaptureFixture, text: str) -> list[dict[str, Any]]:
    return [r.__dict__["pairs"] for r in caplog.records if text in r.getMessage()]


def test_a_binder_after_the_default_one_is_warned_about(caplog) -> None:
    called.clear()
    cluster = cluster_with({"multiPoint": {"enabled": [{"name": "Binder"}]}})

    assert cluster.schedule(make_pod()).bound
    assert called == []
    [fields] = warnings(caplog, "Bind plugins are never called")
    assert fields["plugins"] == ["Binder"]
    assert "enabled: [{name: Binder}, {name: DefaultBinder}]" in fields["remedy"]


class PodsAlone(PostFilterPlugin):
    """Helps no pod."""

    async def post_filter(self, state: Any, pod: Any, verdicts: Any) -> PostFilterResult:
        return PostFilterResult(Status.unschedulable())


def test_a_post_filter_that_is_not_called_for_groups_is_warned_about(caplog) -> None:
    sets = {
        "multiPoint": {"enabled": [{"name": "PodsAlone"}]},
        "podGroupPostFilter": {"disabled": [{"name": "DefaultPreemption"}]},
    }
    config, text = {**CONFIG, "profiles": [{"plugins": sets}]}, "not called for PodGroups"
    Harness([PodsAlone], config=config)
    assert not warnings(caplog, text)

    options = HarnessOptions(gates=["GenericWorkload=true"])
    Harness([PodsAlone], config=config, options=options)
    remedies = {fields["plugin"]: fields["remedy"] for fields in warnings(caplog, text)}
    assert remedies == {
        "DefaultPreemption": "plugins.podGroupPostFilter: {enabled: [{name: DefaultPreemption}]}",
        "PodsAlone": "inherit PodGroupPostFilterPlugin, if it can help a whole group",
    }


def test_the_remedy_helps(caplog) -> None:
    called.clear()
    binders = [{"name": "Binder"}, {"name": "DefaultBinder"}]
    cluster = cluster_with({"bind": {"disabled": [{"name": "*"}], "enabled": binders}})

    assert cluster.schedule(make_pod()).bound
    assert called == ["pod"]
    assert not warnings(caplog, "Bind plugins are never called")


@pytest.mark.parametrize(
    ("event", "remedy"),
    [
        (ClusterEvent(POD, ADD), "ClusterEvent(ASSIGNED_POD, ADD)"),
        (ClusterEvent(UNSCHEDULABLE_POD, ADD), "ClusterEvent(ASSIGNED_POD, ADD)"),
        (ClusterEvent(UNSCHEDULABLE_POD, DELETE), "ClusterEvent(ASSIGNED_POD, DELETE)"),
        (ClusterEvent(UNSCHEDULABLE_POD, ADD | DELETE), "ClusterEvent(ASSIGNED_POD, ADD)"),
        (ClusterEvent(NODE, UPDATE_POD_LABEL), "Node has NodeAdd, NodeUpdateNodeAllocatable"),
        (ClusterEvent(STORAGE_CLASS, UPDATE_NODE_LABEL), "StorageClassUpdate"),
    ],
)
def test_events_that_cannot_occur_are_warned_about(caplog, event, remedy) -> None:
    Harness([rejecting(event)], [make_node("n0")])
    [fields] = warnings(caplog, "Event registration has no effect")
    assert (fields["plugin"], fields["event"]) == ("Rejecting", event.label)
    assert remedy in fields["remedy"]


@pytest.mark.parametrize(
    "event",
    [
        ClusterEvent(POD, ADD | DELETE),
        ClusterEvent(ASSIGNED_POD, ADD),
        ClusterEvent(UNSCHEDULABLE_POD, UPDATE_POD_LABEL),
        ClusterEvent(POD, UPDATE_POD_LABEL),
        ClusterEvent(NODE, UPDATE_NODE_LABEL),
        ClusterEvent(STORAGE_CLASS, UPDATE),
        ClusterEvent("gadgets.v1.example.com", ALL),
        plugin_event("moon"),
        *ALL_EVENTS,
    ],
    ids=lambda event: event.label,
)
def test_events_that_occur_are_not_warned_about(caplog, event) -> None:
    Harness([rejecting(event)], [make_node("n0")])
    assert not warnings(caplog, "Event registration has no effect")


@pytest.mark.parametrize(("typed", "meant"), [("Nodes", "Node"), ("storageClass", "StorageClass")])
def test_unknown_kinds_are_named_with_the_plugin_and_the_one_that_was_meant(
    caplog, typed, meant
) -> None:
    Harness([rejecting(ClusterEvent(typed, ADD))], [make_node("n0")])
    [fields] = warnings(caplog, "Incorrect event registration")
    assert fields == {"resource": typed, "plugins": ["Rejecting"], "similar": meant}


def test_a_forgotten_return_is_named() -> None:
    plugin = rejecting(ClusterEvent(NODE, ADD))
    plugin.events_to_register = lambda self: None
    with pytest.raises(ConfigError, match="events_to_register of Rejecting returns None"):
        Harness([plugin], [make_node("n0")])


def rejecting(event: ClusterEvent) -> type[FilterPlugin]:
    class Rejecting(FilterPlugin):
        def events_to_register(self) -> tuple[ClusterEvent, ...]:
            return (event,)

        def filter(self, state: Any, pod: Any, node: Any) -> Status | None:
            return None

    return Rejecting


@pytest.mark.parametrize(
    ("plugin", "point", "needed"),
    [
        ("PodTopologySpread", "filter", "preFilter"),
        ("PodTopologySpread", "score", "preScore"),
        ("InterPodAffinity", "filter", "preFilter"),
        ("NodeDeclaredFeatures", "filter", "preFilter"),
        ("VolumeRestrictions", "filter", "preFilter"),
    ],
)
def test_a_point_whose_data_another_point_writes_is_refused_without_it(
    plugin: str, point: str, needed: str
) -> None:
    def cluster(sets: dict[str, Any]) -> Harness:
        return Harness((), [make_node("n0")], config={**CONFIG, "profiles": [{"plugins": sets}]})

    sets = {needed: {"disabled": [{"name": plugin}]}}
    with pytest.raises(ConfigError) as refused:
        cluster(sets)
    assert f'plugin "{plugin}" is enabled at {point} without {needed}' in str(refused.value)
    assert f"enable {plugin} at {needed} too" in refused.value.explained
    both = {**sets, point: {"disabled": [{"name": plugin}]}}
    assert cluster(both).schedule(make_pod()).bound
