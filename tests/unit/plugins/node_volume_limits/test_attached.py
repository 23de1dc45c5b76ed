"""The counts of attached volumes follow every change of the cluster."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proreus.framework.node_info import NodeInfo
from proreus.plugins.node_volume_limits.attached import AttachedVolumes
from proreus.plugins.node_volume_limits.volumes import VolumeLookup
from proreus.testing import FakeHandle, make_node, make_pod
from proreus.testing.volumes import (
    make_attachment,
    make_claim,
    make_csi_node,
    make_storage_class,
    make_volume,
    spec_with_claims,
)

NODES = ("n0", "n1", "n2", "n3")
NAMES = ("a", "b", "c")
NUMBERS = st.integers(0, 3)


def add_node(handle: FakeHandle, name: str) -> None:
    if name not in handle.nodes:
        info = NodeInfo(name)
        info.set_node(make_node(name))
        handle.nodes.add_node(info)


def remove_node(handle: FakeHandle, name: str) -> None:
    if name in handle.nodes:
        handle.nodes.remove_node(handle.nodes[handle.nodes.rows[name]])


def add_pod(handle: FakeHandle, node: str, claims: list[str], name: str) -> None:
    pod = make_pod(name, node_name=node, spec=spec_with_claims(*claims))
    row = handle.nodes.rows.get(node)
    if row is not None and all(pod.uid not in info.pods for info in handle.nodes):
        handle.nodes.add_pod(row, pod)


def remove_pod(handle: FakeHandle, name: str) -> None:
    uid = make_pod(name).uid
    for row, info in enumerate(handle.nodes):
        if uid in info.pods:
            handle.nodes.remove_pod(row, uid)


def objects() -> st.SearchStrategy[dict[str, Any]]:
    names, drivers = st.sampled_from(NAMES), st.sampled_from(("d", "e"))
    sources = st.builds(
        lambda driver, handle: {"csi": {"driver": driver, "volumeHandle": handle}}, drivers, names
    )
    return st.one_of(
        st.builds(make_claim, names, volume=st.sampled_from(("", *NAMES))),
        st.builds(lambda name, source: make_volume(name, source=source), names, sources),
        st.builds(make_storage_class, st.just("wait"), drivers),
        st.builds(
            make_csi_node,
            st.sampled_from(NODES),
            st.dictionaries(drivers, st.one_of(st.none(), st.integers(0, 3)), max_size=2),
        ),
        st.builds(
            make_attachment,
            names,
            st.sampled_from(NODES),
            st.sampled_from((*NAMES, None)),
            drivers,
        ),
    )


def removals() -> st.SearchStrategy[tuple[str, str]]:
    kinds = ("PersistentVolumeClaim", "PersistentVolume", "VolumeAttachment")
    return st.one_of(
        st.tuples(st.sampled_from(kinds), st.sampled_from(NAMES)),
        st.tuples(st.just("CSINode"), st.sampled_from(NODES)),
        st.just(("StorageClass", "wait")),
    )


STEPS = st.one_of(
    st.tuples(st.just("node+"), st.sampled_from(NODES)),
    st.tuples(st.just("node-"), st.sampled_from(NODES)),
    st.tuples(
        st.just("pod+"),
        st.sampled_from(NODES),
        st.lists(st.sampled_from(NAMES), max_size=2),
        st.sampled_from(("p", "q", "r")),
    ),
    st.tuples(st.just("pod-"), st.sampled_from(("p", "q", "r"))),
    st.tuples(st.just("object+"), objects()),
    st.tuples(st.just("object-"), removals()),
    st.tuples(st.just("age")),
    st.tuples(st.just("look")),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(STEPS, max_size=40))
def test_any_history(steps: list[tuple[Any, ...]]) -> None:
    handle = FakeHandle([make_node("n0"), make_node("n1")], objects=[make_csi_node("n0", {"d": 2})])
    attached = AttachedVolumes(handle, VolumeLookup(handle))
    for what, *arguments in steps:
        if what == "node+":
            add_node(handle, *arguments)
        elif what == "node-":
            remove_node(handle, *arguments)
        elif what == "pod+":
            add_pod(handle, *arguments)
        elif what == "pod-":
            remove_pod(handle, *arguments)
        elif what == "object+":
            handle.add(*arguments)
        elif what == "object-":
            (kind, name) = arguments[0]
            key = f"default/{name}" if kind == "PersistentVolumeClaim" else name
            handle.remove(kind, key)
        elif what == "age":
            attached.age()
        else:
            attached.refresh()
            attached.validate()
    attached.refresh()
    attached.validate()


@pytest.mark.parametrize("refreshed", [False, True])
def test_names_of_nodes_that_are_gone_are_not_kept(refreshed: bool) -> None:
    handle = FakeHandle([make_node("n0")])
    attached = AttachedVolumes(handle, VolumeLookup(handle))
    if refreshed:
        attached.refresh()
    for number in range(100):
        handle.add(make_csi_node(f"gone-{number}", {"d": 1}))
        handle.add(make_attachment(f"a{number}", f"gone-{number}", "v"))
    for number in range(100):
        handle.remove("VolumeAttachment", f"a{number}")
        handle.remove("CSINode", f"gone-{number}")
    if refreshed:
        attached.refresh()
    attached.age()
    assert not attached._attachments
    assert not attached._stale_nodes


def test_names_of_nodes_are_not_kept_while_nobody_asks() -> None:
    handle = FakeHandle([make_node("n0")])
    attached = AttachedVolumes(handle, VolumeLookup(handle))
    attached.refresh()
    for number in range(100):
        handle.add(make_csi_node(f"gone-{number}", {"d": 1}))
        handle.remove("CSINode", f"gone-{number}")
    handle.add(make_csi_node("n0", {"d": 2}))
    attached.age()
    assert attached._stale_nodes == {"n0"}
    attached.refresh()
    attached.validate()
    assert rows_exceeding(attached, "d", 3) == [0]


def rows_exceeding(attached: AttachedVolumes, driver: str, number: int) -> list[int]:
    exceeded = attached.exceeds_limit(driver, number)
    assert exceeded is not None
    return np.flatnonzero(exceeded).tolist()


def test_columns_follow_the_size_of_the_table() -> None:
    handle = FakeHandle([make_node("n0")], objects=[make_csi_node("n0", {"d": 0})])
    attached = AttachedVolumes(handle, VolumeLookup(handle))
    attached.refresh()
    assert rows_exceeding(attached, "d", 1) == [0]

    def grow() -> None:
        for number in range(200):
            add_node(handle, f"n{number}")
            handle.add(make_csi_node(f"n{number}", {"d": 0}))

    grow()
    attached.refresh()
    attached.validate()
    assert rows_exceeding(attached, "d", 1) == list(range(200))

    handle.nodes.clear()
    add_node(handle, "n7")
    attached.refresh()
    attached.validate()
    grow()
    attached.refresh()
    attached.validate()
    assert rows_exceeding(attached, "d", 1) == list(range(200))


def test_drivers_that_one_node_has_take_no_column_each() -> None:
    nodes, drivers = 512, 1_000
    handle = FakeHandle([make_node(f"n{number}") for number in range(nodes)])
    attached = AttachedVolumes(handle, VolumeLookup(handle))
    handle.add(make_csi_node("n7", {f"d{number}": number for number in range(drivers)}))
    tracemalloc.start()
    try:
        attached.refresh()
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert taken < nodes * drivers
    assert rows_exceeding(attached, "d999", 999) == []
    assert rows_exceeding(attached, "d999", 1000) == [7]
    attached.validate()


def test_drivers_are_forgotten_with_the_last_node_that_has_them() -> None:
    nodes = [f"n{number}" for number in range(40)]
    handle = FakeHandle([make_node(name) for name in nodes])
    attached = AttachedVolumes(handle, VolumeLookup(handle))
    for name in nodes:
        handle.add(make_csi_node(name, {"d": 0}))
    attached.refresh()
    assert rows_exceeding(attached, "d", 1) == list(range(len(nodes)))
    for name in nodes:
        handle.remove("CSINode", name)
    attached.refresh()
    attached.age()
    assert attached.exceeds_limit("d", 1) is None
    attached.validate()
