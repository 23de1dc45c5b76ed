"""MultiPoint expansion over a handful of plugins; kube-scheduler's own are in unit/config."""

from __future__ import annotations

import logging

import pytest

from proreus.base.errors import ConfigError
from proreus.base.feature_gates import FeatureGates
from proreus.base.kubernetes_version import V1_36, V1_37, V1_38
from proreus.config.fields import PluginArgs
from proreus.config.load import load
from proreus.config.types import (
    Extender,
    ExtenderManagedResource,
    PluginConfig,
    PluginRef,
    Plugins,
    PluginSet,
    ProfileConfiguration,
    SchedulerConfiguration,
)
from proreus.engine.runtime.expansion import POINTS, expand, expand_all
from proreus.plugins.node_resources_fit_args import NodeResourcesFitArgs

PLUGINS = {
    "Sort": "queueSort",
    "Sort2": "queueSort",
    "Bind": "bind",
    "A": "filter score",
    "B": "filter score",
    "C": "filter score",
    "S": "score",
    "G1": "placementGenerate",
    "G2": "placementGenerate placementScore",
    "P": "podGroupPostFilter filter",
    "F": "placementFeasible filter",
    "InTree": "placementFeasible filter",
    "NodeResourcesFit": "filter score",
}


class Catalog:
    def names(self) -> frozenset[str]:
        return frozenset(PLUGINS)

    def is_in_tree(self, name: str) -> bool:
        return name in ("InTree", "NodeResourcesFit")

    def args_model(self, name: str) -> type[PluginArgs] | None:
        return None

    def points(self, name: str) -> frozenset[str]:
        return frozenset(PLUGINS.get(name, "").split())


def refs(text: str) -> tuple[PluginRef, ...]:
    pairs = (word.partition("=") for word in text.split())
    return tuple(PluginRef(name=name, weight=int(weight or 0)) for name, _, weight in pairs)


def profile(multi_point: str, name: str = "p", args=(), **sets: str | tuple[str, str]):
    """Return a completed profile; a set is its enabled plugins, or a pair with the disabled."""
    plugin_sets = {
        point: PluginSet(enabled=refs(text), disabled=refs(""))
        if isinstance(text, str)
        else PluginSet(enabled=refs(text[0]), disabled=refs(text[1]))
        for point, text in sets.items()
    }
    plugins = Plugins(multi_point=PluginSet(enabled=refs(multi_point)), **plugin_sets)
    return ProfileConfiguration(scheduler_name=name, plugins=plugins, plugin_config=tuple(args))


def expanded(*args, **sets):
    return expand(profile(*args, **sets), Catalog(), FeatureGates())


def refusal(*args, **sets) -> str:
    with pytest.raises(ConfigError) as caught:
        expanded(*args, **sets)
    return str(caught.value)


def test_multi_point_is_spread_over_all_points():
    result = expanded("Sort Bind A B=3 S")
    assert result.points["filter"] == ("A", "B")
    assert result.points["score"] == ("A", "B", "S")
    assert result.points["queueSort"] == ("Sort",)
    assert result.weights == {"A": 1, "B": 3, "S": 1}
    assert result.plugins == ("A", "B", "S", "Bind", "Sort")
    assert set(result.points) == set(POINTS)


def test_order_is_overriding_then_multi_point_then_extra():
    result = expanded("Sort Bind A B", score="C=9 B=7")
    assert result.points["score"] == ("B", "A", "C")
    assert result.points["filter"] == ("A", "B")
    assert result.weights == {"C": 9, "B": 7, "A": 1}


@pytest.mark.parametrize(
    ("score", "points"),
    [
        (("", "A"), ("B",)),
        (("", "*"), ()),
        (("A", "*"), ("A",)),
        (("A=5", "A"), ("B", "A")),
    ],
)
def test_disabling_at_a_point(score, points):
    result = expanded("Sort Bind A B", score=score)
    assert result.points["score"] == points
    assert result.points["filter"] == ("A", "B")


