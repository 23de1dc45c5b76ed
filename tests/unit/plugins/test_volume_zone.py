"""VolumeZone: labels of volumes against labels of nodes, and queueing hints."""

from __future__ import annotations

from typing import Any

import pytest

from proreus.framework.cycle_state import CycleState
from proreus.framework.events import (
    ADD,
    NODE,
    PERSISTENT_VOLUME,
    PERSISTENT_VOLUME_CLAIM,
    STORAGE_CLASS,
    UPDATE,
    UPDATE_NODE_LABEL,
)
from proreus.framework.status import Status
from proreus.framework.verdicts import Verdicts
from proreus.objects.codec import decoder_for
from proreus.objects.kinds import BY_KIND
from proreus.plugins.volume_zone import VolumeZone
from proreus.testing import FakeHandle, make_node, make_plugin, make_pod
from proreus.testing.agreement import assert_agreement
from proreus.testing.volumes import make_claim, make_storage_class, make_volume, spec_with_claims

ZONE, REGION = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
BETA_ZONE = "failure-domain.beta.kubernetes.io/zone"
REASON = "node(s) had no available volume zone"
NODES = [
    make_node("a", labels={ZONE: "a", REGION: "r"}),
    make_node("b", labels={ZONE: "b", REGION: "r"}),
    make_node("beta-a", labels={BETA_ZONE: "a"}),
    make_node("region-only", labels={REGION: "r"}),
    make_node("nowhere"),
]


def typed(obj: dict[str, Any]) -> Any:
    return decoder_for(BY_KIND[obj["kind"]].type).convert(obj)


def feasible(*volume_labels: dict[str, str]) -> list[str] | Status:
    names = [f"c{number}" for number in range(len(volume_labels))]
    objects = [make_claim(name, volume=f"pv-{name}") for name in names]
    objects += [
        make_volume(f"pv-{name}", labels=labels)
        for name, labels in zip(names, volume_labels, strict=True)
    ]
    handle, pod = FakeHandle(NODES, objects=objects), make_pod(spec=spec_with_claims(*names))
    plugin, state = make_plugin(VolumeZone, handle), CycleState()
    result = plugin.pre_filter(state, pod, handle.nodes)
    if result is not None:
        return result
    assert_agreement(plugin, pod, handle.nodes)
    verdicts = Verdicts(len(NODES), plugin.name)
    plugin.filter_all(state, pod, handle.nodes, verdicts)
    assert set(verdicts.counts()) <= {Status.unresolvable(REASON).with_plugin("VolumeZone")}
    return [handle.nodes[int(row)].name for row in verdicts.passed_rows()]


@pytest.mark.parametrize(
    ("labels", "nodes"),
    [
        ([{ZONE: "a"}], ["a", "nowhere"]),
        ([{ZONE: "a__b"}], ["a", "b", "nowhere"]),
        ([{ZONE: " a __ c "}], ["a", "nowhere"]),
        ([{ZONE: "c"}], ["nowhere"]),
        ([{BETA_ZONE: "a"}], ["a", "beta-a", "nowhere"]),
        ([{REGION: "r"}], ["a", "b", "region-only", "nowhere"]),
        ([{ZONE: "b", REGION: "r"}], ["b", "nowhere"]),
        ([{ZONE: "a"}, {ZONE: "b"}], ["nowhere"]),
        ([{ZONE: "a__"}, {REGION: "r"}], ["a", "b", "region-only", "nowhere"]),
        ([{ZONE: "a__"}], Status.skip()),
        ([{}], Status.skip()),
    ],
)
def test_nodes(labels: list[dict[str, str]], nodes: list[str] | Status) -> None:
    assert feasible(*labels) == nodes


