import pytest

from proreus.errors import ConfigError
from proreus.feature_gates import GATES, OTHER_COMPONENTS, FeatureGates


def test_defaults():
    gates = FeatureGates()
    assert gates.enabled("SchedulerQueueingHints")
    assert not gates.enabled("SchedulerAsyncAPICalls")
    assert not gates.enabled("GangScheduling")
    assert str(gates) == ""


def test_parses_the_flag():
    gates = FeatureGates.parse(
        " kube:GenericWorkload = true ,GangScheduling=T,,PodLevelResources=1"
    )
    assert gates.enabled("GenericWorkload")
    assert gates.enabled("GangScheduling")
    assert str(gates) == "GangScheduling=true,GenericWorkload=true,PodLevelResources=true"


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
        FeatureGates.parse(text)
    assert str(caught.value) == error


def test_a_locked_gate_may_be_set_to_what_it_is():
    assert FeatureGates.parse("SidecarContainers=true").enabled("SidecarContainers")


def test_whole_stages_leave_alone_what_is_named():
    gates = FeatureGates.parse("AllAlpha=true,NativeHistograms=false")
    assert gates.enabled("GangScheduling")
    assert not gates.enabled("NativeHistograms")
    assert not gates.enabled("SchedulerAsyncAPICalls")
    assert not FeatureGates.parse("AllBeta=false").enabled("OpportunisticBatching")


def test_gates_of_other_components_are_accepted_and_have_no_effect():
    assert FeatureGates.parse("ExtendWebSocketsToKubelet=false") == FeatureGates()
    assert not OTHER_COMPONENTS & set(GATES)


def test_unknown_gates_are_a_bug_of_the_caller():
    with pytest.raises(KeyError):
        FeatureGates().enabled("Nope")


def test_dependencies_of_the_table_are_in_the_table_and_hold_by_default():
    for name, gate in GATES.items():
        assert set(gate.dependencies) <= set(GATES), name
        if gate.default:
            assert all(GATES[need].default for need in gate.dependencies), name