@pytest.mark.parametrize(
    ("multi_point", "sets", "error"),
    [
        ("Sort Bind", {"filter": "X"}, 'FilterPlugin "X" does not exist'),
        ("Sort Bind X", {}, 'PreFilterPlugin "X" does not exist'),
        ("Srot2", {}, 'PreFilterPlugin "Srot2" does not exist; did you mean "Sort2"?'),
        ("Sort Bind", {"filter": "S"}, 'plugin "S" does not extend FilterPlugin plugin'),
        ("Sort Bind", {"score": "A A"}, 'plugin "A" already registered as "ScorePlugin"'),
        ("Sort Bind A A", {}, 'plugin "A" already registered as "FilterPlugin"'),
        (
            "Bind",
            {},
            'only one queue sort plugin required for profile with scheduler name "p", but got 0',
        ),
        (
            "Bind Sort Sort2",
            {},
            'only one queue sort plugin required for profile with scheduler name "p", but got 2',
        ),
        ("Sort", {}, 'at least one bind plugin is needed for profile with scheduler name "p"'),
        (
            "Sort Bind A",
            {"score": "B=-3"},
            "score plugins: total score of Score plugins could overflow",
        ),
    ],
)
def test_refusals(multi_point, sets, error):
    assert refusal(multi_point, **sets) == error


def test_several_queue_sort_plugins_are_named_with_the_remedy(caplog):
    refusal("Bind Sort Sort2")
    [record] = caplog.records
    assert "Several queue sort plugins" in record.getMessage()
    assert record.pairs["plugins"] == ("Sort", "Sort2")
    assert "{name: Sort2}" in record.pairs["remedy"]


def test_negative_weights_pass_where_the_sum_stays_positive():
    # so it is in kube-scheduler, whose check wraps around
    assert expanded("Sort Bind A=3 B=-3 C").weights == {"A": 3, "B": -3, "C": 1}


def test_placement_weights_are_their_own():
    assert expanded("Sort Bind G2=4 A").placement_weights == {"G2": 4}


def fit_args(**fields) -> PluginConfig:
    return PluginConfig(name="NodeResourcesFit", args=NodeResourcesFitArgs(**fields))


def test_fit_args_are_checked_where_the_plugin_is_made():
    bad = fit_args(ignored_resources=("a b", ""))
    error = refusal("Sort Bind NodeResourcesFit", args=[bad])
    assert error.startswith(
        'initializing plugin "NodeResourcesFit": [ignoredResources[0]: Invalid value: "a b": '
    )
    assert expanded("Sort Bind", args=[bad]).args == {}


def config(*profiles: ProfileConfiguration, extenders=()) -> SchedulerConfiguration:
    return SchedulerConfiguration(profiles=profiles, extenders=extenders)


@pytest.mark.parametrize(
    ("profiles", "error"),
    [
        ([], "initializing profiles: at least one profile is required"),
        (
            [profile("Sort")],
            "initializing profiles: creating profile for scheduler name p: "
            'at least one bind plugin is needed for profile with scheduler name "p"',
        ),
        (
            [profile("Sort Bind"), profile("Sort2 Bind", "q")],
            'initializing profiles: different queue sort plugins for profile "q": '
            '"Sort2", first: "Sort"',
        ),
        (
            [profile("Sort Bind"), profile("Sort Bind")],
            'initializing profiles: duplicate profile with scheduler name "p"',
        ),
        (
            [
                profile("Sort Bind", args=[PluginConfig(name="Sort", args={"x": 1})]),
                profile("Sort Bind", "q"),
            ],
            'initializing profiles: different queue sort plugin args for profile "q"',
        ),
    ],
)
def test_profiles_together(profiles, error):
    with pytest.raises(ConfigError) as caught:
        expand_all(config(*profiles), Catalog(), FeatureGates())
    assert str(caught.value) == error


def test_several_profiles():
    both = expand_all(
        config(profile("Sort Bind"), profile("Sort Bind A", "q")), Catalog(), FeatureGates()
    )
    assert list(both) == ["p", "q"]
    assert both["q"].points["filter"] == ("A",)


