"""A pod's claims in PreEnqueue, PreFilter and PostFilter."""

from __future__ import annotations

from typing import Any

import pytest

from proreus.framework.cycle_state import CycleState
from proreus.framework.status import Code
from proreus.framework.verdicts import Verdicts
from proreus.testing import make_pod

TEMPLATE = {"resourceClaims": [{"name": "x", "resourceClaimTemplateName": "t"}]}


def test_a_pod_without_claims_is_skipped_and_scores_nothing(gpus: Any) -> None:
    pod = make_pod()
    status = gpus.pre_filter(pod)
    assert status is not None
    assert status.code == Code.SKIP
    assert gpus.plugin.score_all(gpus.state, pod, gpus.handle.nodes) == 0
    assert gpus.plugin.sign(pod) is not None
    assert gpus.plugin.sign(gpus.pod("claim")) is None


async def test_post_filter_without_claims_has_nothing_to_deallocate(gpus: Any) -> None:
    pod = make_pod()
    gpus.pre_filter(pod)
    gpus.verdicts = Verdicts(2)
    status = await gpus.post_filter(pod)
    assert (status.code, status.message) == (
        Code.UNSCHEDULABLE,
        "no new claims to deallocate",
    )


async def test_post_filter_without_pre_filter_is_an_error(gpus: Any) -> None:
    gpus.state, gpus.verdicts = CycleState(), Verdicts(2)
    status = await gpus.post_filter(make_pod())
    assert (status.code, status.message) == (Code.ERROR, "not found")


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ({"resourceClaims": [{"name": "x", "resourceClaimName": "c"}]},
         'could not find ResourceClaim "default/c"'),
        (TEMPLATE, 'pod "default/pod": ResourceClaim not created yet'),
        ({"resourceClaims": [{"name": "x"}]},
         'pod "default/pod", spec.resourceClaim "x": none of the supported fields are set'),
    ],
)  # fmt: skip
def test_a_pod_is_gated_until_its_claims_exist(gpus: Any, spec: Any, text: str) -> None:
    pod = make_pod(spec=spec)
    status = gpus.plugin.pre_enqueue(pod)
    assert (status.code, status.message) == (Code.UNRESOLVABLE, text)
    assert gpus.filter(pod) == {"": text}


def test_a_claim_that_is_being_deleted_gates_the_pod(gpus: Any) -> None:
    gpus.claim(metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"})
    status = gpus.plugin.pre_enqueue(gpus.pod("claim"))
    assert status.message == 'resourceclaim "claim" is being deleted'


@pytest.mark.parametrize("owner", ["uid-of-default-pod", "somebody"])
def test_a_claim_from_a_template_must_belong_to_the_pod(gpus: Any, owner: str) -> None:
    reference = {"kind": "Pod", "name": "pod", "uid": owner, "controller": True}
    gpus.claim("made", metadata={"ownerReferences": [reference]})
    statuses = [{"name": "x", "resourceClaimName": "made"}]
    pod = make_pod(spec=TEMPLATE, status={"resourceClaimStatuses": statuses})
    status = gpus.plugin.pre_enqueue(pod)
    if owner == pod.uid:
        assert status is None
    else:
        assert status.message == (
            "ResourceClaim default/made was not created for Pod default/pod (Pod is not owner)"
        )


def test_an_entry_without_a_claim_on_purpose_is_skipped(gpus: Any) -> None:
    pod = make_pod(spec=TEMPLATE, status={"resourceClaimStatuses": [{"name": "x"}]})
    assert gpus.plugin.pre_enqueue(pod) is None
    assert gpus.filter(pod) == {"": "skip"}


def test_a_request_needs_its_class(gpus: Any) -> None:
    gpus.claim("a", gpus.request("g", "big"))
    gpus.claim("b", gpus.first_available("g", gpus.sub("one"), gpus.sub("two", "big")))
    assert gpus.filter(gpus.pod("a")) == {"": "request g: device class big does not exist"}
    assert gpus.filter(gpus.pod("b")) == {"": "request g/two: device class big does not exist"}


def test_an_unknown_kind_of_request_is_refused(gpus: Any) -> None:
    gpus.claim("a", {"name": "g"})
    assert gpus.filter(gpus.pod("a")) == {
        "": "resource claim default/a, request g: unknown request type"
    }


def test_alternatives_need_their_gate(cluster: Any) -> None:
    old = cluster("n1", gates=["DRAPrioritizedList=false"])
    old.device_class()
    old.claim("a", old.first_available("g", old.sub("one")))
    assert old.filter(old.pod("a")) == {
        "": "resource claim default/a, request g: has subrequests, but the DRAPrioritizedList "
        "feature is disabled"
    }


def test_a_claim_in_flight_is_not_allocated_twice(gpus: Any) -> None:
    gpus.claim()
    assert gpus.reserve(gpus.pod("claim")) is None
    other = gpus.pod("claim", name="other")
    assert gpus.filter(other) == {
        "": "resource claim default/claim is in the process of being allocated"
    }


def test_an_allocated_claim_binds_the_pod_to_its_node(gpus: Any) -> None:
    gpus.claim(status=gpus.allocated("gpu-0"))
    assert gpus.filter(gpus.pod("claim")) == {"n2": "resourceclaim not available on the node"}


def test_an_allocation_without_a_node_selector_can_be_used_on_all_nodes(gpus: Any) -> None:
    status = gpus.allocated("gpu-0")
    del status["allocation"]["nodeSelector"]
    gpus.claim(status=status)
    assert gpus.filter(gpus.pod("claim")) == {}


async def test_an_allocation_that_keeps_the_pod_from_a_node_is_removed(gpus: Any) -> None:
    pod = gpus.pod("claim", "more")
    gpus.claim(status=gpus.allocated("gpu-0", "gpu-1", reserved=[pod.uid]))
    gpus.claim("more")
    assert set(gpus.filter(pod)) == {"n1", "n2"}
    status = await gpus.post_filter(pod)
    assert status.message == "deallocation of ResourceClaim completed"
    claim = gpus.claim_now()
    assert claim.status.allocation is None
    assert not claim.status.reserved_for
    assert gpus.filter(pod) == {}


async def test_an_allocation_that_other_pods_use_is_kept(gpus: Any) -> None:
    pod = gpus.pod("claim")
    gpus.claim(status=gpus.allocated("gpu-0", node="gone"))
    assert set(gpus.filter(pod)) == {"n1", "n2"}
    status = await gpus.post_filter(pod)
    assert (status.code, status.message) == (Code.UNSCHEDULABLE, "still not schedulable")
    assert gpus.claim_now().status.allocation is not None


async def test_an_allocation_on_a_node_that_another_plugin_rejected_is_kept(gpus: Any) -> None:
    pod = gpus.pod("claim")
    gpus.claim(status=gpus.allocated("gpu-0", reserved=[pod.uid]))
    gpus.filter(pod)
    gpus.verdicts = Verdicts(2, "Other")
    gpus.verdicts.reject(gpus.handle.nodes.pod_count == 0, "no")
    assert (await gpus.post_filter(pod)).message == "still not schedulable"
