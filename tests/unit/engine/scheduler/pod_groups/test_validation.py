"""What all pods of a group must have in common."""

from __future__ import annotations

from typing import Any

import pytest

from proreus.engine.groups.cycle import InvalidPodGroup, validate_pod_group
from proreus.objects.pod import Pod
from proreus.objects.scheduling import PodGroup, PodGroupSpec
from proreus.testing import make_pod

WHOLE = "all pods in a single pod group should have the same"


def pod(priority: int = 5, policy: str | None = None, **fields: Any) -> Pod:
    spec = {} if policy is None else {"preemptionPolicy": policy}
    return make_pod("p", priority=priority, spec=spec, **fields).pod


def root(policy: str | None = None) -> PodGroup:
    return PodGroup(spec=PodGroupSpec(priority=5, preemption_policy=policy))


@pytest.mark.parametrize(
    ("pods", "policy", "policy_of_group"),
    [
        ([], None, True),
        ([pod(), pod()], None, False),
        ([pod(), pod(policy="PreemptLowerPriority")], None, False),
        ([pod(policy="Never"), pod(policy="Never")], None, False),
        # The group's own policy counts with the gate only.
        ([pod()], "Never", False),
        ([pod(policy="Never")], "Never", True),
        ([pod()], None, True),
    ],
)
def test_pods_that_agree_are_valid(pods, policy, policy_of_group) -> None:
    validate_pod_group(root(policy), pods, policy_of_group=policy_of_group)


@pytest.mark.parametrize(
    ("pods", "policy", "policy_of_group", "text"),
    [
        (
            [pod(), pod(scheduler_name="other")],
            None,
            False,
            f'{WHOLE} .spec.schedulerName set, got: "other" and "default-scheduler"',
        ),
        (
            [pod(), pod(4)],
            None,
            False,
            f"{WHOLE} priority as the pod group's priority, got 4 and 5",
        ),
        (
            [pod(), pod(policy="Never")],
            None,
            False,
            f"{WHOLE} preemption policy, got Never and PreemptLowerPriority",
        ),
        (
            [pod()],
            "Never",
            True,
            f"{WHOLE} preemption policy as the pod group's preemption policy, got "
            "PreemptLowerPriority and Never",
        ),
        (
            [pod(policy="Never")],
            None,
            True,
            f"{WHOLE} preemption policy as the pod group's preemption policy, got Never and "
            "PreemptLowerPriority",
        ),
        # The first pod that is wrong, and of it the first thing that is wrong.
        (
            [pod(), pod(4, scheduler_name="other", policy="Never"), pod(3)],
            None,
            False,
            f'{WHOLE} .spec.schedulerName set, got: "other" and "default-scheduler"',
        ),
    ],
)
def test_pods_that_disagree_are_not(pods, policy, policy_of_group, text) -> None:
    with pytest.raises(InvalidPodGroup) as raised:
        validate_pod_group(root(policy), pods, policy_of_group=policy_of_group)
    assert str(raised.value) == text
