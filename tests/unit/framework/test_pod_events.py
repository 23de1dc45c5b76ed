"""The events of pods in Kubernetes 1.36 and 1.37."""

from __future__ import annotations

import pytest

from proreus.base.feature_gates import FeatureGates
from proreus.base.kubernetes_version import V1_36, V1_37
from proreus.config.load import default_configuration
from proreus.engine.runtime.registry import Registry
from proreus.framework.events import (
    ALL_EVENTS,
    ASSIGNED_POD,
    DELETE,
    POD,
    TARGET_POD,
    UNSCHEDULABLE_POD,
    UPDATE,
    UPDATE_POD_LABEL,
    ClusterEvent,
)
from proreus.framework.pod_events import PodEvents, pod_registrations
from proreus.offline.cluster import OfflineCluster
from proreus.plugins import IN_TREE_PLUGINS

VERSIONS = (V1_36, V1_37)


def of(version):
    return PodEvents.of(FeatureGates(emulation_version=version))


@pytest.mark.parametrize(
    ("version", "labels"),
    [
        (V1_36, ["UnschedulablePodAdd", "UnschedulablePodUpdate", "UnschedulablePodDelete"]),
        (V1_37, ["UnscheduledPodAdd", "UnscheduledPodUpdate", "UnscheduledPodDelete"]),
    ],
)
def test_labels_of_pods_without_a_node(version, labels) -> None:
    events = of(version)
    found = (events.unscheduled_add, events.unscheduled_update, events.unscheduled_delete)
    assert [event.label for event in found] == labels


def test_a_pod_first_seen_by_an_update_counts_as_added_since_1_37() -> None:
    assert of(V1_36).first_update.label == "UnschedulablePodUpdate"
    assert of(V1_37).first_update.label == "UnscheduledPodAdd"


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "registered",
    [
        ClusterEvent(POD, UPDATE_POD_LABEL),
        ClusterEvent(POD, UPDATE),
        ClusterEvent(TARGET_POD, UPDATE_POD_LABEL),
        ClusterEvent(UNSCHEDULABLE_POD, UPDATE_POD_LABEL),
        ALL_EVENTS[0],
    ],
    ids=lambda event: event.label,
)
def test_a_plugin_of_ones_own_sees_updates_of_its_pods_in_both_versions(
    version, registered
) -> None:
    event = of(version).target[UPDATE_POD_LABEL]
    assert registered.matches(event)
    assert not ClusterEvent(ASSIGNED_POD, UPDATE).matches(event)


def test_a_plugin_registered_for_its_own_pod_does_not_see_others_since_1_37() -> None:
    labels = {}
    for version in VERSIONS:
        gates, other = FeatureGates(emulation_version=version), of(version).assigned
        (registered,) = pod_registrations(gates, target=UPDATE_POD_LABEL)
        assert registered.matches(of(version).target[UPDATE_POD_LABEL])
        labels[version] = (registered.label, registered.matches(other[UPDATE_POD_LABEL]))
    assert labels == {
        V1_36: ("PodUpdatePodLabel", True),
        V1_37: ("TargetPodUpdatePodLabel", False),
    }


PODS_1_37 = {
    "SchedulingGates": {"TargetPodUpdatePodSchedulingGatesEliminated"},
    "NodeUnschedulable": {"TargetPodUpdatePodToleration"},
    "TaintToleration": {"TargetPodUpdatePodToleration"},
    "NodePorts": {"AssignedPodDelete"},
    "NodeResourcesFit": {
        "AssignedPodDelete|UpdatePodScaleDown",
        "TargetPodUpdatePodScaleDown",
    },
    "VolumeRestrictions": {"AssignedPodDelete"},
    "NodeVolumeLimits": {"AssignedPodDelete"},
    "PodTopologySpread": {
        # The last one is ours: a pod that is being deleted does not count.
        "AssignedPodAdd|Delete|UpdatePodLabel|UpdatePodDeletionTimestamp",
        "TargetPodUpdatePodLabel|UpdatePodToleration",
    },
    "InterPodAffinity": {
        "AssignedPodAdd|Delete|UpdatePodLabel",
        "TargetPodUpdatePodLabel|UpdatePodToleration",
    },
    "DynamicResources": {"TargetPodUpdatePodGeneratedResourceClaim"},
    "NodeDeclaredFeatures": {"TargetPodUpdate"},
    "DefaultPreemption": {"AssignedPodDelete"},
}
"""v1.37.md 4.2 (EventsToRegister of each plugin) names these of pods, and no tolerations for
InterPodAffinity (docs/parity.md)."""


async def test_registrations_of_the_default_plugins_for_pods() -> None:
    found = {}
    for version in VERSIONS:
        gates = FeatureGates(emulation_version=version)
        registry = Registry(IN_TREE_PLUGINS)
        configuration = default_configuration(registry, gates)
        profiles = OfflineCluster(configuration, registry, gates).scheduler.profile_set
        found[version] = {}
        for plugin, event in profiles.queue_profiles["default-scheduler"].registrations:
            if event.resource in (POD, ASSIGNED_POD, TARGET_POD):
                found[version].setdefault(plugin, set()).add(event.label)
    assert found[V1_37] == PODS_1_37
    assert found[V1_36].keys() == PODS_1_37.keys()
    assert all(label.startswith("Pod") for labels in found[V1_36].values() for label in labels)
    assert found[V1_36]["DefaultPreemption"] == {ClusterEvent(POD, DELETE).label}