@pytest.mark.parametrize(
    ("objects", "expected"),
    [
        ([], 'persistentvolumeclaim "c" not found'),
        ([make_claim("c", volume="gone")], 'persistentvolume "gone" not found'),
        (
            [make_claim("c", class_name=None)],
            "PersistentVolumeClaim had no pv name and storageClass name",
        ),
        ([make_claim("c")], 'storageclass.storage.k8s.io "wait" not found'),
        (
            [make_claim("c"), make_storage_class(mode=None)],
            'VolumeBindingMode not set for StorageClass "wait"',
        ),
        ([make_claim("c"), make_storage_class(mode="Immediate")], "PersistentVolume had no name"),
        ([make_claim("c"), make_storage_class()], None),
    ],
)
def test_claims_without_a_volume(objects: list[dict[str, Any]], expected: str | None) -> None:
    handle = FakeHandle(NODES, objects=objects)
    plugin = make_plugin(VolumeZone, handle)
    result = plugin.pre_filter(CycleState(), make_pod(spec=spec_with_claims("c")), handle.nodes)
    assert result == (Status.skip() if expected is None else Status.unresolvable(expected))


def test_a_claim_without_a_name() -> None:
    plugin = make_plugin(VolumeZone, FakeHandle(NODES))
    result = plugin.pre_filter(
        CycleState(), make_pod(spec=spec_with_claims("")), plugin.handle.nodes
    )
    assert result == Status.unresolvable("PersistentVolumeClaim had no name")


def test_only_pods_without_volumes_share_results() -> None:
    plugin = make_plugin(VolumeZone, FakeHandle(NODES))
    assert plugin.sign(make_pod()) == ()
    assert plugin.sign(make_pod(spec=spec_with_claims("c"))) is None


def test_events() -> None:
    registered = make_plugin(VolumeZone, FakeHandle()).events_to_register()
    assert [(event.resource, event.action) for event in registered] == [
        (STORAGE_CLASS, ADD),
        (NODE, ADD | UPDATE_NODE_LABEL),
        (PERSISTENT_VOLUME_CLAIM, ADD | UPDATE),
        (PERSISTENT_VOLUME, ADD | UPDATE),
    ]


@pytest.mark.parametrize(
    ("number", "old", "new", "queued"),
    [
        (0, None, make_storage_class(), True),
        (0, None, make_storage_class(mode="Immediate"), False),
        (0, None, make_storage_class(mode=None), False),
        (2, None, make_claim("c"), True),
        (2, make_claim("c"), make_claim("c"), True),
        (2, None, make_claim("d"), False),
        (2, None, make_claim("c", namespace="elsewhere"), False),
        (3, None, make_volume("pv"), True),
        (3, make_volume("pv"), make_volume("pv"), False),
        (3, make_volume("pv"), make_volume("pv", labels={"any": "a"}), False),
        (3, make_volume("pv"), make_volume("pv", labels={ZONE: "a"}), True),
    ],
)
def test_hints(number: int, old: Any, new: Any, queued: bool) -> None:
    hint = make_plugin(VolumeZone, FakeHandle()).events_to_register()[number].hint
    before = None if old is None else typed(old)
    assert hint(make_pod(spec=spec_with_claims("c")), before, typed(new)) is queued


def test_volumes_are_looked_up_by_filter_where_pre_filter_is_disabled() -> None:
    def verdicts_of(*claims: str) -> list[Status | None]:
        objects = [make_claim("c", volume="pv"), make_volume("pv", labels={ZONE: "b"})]
        handle = FakeHandle(NODES, objects=objects)
        plugin, pod = make_plugin(VolumeZone, handle), make_pod(spec=spec_with_claims(*claims))
        verdicts = Verdicts(len(NODES), plugin.name)
        plugin.filter_all(CycleState(), pod, handle.nodes, verdicts)
        found = [plugin.filter(CycleState(), pod, node) for node in handle.nodes]
        passed = [verdicts.status(row) is None for row in range(len(NODES))]
        assert passed == [status is None for status in found]
        return found

    elsewhere = Status.unresolvable(REASON).with_plugin("VolumeZone")
    assert verdicts_of() == [None] * 5
    assert verdicts_of("c") == [elsewhere, None, elsewhere, elsewhere, None]
    missing = Status.unresolvable('persistentvolumeclaim "gone" not found')
    assert verdicts_of("gone") == [missing.with_plugin("VolumeZone")] * 5
