from __future__ import annotations

import pytest

from proreus.base.errors import ConfigError
from proreus.base.feature_gates import FeatureGates
from proreus.base.kubernetes_version import (
    DEFAULT_VERSION,
    V1_36,
    V1_37,
    V1_38,
    KubernetesVersion,
)
from proreus.config.default_plugins import default_plugins, merge
from proreus.config.load import default_configuration, load
from proreus.config.types import PluginRef, Plugins, PluginSet
from proreus.engine.runtime.expansion import expand_all
from proreus.plugins import IN_TREE_PLUGINS

GROUPS = "GenericWorkload=true,TopologyAwareWorkloadScheduling=true"


def names(gates: str = "", version: KubernetesVersion = DEFAULT_VERSION) -> list[str]:
    parsed = FeatureGates.from_list(gates.split(",") if gates else (), version)
    return [ref.name for ref in default_plugins(parsed).multi_point.enabled]


def ref(text: str) -> PluginRef:
    name, _, weight = text.partition("=")
    return PluginRef(name=name, weight=int(weight or 0))


def plugin_set(enabled: str = "", disabled: str = "") -> PluginSet:
    return PluginSet(
        enabled=tuple(map(ref, enabled.split())), disabled=tuple(map(ref, disabled.split()))
    )


def test_dynamic_resources_stands_before_preemption():
    order = names()
    assert order.index("DynamicResources") + 1 == order.index("DefaultPreemption")
    assert order[-1] == "NodeDeclaredFeatures"
    assert len(order) == 20


@pytest.mark.parametrize(
    ("gates", "version"), [(GROUPS, V1_37), (f"{GROUPS},GangScheduling=true", V1_36)]
)
def test_gates_append(gates, version):
    assert names(gates, version)[-4:] == [
        "NodeDeclaredFeatures",
        "GangScheduling",
        "TopologyPlacementGenerator",
        "PodGroupPodsCount",
    ]
    assert len(names(gates, version)) == 23


def test_the_defaults_with_all_gates_on_are_the_in_tree_plugins():
    gates = f"{GROUPS},InPlacePodVerticalScalingSchedulerPreemption=true"
    assert sorted(names(gates)) == sorted(plugin.name for plugin in IN_TREE_PLUGINS)


def test_deferred_pods_are_rejected_before_resources_are_looked_at():
    # Its reason comes first where a node rejects a deferred resize for both.
    order = names("InPlacePodVerticalScalingSchedulerPreemption=true")
    assert order.index("DeferredPodScheduling") + 1 == order.index("NodeResourcesFit")
    assert "DeferredPodScheduling" not in names()


@pytest.mark.parametrize(
    ("enabled", "disabled", "merged"),
    [
        ("", "", "A B=2 C"),
        ("B=7", "", "A B=7 C"),
        ("D B=7", "", "A B=7 C D"),
        ("B=1 B=2", "", "A B=2 C B=1"),
        ("", "B", "A C"),
        ("B=5", "B", "A C B=5"),
        ("", "*", ""),
        ("B", "*", "B"),
        ("X", "X", "A B=2 C X"),
    ],
)
def test_merge(enabled, disabled, merged):
    own = Plugins(multi_point=plugin_set(enabled, disabled))
    result = merge(Plugins(multi_point=plugin_set("A B=2 C")), own).multi_point
    assert result.enabled == plugin_set(merged).enabled
    assert result.disabled == plugin_set("", disabled).disabled


def test_weights_of_disabled_plugins_mean_nothing():
    own = Plugins(score=PluginSet(disabled=(PluginRef(name="A", weight=5),)))
    assert merge(Plugins(), own).score.disabled == (PluginRef(name="A"),)


def test_checks_of_the_node_have_a_pre_filter_since_1_37(catalog):
    gates, before = FeatureGates(emulation_version=V1_37), FeatureGates(emulation_version=V1_36)
    points = _default_points(catalog, gates)
    new = ("NodeName", "NodeUnschedulable", "TaintToleration")
    assert points["preFilter"][:4] == (*new, "NodeAffinity")
    assert points["filter"][:3] == new
    assert _default_points(catalog, before)["preFilter"] == points["preFilter"][3:]


