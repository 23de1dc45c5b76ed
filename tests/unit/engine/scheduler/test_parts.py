"""``GroupSupport``: how the gates, and plugins that name groups, decide what a group is."""

from __future__ import annotations

import pytest

from proreus.base.errors import ConfigError
from proreus.base.feature_gates import FeatureGates
from proreus.base.kubernetes_version import V1_36, V1_37, KubernetesVersion
from proreus.engine.parts import GroupSupport
from proreus.framework.events import COMPOSITE_POD_GROUP, POD_GROUP


def support(version: KubernetesVersion, *, provided: bool = False, **gates: bool) -> GroupSupport:
    return GroupSupport.of(FeatureGates(gates, emulation_version=version), provided)


@pytest.mark.parametrize("version", [V1_36, V1_37])
def test_without_the_gate_and_without_plugins_there_are_no_groups(version):
    groups = support(version, GenericWorkload=False)
    assert not groups.any
    assert not groups.as_entities
    assert groups.watched_kinds() == {}


def test_a_group_has_one_place_in_the_queue_from_1_37_on():
    assert not support(V1_36, GenericWorkload=True).as_entities
    assert support(V1_37, GenericWorkload=True).as_entities


def test_composite_groups_are_watched_where_the_api_has_them():
    plain = support(V1_37, GenericWorkload=True, CompositePodGroup=False)
    composite = support(V1_37, GenericWorkload=True, CompositePodGroup=True)
    assert list(plain.watched_kinds()) == [POD_GROUP]
    assert list(composite.watched_kinds()) == [POD_GROUP, COMPOSITE_POD_GROUP]


def test_groups_of_plugins_may_consist_of_groups_and_are_no_api_objects():
    groups = support(V1_37, provided=True, GenericWorkload=False)
    assert groups.any
    assert groups.as_entities
    assert groups.composite
    assert groups.announced
    assert groups.watched_kinds() == {}


def test_groups_of_plugins_beside_those_of_the_api_need_1_37():
    with pytest.raises(ConfigError, match=r"need Kubernetes 1\.37"):
        support(V1_36, provided=True, GenericWorkload=True)
    assert support(V1_36, provided=True, GenericWorkload=False).as_entities
