import pytest

from proreus.base.errors import ConfigError
from proreus.base.feature_gate_table import gates_of, gates_of_other_components
from proreus.base.feature_gates import FeatureGates
from proreus.base.kubernetes_version import SUPPORTED_VERSIONS, V1_36, V1_37, KubernetesVersion


def parse(text: str, version: KubernetesVersion = V1_37) -> FeatureGates:
    return FeatureGates.from_list(text.split(","), version)


def test_defaults():
    for version in SUPPORTED_VERSIONS:
        gates = FeatureGates(emulation_version=version)
        assert gates.enabled("SchedulerQueueingHints")
        assert not gates.enabled("SchedulerAsyncAPICalls")
        assert not gates.enabled("GangScheduling")
        assert gates.enabled("StorageCapacityScoring") == (version >= V1_37)
        assert str(gates) == ""


def test_parses_the_flag():
    gates = parse(" kube:GenericWorkload = true ,GangScheduling=T,,PodLevelResources=1", V1_36)
    assert gates.enabled("GenericWorkload")
    assert gates.enabled("GangScheduling")
    assert str(gates) == "GangScheduling=true,GenericWorkload=true,PodLevelResources=true"


def test_a_gate_may_depend_on_the_minimum_compatibility_version():
    name = "DRAFractionalCapacityRange"
    assert not FeatureGates(emulation_version=V1_37).enabled(name)
    assert FeatureGates(emulation_version=V1_37, min_compatibility=V1_37).enabled(name)
    assert parse(f"{name}=true").enabled(name)


@pytest.mark.parametrize(
    ("text", "version", "error"),
    [
        ("GangScheduling=true", V1_37, "unrecognized feature gate: GangScheduling"),
        (
            "NodeDeclaredFeatures=false",
            V1_37,
            "cannot set feature gate NodeDeclaredFeatures to false, feature is locked to true",
        ),
        (
            "CompositePodGroup=true",
            V1_36,
            "cannot set feature gate CompositePodGroup to true, feature is PreAlpha at emulated "
            "version 1.36, min compatibility version 1.35",
        ),
        (
            "DRADeviceTaints=false",
            V1_37,
            "DRADeviceTaintRules is enabled, but depends on features that are disabled: "
            "[DRADeviceTaints]",
        ),
    ],
)
def test_refuses_what_a_version_does_not_have(text, version, error):
    with pytest.raises(ConfigError) as caught:
        parse(text, version)
    assert str(caught.value) == error


def test_the_last_setting_wins():
    assert not FeatureGates.from_list(["GenericWorkload=true", "GenericWorkload=false"]).enabled(
        "GenericWorkload"
    )


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("X=true", "unrecognized feature gate: X"),
        ("X", "missing bool value for X"),
        (
            "X=maybe",
            'invalid value of X=maybe, err: strconv.ParseBool: parsing "maybe": invalid syntax',
        ),
        (
            "SchedulerQueueingHints=false,X=true",
            "[cannot set feature gate SchedulerQueueingHints to false, feature is locked to true, "
            "unrecognized feature gate: X]",
        ),
        ("foo:X=true", "component not registered: foo"),
        (
            "GangScheduling=true",
            "GangScheduling is enabled, but depends on features that are disabled: "
            "[GenericWorkload]",
        ),
        (
            "GenericWorkload=true,WorkloadAwarePreemption=true",
            "WorkloadAwarePreemption is enabled, but depends on features that are disabled: "
            "[GangScheduling]",
        ),
        (
            "PodLevelResources=false",
            "InPlacePodLevelResourcesVerticalScaling is enabled, but depends on features that are "
            "disabled: [PodLevelResources]",
        ),
    ],
)
def test_refuses_in_kube_schedulers_words(text, error):
    with pytest.raises(ConfigError) as caught:
        parse(text, V1_36)
    assert str(caught.value) == error


def test_a_locked_gate_may_be_set_to_what_it_is():
    assert parse("SidecarContainers=true", V1_36).enabled("SidecarContainers")


def test_whole_stages_leave_alone_what_is_named():
    gates = parse("AllAlpha=true,NativeHistograms=false", V1_36)
    assert gates.enabled("GangScheduling")
    assert not gates.enabled("NativeHistograms")
    assert not gates.enabled("SchedulerAsyncAPICalls")
    assert not FeatureGates.parse("AllBeta=false").enabled("OpportunisticBatching")


def test_gates_of_other_components_are_accepted_and_have_no_effect():
    assert FeatureGates.parse("ExtendWebSocketsToKubelet=false") == FeatureGates()
    for version in SUPPORTED_VERSIONS:
        assert not gates_of_other_components(version) & set(gates_of(version))


def test_unknown_gates_are_a_bug_of_the_caller():
    with pytest.raises(KeyError):
        FeatureGates().enabled("Nope")


@pytest.mark.parametrize("version", SUPPORTED_VERSIONS, ids=str)
def test_dependencies_of_the_table_are_in_the_table_and_hold_by_default(version):
    gates = gates_of(version)
    for name, gate in gates.items():
        assert set(gate.dependencies) <= set(gates), name
        if gate.default:
            assert all(gates[need].default for need in gate.dependencies), name
