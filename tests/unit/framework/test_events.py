"""ClusterEvent: which registrations cover an event."""

from __future__ import annotations

import pytest

from proreus.framework.events import (
    ADD,
    ALL,
    ANY,
    ASSIGNED_POD,
    ASSIGNED_POD_ADD,
    DELETE,
    NODE,
    NODE_ADD,
    POD,
    TARGET_POD,
    UNSCHEDULABLE_POD,
    UNSCHEDULABLE_TIMEOUT,
    UNSCHEDULED_POD,
    UPDATE,
    UPDATE_NODE_ALLOCATABLE,
    UPDATE_NODE_LABEL,
    UPDATE_POD_LABEL,
    ClusterEvent,
    plugin_event,
)


@pytest.mark.parametrize(
    ("registered", "happened", "covered"),
    [
        ((NODE, ADD), (NODE, ADD), True),
        ((NODE, ADD | UPDATE_NODE_LABEL), (NODE, UPDATE_NODE_LABEL), True),
        ((NODE, ADD | UPDATE_NODE_LABEL), (NODE, UPDATE_NODE_ALLOCATABLE), False),
        ((NODE, ADD), (NODE, DELETE), False),
        ((POD, ADD), (NODE, ADD), False),
        ((POD, ADD), (ASSIGNED_POD, ADD), True),
        ((POD, DELETE), (UNSCHEDULED_POD, DELETE), True),
        ((POD, UPDATE_POD_LABEL), (TARGET_POD, UPDATE_POD_LABEL), True),
        ((ASSIGNED_POD, ADD), (UNSCHEDULED_POD, ADD), False),
        ((ASSIGNED_POD, UPDATE), (TARGET_POD, UPDATE), False),
        ((UNSCHEDULED_POD, UPDATE), (TARGET_POD, UPDATE), False),
        # the name of both in Kubernetes 1.36
        ((UNSCHEDULABLE_POD, ADD), (UNSCHEDULED_POD, ADD), True),
        ((UNSCHEDULABLE_POD, UPDATE), (TARGET_POD, UPDATE), True),
        ((UNSCHEDULABLE_POD, ADD), (ASSIGNED_POD, ADD), False),
        ((ANY, ALL), (NODE, DELETE), True),
        ((ANY, ADD), (NODE, ADD), True),
        # a generic update is covered by a registration that is at least as wide, numerically
        ((POD, UPDATE), (ASSIGNED_POD, UPDATE), True),
        ((POD, ALL), (ASSIGNED_POD, UPDATE), True),
        ((POD, UPDATE_POD_LABEL), (ASSIGNED_POD, UPDATE), False),
        ((POD, UPDATE), (ASSIGNED_POD, UPDATE_POD_LABEL), True),
    ],
)
def test_matches(registered: tuple[str, int], happened: tuple[str, int], covered: bool) -> None:
    assert ClusterEvent(*registered).matches(ClusterEvent(*happened)) is covered


@pytest.mark.parametrize(
    ("event", "label"),
    [
        (NODE_ADD, "NodeAdd"),
        (ASSIGNED_POD_ADD, "AssignedPodAdd"),
        (ClusterEvent(NODE, UPDATE_NODE_LABEL), "NodeUpdateNodeLabel"),
        (ClusterEvent(POD, UPDATE), "PodUpdate"),
        (ClusterEvent(NODE, ADD | UPDATE_NODE_LABEL), "NodeAdd|UpdateNodeLabel"),
        (UNSCHEDULABLE_TIMEOUT, "UnschedulableTimeout"),
    ],
)
def test_labels(event: ClusterEvent, label: str) -> None:
    assert event.label == label


def test_hints_do_not_make_events_differ() -> None:
    assert ClusterEvent(NODE, ADD, lambda pod, old, new: True) == NODE_ADD


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ((5, ADD), "resource must be a text, not 5"),
        ((["Node"], ADD), "resource must be a text"),
        ((NODE, "Add"), "action must be a whole number, not 'Add'"),
        ((NODE, True), "action must be a whole number, not True"),
        ((NODE, ADD, None, 5), "label must be a text, not 5"),
    ],
)
def test_fields_of_the_wrong_type_are_refused(fields, text):
    with pytest.raises(TypeError, match=text):
        ClusterEvent(*fields)


def test_names_are_plain_texts_that_can_be_encoded():
    event = plugin_event("caf\ud800e")
    assert event.resource == "plugin/caf\ufffde"
    assert event.label == "caf\ufffde"