def test_gang_scheduling_has_no_permit_since_1_38(catalog):
    on = GROUPS.split(",")
    gates, before = (FeatureGates.from_list(on, version) for version in (V1_38, V1_37))
    assert _default_points(catalog, gates)["permit"] == ()
    assert _default_points(catalog, before)["permit"] == ("GangScheduling",)


def _default_points(catalog, gates):
    expanded = expand_all(default_configuration(catalog, gates), catalog, gates)
    return expanded["default-scheduler"].points


def test_a_pre_filter_of_1_37_cannot_be_configured_in_1_36(catalog):
    config = default_configuration(catalog, plugins=Plugins(pre_filter=plugin_set("NodeName")))
    with pytest.raises(ConfigError, match='plugin "NodeName" does not extend PreFilterPlugin'):
        expand_all(config, catalog, FeatureGates(emulation_version=V1_36))
    points = expand_all(config, catalog, FeatureGates(emulation_version=V1_37))
    assert points["default-scheduler"].points["preFilter"][0] == "NodeName"


def test_the_default_profile_expanded(catalog):
    profile = expand_all(default_configuration(catalog), catalog, FeatureGates())
    points = profile["default-scheduler"].points
    assert points["filter"] == (
        "NodeName",
        "NodeUnschedulable",
        "TaintToleration",
        "NodeAffinity",
        "NodePorts",
        "NodeResourcesFit",
        "VolumeRestrictions",
        "NodeVolumeLimits",
        "VolumeBinding",
        "VolumeZone",
        "PodTopologySpread",
        "InterPodAffinity",
        "DynamicResources",
        "NodeDeclaredFeatures",
    )
    assert points["postFilter"] == ("DynamicResources", "DefaultPreemption")
    assert points["permit"] == ()
    assert profile["default-scheduler"].weights == {
        "TaintToleration": 3,
        "NodeAffinity": 2,
        "NodeResourcesFit": 1,
        "VolumeBinding": 1,
        "PodTopologySpread": 2,
        "InterPodAffinity": 2,
        "DynamicResources": 2,
        "NodeResourcesBalancedAllocation": 1,
        "ImageLocality": 1,
    }


IN_1_38 = FeatureGates(emulation_version=V1_38)
GROUPS_IN_1_38 = FeatureGates.from_list(GROUPS.split(","), V1_38)


def test_default_preemption_reserves_for_groups_since_1_38(catalog):
    def reserving(gates):
        config = default_configuration(catalog, gates)
        return expand_all(config, catalog, gates)["default-scheduler"].points["reserve"]

    before = FeatureGates.from_list(GROUPS.split(","), V1_37)
    assert reserving(IN_1_38) == reserving(before) == ("VolumeBinding", "DynamicResources")
    assert reserving(GROUPS_IN_1_38)[-1] == "DefaultPreemption"


def test_a_profile_may_enable_default_preemption_at_reserve_itself(catalog, with_document):
    plugins = {"reserve": {"enabled": [{"name": "DefaultPreemption"}]}}
    config = load(with_document(profiles=[{"plugins": plugins}]), catalog, IN_1_38)
    assert config.profiles[0].plugins.reserve.disabled == (ref("DefaultPreemption"),)
    profile = expand_all(config, catalog, IN_1_38)["default-scheduler"]
    assert profile.points["reserve"][-1] == "DefaultPreemption"
    with pytest.raises(ConfigError, match="does not extend ReservePlugin plugin"):
        expand_all(config, catalog, FeatureGates(emulation_version=V1_37))


def test_the_share_of_placements_is_0_with_its_gate_unless_it_is_given(catalog, with_document):
    assert default_configuration(catalog, IN_1_38).percentage_of_placements_to_score is None
    profiles = [
        {"schedulerName": "a"},
        {"schedulerName": "b", "percentageOfPlacementsToScore": 0},
    ]
    for given, expected in ({}, 0), ({"percentageOfPlacementsToScore": 30}, 30):
        source = with_document(profiles=profiles, **given)
        config = load(source, catalog, GROUPS_IN_1_38)
        assert config.percentage_of_placements_to_score == expected
        expanded = expand_all(config, catalog, GROUPS_IN_1_38)
        assert expanded["a"].percentage_of_placements_to_score == expected
        assert expanded["b"].percentage_of_placements_to_score == 0
