"""What the groups of a tree, and their pods, must have in common."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from proreus.engine.cache.pod_group_states import PodGroupStates
from proreus.engine.groups.validation import InvalidPodGroup, validate_pods, validate_tree
from proreus.framework.pod_group import PodGroupInfo
from proreus.framework.pod_info import PodInfo
from proreus.objects.scheduling import CompositePodGroup, PodGroup
from proreus.testing import make_pod

NO_PODS = PodGroupStates()


def pod(name: str = "p", priority: int = 5, policy: str | None = None, **fields: Any) -> PodInfo:
    spec = {} if policy is None else {"preemptionPolicy": policy}
    return make_pod(name, priority=priority, spec=spec, **fields)


def group(
    name: str,
    *within: PodInfo | PodGroupInfo,
    policy: str = "gang",
    workload: str = "w",
    **spec: Any,
) -> PodGroupInfo:
    """Return a PodGroup of pods, or a CompositePodGroup of groups."""
    pods = tuple(one for one in within if isinstance(one, PodInfo))
    children = tuple(one for one in within if isinstance(one, PodGroupInfo))
    body = {
        "metadata": {"namespace": "default", "name": name},
        "spec": {
            "priority": 5,
            "schedulingPolicy": {policy: {}},
            "workloadRef": {"workloadName": workload},
            **spec,
        },
    }
    api = msgspec.convert(body, CompositePodGroup if children else PodGroup)
    return PodGroupInfo("default", name, pods, api, children)


def refusal(root: PodGroupInfo, states: PodGroupStates = NO_PODS) -> str:
    with pytest.raises(InvalidPodGroup) as raised:
        validate_tree(root, states)
    return str(raised.value)


NEVER = {"preemptionPolicy": "Never"}
WHOLE = {"disruptionMode": {"all": {}}}
SINGLE = {"disruptionMode": {"single": {}}}


# ---- trees ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "root",
    [
        group("g", pod(), pod()),
        group("g", pod(policy="Never"), **NEVER),
        # Without a policy of the root's, that of the first pod.
        group("g", pod(policy="Never"), pod(policy="Never")),
        group("g", pod(), pod(policy="PreemptLowerPriority")),
        group("c", group("g", pod()), group("h", policy="gang")),
        group("c", group("g", pod(), policy="basic"), policy="basic"),
        group("c", group("g", pod(policy="Never"), **NEVER)),
        group("c", group("g", pod(), **SINGLE), **SINGLE),
        group("c", group("g", pod(), **WHOLE), **SINGLE),
        # A parent that is disrupted as a whole says nothing about a child that does not say either.
        group("c", group("g", pod()), **WHOLE),
        group("c", group("d", group("e", group("g", pod())))),
    ],
)
def test_a_tree_that_agrees_is_valid(root: PodGroupInfo) -> None:
    validate_tree(root, NO_PODS)


PODS = "all pods in a pod group hierarchy should have the same"
GROUPS = "all pod groups in a hierarchy should have the same"


@pytest.mark.parametrize(
    ("root", "text"),
    [
        (
            group("c", group("d", group("e", group("f", group("g", pod()))))),
            'hierarchy depth exceeds maximum allowed depth 4 at "compositepodgroup/default/f"',
        ),
        (
            group("c", group("g", pod(), workload="other")),
            'pod group workload does not match root workload, got: "other" '
            '("podgroup/default/g") and "w" ("compositepodgroup/default/c")',
        ),
        (
            group("c", group("g", pod(), priority=4)),
            f"{GROUPS} priority as the root pod group's priority, got 4 "
            '("podgroup/default/g") and 5 ("compositepodgroup/default/c")',
        ),
        (
            group("c", group("g", pod(), **NEVER)),
            f'{GROUPS} preemption policy, got Never ("podgroup/default/g") and '
            "PreemptLowerPriority",
        ),
        (
            group("c", group("g", pod(), policy="basic")),
            'gang parent "compositepodgroup/default/c" cannot have basic child '
            '"podgroup/default/g"',
        ),
        (
            group("c", group("g", pod(), **SINGLE), **WHOLE),
            'parent "compositepodgroup/default/c" with All disruption mode cannot have child '
            '"podgroup/default/g" with Single disruption mode',
        ),
        (
            group("g", pod("a"), pod("b", scheduler_name="other")),
            f'{PODS} .spec.schedulerName set, got: "other" ("b") and "default-scheduler" ("a")',
        ),
        (
            group("g", pod("a"), pod("b", 4)),
            f"{PODS} priority as the root pod group's priority, got 4 "
            '("b") and 5 ("podgroup/default/g")',
        ),
        (
            group("g", pod("a"), pod("b", policy="Never")),
            f'{PODS} preemption policy, got Never ("b") and PreemptLowerPriority',
        ),
        (
            group("g", pod("a"), **NEVER),
            f'{PODS} preemption policy, got PreemptLowerPriority ("a") and Never',
        ),
        # What is above is checked first, and of one level the groups in their order.
        (
            group("c", group("g", pod("a"), pod("b", 4)), group("h", priority=3), priority=5),
            f"{PODS} priority as the root pod group's priority, got 4 "
            '("b") and 5 ("compositepodgroup/default/c")',
        ),
    ],
)
def test_a_tree_that_disagrees_is_not(root: PodGroupInfo, text: str) -> None:
    assert refusal(root) == text


def test_pods_that_have_a_node_must_agree_as_well() -> None:
    spec = {"schedulingGroup": {"podGroupName": "g"}}
    placed = make_pod("old", priority=4, node_name="n", spec=spec)
    states = PodGroupStates()
    states.assign(placed)
    assert 'got 4 ("old") and 5' in refusal(group("g", pod("new")), states)
    # Pods of another PodGroup, whose name a CompositePodGroup has as well, need not.
    validate_tree(group("g", group("h", pod("new"))), states)


# ---- up to 1.37 ----------------------------------------------------------------------------------

SAME = "all pods in a single pod group should have the same"


@pytest.mark.parametrize(
    ("pods", "policy", "policy_of_group"),
    [
        ([], {}, True),
        ([pod(), pod()], {}, False),
        ([pod(), pod(policy="PreemptLowerPriority")], {}, False),
        ([pod(policy="Never"), pod(policy="Never")], {}, False),
        # The group's own policy counts with the gate only.
        ([pod()], NEVER, False),
        ([pod(policy="Never")], NEVER, True),
        ([pod()], {}, True),
    ],
)
def test_pods_that_agree_are_valid_up_to_1_37(
    pods: Sequence[PodInfo], policy: dict[str, str], policy_of_group: bool
) -> None:
    validate_pods(group("g", *pods, **policy), NO_PODS, policy_of_group=policy_of_group)


@pytest.mark.parametrize(
    ("pods", "policy", "policy_of_group", "text"),
    [
        (
            [pod(), pod(scheduler_name="other")],
            {},
            False,
            f'{SAME} .spec.schedulerName set, got: "other" and "default-scheduler"',
        ),
        (
            [pod(), pod(priority=4)],
            {},
            False,
            f"{SAME} priority as the pod group's priority, got 4 and 5",
        ),
        (
            [pod(), pod(policy="Never")],
            {},
            False,
            f"{SAME} preemption policy, got Never and PreemptLowerPriority",
        ),
        (
            [pod()],
            NEVER,
            True,
            f"{SAME} preemption policy as the pod group's preemption policy, got "
            "PreemptLowerPriority and Never",
        ),
        (
            [pod(policy="Never")],
            {},
            True,
            f"{SAME} preemption policy as the pod group's preemption policy, got Never and "
            "PreemptLowerPriority",
        ),
        # The first pod that is wrong, and of it the first thing that is wrong.
        (
            [pod(), pod("p", 4, scheduler_name="other", policy="Never"), pod(priority=3)],
            {},
            False,
            f'{SAME} .spec.schedulerName set, got: "other" and "default-scheduler"',
        ),
    ],
)
def test_pods_that_disagree_are_not_up_to_1_37(
    pods: Sequence[PodInfo], policy: dict[str, str], policy_of_group: bool, text: str
) -> None:
    with pytest.raises(InvalidPodGroup) as raised:
        validate_pods(group("g", *pods, **policy), NO_PODS, policy_of_group=policy_of_group)
    assert str(raised.value) == text


def test_a_group_of_a_plugin_takes_pods_of_any_priority() -> None:
    validate_pods(group("a/b", pod(), pod(priority=4)), NO_PODS, policy_of_group=False)
