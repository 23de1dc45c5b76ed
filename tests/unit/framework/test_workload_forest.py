"""Trees of groups: roots, leaves, and what keeps a group from having a root."""

from __future__ import annotations

import pytest

from proreus.framework.workload_forest import MAX_LEVELS, MAX_LEVELS_UP_TO_1_37, WorkloadForest
from proreus.objects.meta import ObjectMeta
from proreus.objects.scheduling import (
    CompositePodGroup,
    CompositePodGroupSpec,
    EntityKey,
    PodGroup,
    PodGroupSpec,
)


def group(name: str, parent: str | None = None) -> PodGroup:
    spec = PodGroupSpec(parent_composite_pod_group_name=parent)
    return PodGroup(metadata=ObjectMeta(name=name, namespace="ns"), spec=spec)


def composite(name: str, parent: str | None = None) -> CompositePodGroup:
    spec = CompositePodGroupSpec(parent_composite_pod_group_name=parent)
    return CompositePodGroup(metadata=ObjectMeta(name=name, namespace="ns"), spec=spec)


def forest_of(
    *groups: PodGroup | CompositePodGroup, gate: bool = True, levels: int = MAX_LEVELS
) -> WorkloadForest:
    forest = WorkloadForest(composite=gate, levels=levels)
    for one in groups:
        forest.put(one)
    forest.validate()
    return forest


def root_name(forest: WorkloadForest, name: str = "g") -> str | None:
    root = forest.root_of(EntityKey("podgroup", "ns", name))
    return None if root is None else root.metadata.name


@pytest.mark.parametrize("backwards", [False, True])
def test_links_in_any_order(backwards):
    groups = [group("g", "c1"), group("h", "c2"), composite("c1", "c2"), composite("c2")]
    forest = forest_of(*(reversed(groups) if backwards else groups))
    assert root_name(forest) == "c2"
    leaves = forest.leaves_of(composite("c2").key)
    assert [leaf.name for leaf in leaves] == ["g", "h"]
    info = forest.pod_group_info(composite("c2").key, {})
    assert [leaf.name for leaf in info.leaves] == ["g", "h"]


def test_without_the_gate_a_parent_is_ignored():
    assert root_name(forest_of(group("g", "c1"), gate=False)) == "g"


def test_missing_and_deleted_parents():
    forest = forest_of(group("g", "c1"))
    assert root_name(forest) is None
    forest.put(composite("c1"))
    assert root_name(forest) == "c1"
    forest.remove(composite("c1").key)
    assert root_name(forest) is None
    assert forest.leaves_of(composite("c1").key) == [group("g").key]
    forest.remove(group("g").key)
    forest.validate()
    assert forest.leaves_of(composite("c1").key) == []


def test_other_namespace_is_another_group():
    forest = forest_of(group("g"))
    assert forest.root_of(EntityKey("podgroup", "other", "g")) is None


def test_loop():
    forest = forest_of(composite("c1", "c2"), composite("c2", "c1"), group("g", "c1"))
    assert root_name(forest) is None
    assert forest.leaves_of(composite("c1").key) == [group("g").key]


def chain(length: int) -> list[CompositePodGroup]:
    return [composite(f"c{i}", f"c{i - 1}" if i else None) for i in range(length)]


LEVELS = pytest.mark.parametrize("levels", [MAX_LEVELS, MAX_LEVELS_UP_TO_1_37])


@LEVELS
def test_levels(levels):
    deepest = levels - 1
    forest = forest_of(*chain(deepest), group("g", f"c{deepest - 1}"), levels=levels)
    assert root_name(forest) == "c0"
    assert forest.leaves_of(composite("c0").key) == [group("g").key]
    forest = forest_of(*chain(deepest + 1), group("g", f"c{deepest}"), levels=levels)
    assert root_name(forest) is None


@LEVELS
def test_chain_beyond_the_recursion_limit(levels):
    """A short branch is scheduled; a long one beside it is not looked at."""
    groups = *chain(3000), group("far", "c2999"), group("near", "c0")
    forest = forest_of(*groups, levels=levels)
    assert root_name(forest, "far") is None
    assert root_name(forest, "near") == "c0"
    info = forest.pod_group_info(composite("c0").key, {})
    assert [leaf.name for leaf in info.leaves] == ["near"]
    assert forest.leaves_of(composite("c0").key) == [group("near").key]


def test_new_version_has_another_parent():
    forest = forest_of(composite("c1"), composite("c2"), group("g", "c1"))
    forest.put(group("g", "c2"))
    forest.validate()
    assert root_name(forest) == "c2"
    assert forest.children_of(composite("c1").key) == []
