"""The queueing hints of VolumeBinding."""

from __future__ import annotations

from typing import Any

import pytest

from proreus.framework.events import (
    ADD,
    CSI_DRIVER,
    CSI_NODE,
    CSI_STORAGE_CAPACITY,
    DELETE,
    NODE,
    PERSISTENT_VOLUME,
    PERSISTENT_VOLUME_CLAIM,
    STORAGE_CLASS,
    UPDATE,
    UPDATE_NODE_LABEL,
    ClusterEvent,
)
from proreus.framework.pod_info import PodInfo
from proreus.objects.codec import decoder_for
from proreus.objects.kinds import BY_KIND
from proreus.plugins.volume_binding.hints import VOLUMES_RESTORED, events
from proreus.plugins.volume_binding.storage import Storage
from proreus.testing import FakeHandle, make_pod
from proreus.testing.volumes import (
    DRIVER,
    make_capacity,
    make_claim,
    make_csi_node,
    make_storage_class,
    make_volume,
    spec_with_claims,
)

PLAIN = make_pod("p", spec=spec_with_claims("c"))
EPHEMERAL = make_pod("p", spec={"volumes": [{"name": "v", "ephemeral": {}}]})
INLINE = make_pod("p", spec={"volumes": [{"name": "v", "csi": {"driver": DRIVER}}]})


def driver(resources_options: bool | None, name: str = DRIVER) -> dict[str, Any]:
    return {
        "kind": "CSIDriver",
        "metadata": {"name": name},
        "spec": {"storageCapacity": resources_options},
    }


def registered(*objects: Any) -> tuple[ClusterEvent, ...]:
    return events(Storage.of(FakeHandle(objects=objects)))


def test_events() -> None:
    assert [(event.resource, event.action, event.hint is None) for event in registered()] == [
        (STORAGE_CLASS, ADD | UPDATE, False),
        (PERSISTENT_VOLUME_CLAIM, ADD | UPDATE, False),
        (PERSISTENT_VOLUME, ADD | UPDATE, True),
        (PERSISTENT_VOLUME, DELETE, False),
        (NODE, ADD | UPDATE_NODE_LABEL, True),
        (CSI_NODE, ADD | UPDATE | DELETE, False),
        (CSI_DRIVER, UPDATE | DELETE, False),
        (CSI_STORAGE_CAPACITY, ADD | UPDATE, False),
        (VOLUMES_RESTORED.resource, UPDATE, False),
    ]


IN_A, IN_B = [{"zone": ["a"]}], [{"zone": ["b"]}]
EBS, GCE = "kubernetes.io/aws-ebs", "kubernetes.io/gce-pd"


@pytest.mark.parametrize(
    ("resource", "pod", "old", "new", "queued"),
    [
        (STORAGE_CLASS, PLAIN, None, make_storage_class(), True),
        (STORAGE_CLASS, PLAIN, make_storage_class(), make_storage_class(), False),
        (
            STORAGE_CLASS,
            PLAIN,
            make_storage_class(allowed=IN_A),
            make_storage_class(allowed=IN_B),
            True,
        ),
        (PERSISTENT_VOLUME_CLAIM, PLAIN, None, make_claim("c"), True),
        (PERSISTENT_VOLUME_CLAIM, PLAIN, make_claim("c"), make_claim("c"), True),
        (PERSISTENT_VOLUME_CLAIM, PLAIN, None, make_claim("d"), False),
        (PERSISTENT_VOLUME_CLAIM, PLAIN, None, make_claim("c", namespace="other"), False),
        (PERSISTENT_VOLUME_CLAIM, EPHEMERAL, None, make_claim("p-v"), True),
        (PERSISTENT_VOLUME_CLAIM, INLINE, None, make_claim("c"), False),
        (CSI_NODE, PLAIN, None, make_csi_node("n"), True),
        (CSI_NODE, PLAIN, make_csi_node("n"), make_csi_node("n", {DRIVER: 1}), False),
        (CSI_NODE, PLAIN, make_csi_node("n"), make_csi_node("n", migrated=[EBS]), True),
        (
            CSI_NODE,
            PLAIN,
            make_csi_node("n", migrated=[GCE, EBS]),
            make_csi_node("n", migrated=[EBS, GCE]),
            False,
        ),
        (CSI_DRIVER, INLINE, driver(True), driver(False), True),
        (CSI_DRIVER, INLINE, driver(True), driver(None), True),
        (CSI_DRIVER, INLINE, driver(True), driver(True), False),
        (CSI_DRIVER, INLINE, driver(False), driver(True), False),
        (CSI_DRIVER, INLINE, driver(True, "other"), driver(False, "other"), False),
        (CSI_DRIVER, PLAIN, driver(True), driver(False), False),
        (CSI_DRIVER, INLINE, driver(True), None, True),
        (CSI_NODE, PLAIN, make_csi_node("n"), None, False),
        (CSI_NODE, PLAIN, make_csi_node("n", migrated=[EBS]), None, True),
        (PERSISTENT_VOLUME, PLAIN, make_volume("v", claim="default/c"), None, True),
        (PERSISTENT_VOLUME, PLAIN, make_volume("v", claim="default/d"), None, False),
        (PERSISTENT_VOLUME, PLAIN, make_volume("v", claim="other/c"), None, False),
        (PERSISTENT_VOLUME, PLAIN, make_volume("v"), None, False),
        (CSI_STORAGE_CAPACITY, PLAIN, None, make_capacity("x", None, {}), True),
        (
            CSI_STORAGE_CAPACITY,
            PLAIN,
            make_capacity("x", "1Gi", {}),
            make_capacity("x", "2Gi", {}),
            True,
        ),
        (
            CSI_STORAGE_CAPACITY,
            PLAIN,
            make_capacity("x", "1Gi", {}),
            make_capacity("x", "1024Mi", {}),
            False,
        ),
        (
            CSI_STORAGE_CAPACITY,
            PLAIN,
            make_capacity("x", None, {}),
            make_capacity("x", "1", {}),
            True,
        ),
        (
            CSI_STORAGE_CAPACITY,
            PLAIN,
            make_capacity("x", "1", {}, largest="5"),
            make_capacity("x", "9", {}, largest="5"),
            False,
        ),
    ],
)
def test_hints(resource: str, pod: PodInfo, old: Any, new: Any, queued: bool) -> None:
    (hint,) = [e.hint for e in registered() if e.resource == resource and e.hint is not None]
    before, after = (
        None if obj is None else decoder_for(BY_KIND[obj["kind"]].type).convert(obj)
        for obj in (old, new)
    )
    assert hint(pod, before, after) is queued


@pytest.mark.parametrize(
    ("claim", "queued"),
    [
        (make_claim("c"), True),
        (make_claim("c", class_name="other"), False),
        (make_claim("c", volume="v"), False),
    ],
)
def test_the_driver_of_an_unbound_claim_no_longer_announces_capacity(
    claim: Any, queued: bool
) -> None:
    found = registered(claim, make_storage_class(), make_volume("v", claim="default/c"))
    (hint,) = [event.hint for event in found if event.resource == CSI_DRIVER]
    assert hint is not None
    before, after = (
        decoder_for(BY_KIND["CSIDriver"].type).convert(driver(is_tracked))
        for is_tracked in (True, False)
    )
    assert hint(PLAIN, before, after) is queued
    assert hint(PLAIN, before, None) is queued
    assert not hint(PLAIN, after, None)
