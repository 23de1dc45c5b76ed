"""PodGroup and CompositePodGroup as the apiserver sends them."""

from __future__ import annotations

import msgspec
import pytest

from proreus.base.kubernetes_version import V1_36, V1_37, V1_38
from proreus.objects.codec import decoder_for
from proreus.objects.pod import Pod
from proreus.objects.scheduling import (
    COMPOSITE_POD_GROUPS,
    POD_GROUPS,
    CompositePodGroup,
    PodGroup,
    pod_group_entity_key,
    pod_group_key,
)

GANG = b"""{"metadata": {"name": "g", "namespace": "ns"}, "spec": {
    "schedulingPolicy": {"gang": {"minCount": 3}}, "priority": 7,
    "schedulingConstraints": {"topology": [{"key": "rack"}]},
    "disruptionMode": {"all": {}}, "parentCompositePodGroupName": "c"}}"""


def test_pod_group():
    group = decoder_for(PodGroup).decode(GANG)
    assert str(group.key) == "podgroup/ns/g"
    assert (group.min_count, group.priority, group.topology_keys) == (3, 7, ("rack",))
    assert group.disrupted_as_whole
    assert group.spec.parent_composite_pod_group_name == "c"


def test_absent_fields():
    group = decoder_for(PodGroup).decode(b'{"spec": {"schedulingPolicy": {"basic": {}}}}')
    assert (group.min_count, group.priority, group.topology_keys) == (1, 0, ())
    assert not group.disrupted_as_whole


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        (b'"PodGroup"', True),
        (b'"Pod"', False),
        (b'{"all": {}}', True),
        (b'{"single": {}}', False),
        (b"null", False),
    ],
)
def test_disruption_mode_of_v1alpha2_and_v1beta1(mode, expected):
    group = decoder_for(PodGroup).decode(b'{"spec": {"disruptionMode": %s}}' % mode)
    assert group.disrupted_as_whole is expected


def test_composite_pod_group():
    text = GANG.replace(b"minCount", b"minGroupCount")
    group = decoder_for(CompositePodGroup).decode(text)
    assert str(group.key) == "compositepodgroup/ns/g"
    assert group.key.is_composite
    assert (group.min_count, group.priority, group.topology_keys) == (3, 7, ("rack",))
    assert group.disrupted_as_whole


@pytest.mark.parametrize(
    "spec",
    [
        b'{"schedulingPolicy": {"gang": {"minCount": "3"}}}',
        b'{"schedulingPolicy": []}',
        b'{"priority": 1.5}',
        b'{"parentCompositePodGroupName": 1}',
    ],
)
def test_wrong_types_are_refused(spec):
    with pytest.raises(msgspec.ValidationError):
        decoder_for(PodGroup).decode(b'{"spec": %s}' % spec)


@pytest.mark.parametrize("spec", [b"{}", b'{"schedulingGroup": {}}'])
def test_pod_without_a_group(spec):
    pod = decoder_for(Pod).decode(b'{"metadata": {"namespace": "ns"}, "spec": %s}' % spec)
    assert pod_group_key(pod) == ""
    assert pod_group_entity_key(pod) is None


def test_group_of_a_pod():
    pod = decoder_for(Pod).decode(
        b'{"metadata": {"namespace": "ns"}, "spec": {"schedulingGroup": {"podGroupName": "g"}}}'
    )
    assert pod_group_key(pod) == "ns/g"
    assert str(pod_group_entity_key(pod)) == "podgroup/ns/g"


def test_api_versions_of_groups_by_version_of_kubernetes():
    versions = {
        version: (POD_GROUPS.as_of(version).version, COMPOSITE_POD_GROUPS.as_of(version).version)
        for version in (V1_36, V1_37, V1_38)
    }
    assert versions == {
        V1_36: ("v1alpha2", "v1alpha3"),
        V1_37: ("v1beta1", "v1alpha3"),
        V1_38: ("v1beta1", "v1beta1"),
    }
