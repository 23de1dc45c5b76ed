"""Groups in the API versions of Kubernetes 1.36 to 1.38, stored once."""

from __future__ import annotations

from typing import Any

import pytest

from proreus.base.kubernetes_version import V1_36, V1_37
from proreus.objects.scheduling import COMPOSITE_POD_GROUPS, POD_GROUPS
from proreus.workbench.sandbox.store import Store

OLD = POD_GROUPS.as_of(V1_36)


def group(**spec: Any) -> dict[str, Any]:
    policy = {"gang": {"minCount": 2}}
    return {"metadata": {"name": "g"}, "spec": {"schedulingPolicy": policy, **spec}}


@pytest.mark.parametrize(("old", "new"), [("Pod", {"single": {}}), ("PodGroup", {"all": {}})])
def test_the_disruption_mode_is_converted_both_ways(store: Store, old: str, new: Any) -> None:
    created = store.create(OLD, group(disruptionMode=old)).object()
    assert created["apiVersion"] == "scheduling.k8s.io/v1beta1"
    assert created["spec"] == group(disruptionMode=new)["spec"]

    served = store.resources.at("scheduling.k8s.io", "v1alpha2", "podgroups")
    assert served.from_storage is not None
    converted = served.from_storage(created)
    assert converted["apiVersion"] == "scheduling.k8s.io/v1alpha2"
    assert converted["spec"] == group(disruptionMode=old)["spec"]


def test_a_group_without_the_mode_only_changes_its_version(store: Store) -> None:
    created = store.create(POD_GROUPS, group()).object()
    served = store.resources.at("scheduling.k8s.io", "v1alpha2", "podgroups")
    assert served.from_storage is not None
    converted = served.from_storage(created)
    assert converted == created | {"apiVersion": "scheduling.k8s.io/v1alpha2"}


def test_composite_pod_groups_only_change_their_version(store: Store) -> None:
    policy = {"gang": {"minGroupCount": 1}}
    obj = {"metadata": {"name": "c"}, "spec": {"schedulingPolicy": policy}}
    created = store.create(COMPOSITE_POD_GROUPS.as_of(V1_37), obj).object()
    assert created["apiVersion"] == "scheduling.k8s.io/v1beta1"
    served = store.resources.at("scheduling.k8s.io", "v1alpha3", "compositepodgroups")
    assert served.shown(created) == created | {"apiVersion": "scheduling.k8s.io/v1alpha3"}