def test_extenders_replace_ignored_resources():
    resources = (
        ExtenderManagedResource(name="a.b/c", ignored_by_scheduler=True),
        ExtenderManagedResource(name="a.b/d"),
    )
    extenders = (Extender(managed_resources=resources),)
    one = profile("Sort Bind NodeResourcesFit", args=[fit_args(ignored_resources=("x.y/z",))])
    result = expand_all(config(one, extenders=extenders), Catalog(), FeatureGates())["p"]
    assert result.args["NodeResourcesFit"].ignored_resources == ("a.b/c",)
    with pytest.raises(ConfigError, match="can't find NodeResourcesFitArgs in plugin config"):
        expand_all(config(profile("Sort Bind"), extenders=extenders), Catalog(), FeatureGates())


class Small(Catalog):
    """A part of kube-scheduler's plugins."""

    plugins = {"PrioritySort": "queueSort", "DefaultBinder": "bind", "NodeName": "filter"}

    def names(self):
        return frozenset(self.plugins)

    def points(self, name):
        return frozenset(self.plugins.get(name, "").split())


def test_no_warning_where_nobody_asks_for_them(caplog):
    own = {
        "multiPoint": {
            "disabled": [{"name": "*"}],
            "enabled": [{"name": "PrioritySort"}, {"name": "DefaultBinder"}],
        }
    }
    source = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"plugins": own}],
    }
    with caplog.at_level(logging.WARNING):
        expand_all(load(source, Small()), Small(), FeatureGates())
    assert not caplog.records


IN_1_37 = FeatureGates(emulation_version=V1_37)


def test_pod_group_post_filter_is_a_point_of_1_37():
    before = expand(profile("Sort Bind P"), Catalog(), FeatureGates(emulation_version=V1_36))
    assert "podGroupPostFilter" not in before.points
    result = expand(profile("Sort Bind P"), Catalog(), IN_1_37)
    assert set(result.points) == set(POINTS)
    assert result.points["podGroupPostFilter"] == ("P",)


def test_pod_group_post_filter_may_be_disabled_alone():
    disabled = profile("Sort Bind P", pod_group_post_filter=("", "P"))
    result = expand(disabled, Catalog(), IN_1_37)
    assert result.points["podGroupPostFilter"] == ()
    assert result.points["filter"] == ("P",)


def test_plugin_that_is_no_pod_group_post_filter():
    with pytest.raises(ConfigError, match='plugin "A" does not extend PodGroupPostFilterPlugin'):
        expand(profile("Sort Bind", pod_group_post_filter="A"), Catalog(), IN_1_37)


IN_1_38 = FeatureGates(emulation_version=V1_38)


def feasible(gates, *args, **sets):
    return expand(profile(*args, **sets), Catalog(), gates).points["placementFeasible"]


def test_placement_feasible_is_configured_since_1_38():
    assert feasible(IN_1_38, "Sort Bind InTree F") == ("InTree", "F")
    assert feasible(IN_1_38, "Sort Bind InTree", placement_feasible=("", "InTree")) == ()
    assert feasible(IN_1_38, "Sort Bind", placement_feasible="F") == ("F",)
    assert feasible(IN_1_37, "Sort Bind InTree F") == ("InTree", "F")


def test_a_plugin_enabled_elsewhere_has_its_say_about_placements():
    assert feasible(IN_1_37, "Sort Bind", filter="InTree F") == ("InTree", "F")
    # As in kube-scheduler, its own are called where they are enabled.
    assert feasible(IN_1_38, "Sort Bind", filter="InTree F") == ("F",)
    assert feasible(IN_1_38, "Sort Bind", filter="F", placement_feasible=("", "*")) == ()


def test_several_plugins_generate_placements_since_1_38():
    several = profile("Sort Bind G1 G2")
    result = expand(several, Catalog(), IN_1_38)
    assert result.points["placementGenerate"] == ("G1", "G2")
    text = 'at most one placement generate plugin is allowed for profile with scheduler name "p"'
    with pytest.raises(ConfigError, match=text):
        expand(several, Catalog(), IN_1_37)
