"""What pods are charged with: decided once, by Reserve or by what they say when they get a node."""

from __future__ import annotations

from typing import Any

from proreus.addons.pod_charges import PodCharges, bound_at, of_cluster
from proreus.framework import PodInfo
from proreus.objects import PODS, Pod
from proreus.testing import FakeHandle, make_pod

NOTE = "note"


def noted(note: str, node: str = "", **more: Any) -> PodInfo:
    annotations = {NOTE: note} if note else {}
    return make_pod("p", node_name=node, metadata={"annotations": annotations}, **more)


def claim(pod: Pod) -> str | None:
    return pod.metadata.annotations.get(NOTE)


def charges(handle: FakeHandle | None = None) -> PodCharges[str]:
    return PodCharges(handle or FakeHandle(), "Account", claim)


UID = noted("").uid


def test_the_first_version_with_a_node_decides() -> None:
    account = charges()
    account.pod_changed(None, noted("pending").pod)
    assert account.get(UID) is None
    versions = [noted(note, "a").pod for note in ("first", "second", "")]
    for old, new in zip([None, *versions], versions, strict=False):
        account.pod_changed(old, new)
        assert account.get(UID) == "first"
    assert dict(account.on_node("a")) == {UID: "first"}


def test_a_pod_that_said_nothing_at_first_is_charged_with_nothing() -> None:
    account = charges()
    account.pod_changed(None, noted("", "a").pod)
    account.pod_changed(noted("", "a").pod, noted("later", "a").pod)
    assert account.get(UID) is None
    assert account.is_decided(noted("later", "a").pod)


def test_what_reserve_chose_counts_on_its_node_alone() -> None:
    for chosen in ("ours", None):
        account = charges()
        account.reserve(noted("odd"), "a", chosen)
        account.pod_changed(None, noted("odd", "a").pod)
        assert account.get(UID) == chosen
        # Another scheduler has bound it elsewhere.
        account.reserve(noted("odd"), "a", chosen)
        account.pod_changed(None, noted("theirs", "b").pod)
        assert account.get(UID) == "theirs"
        assert not account.on_node("a")


def test_a_pod_that_is_bound_after_all_keeps_a_charge() -> None:
    handle = FakeHandle()
    account = charges(handle)
    account.reserve(noted("x"), "a", "ours")
    account.unreserve(noted("x"))
    assert account.get(UID) is None
    # The answer to the binding was lost, and its watch event came first.
    account.reserve(noted("x"), "a", "ours")
    handle.api.put(PODS, noted("x", "a").pod)
    account.unreserve(noted("x"))
    assert account.get(UID) == "x"
    # A pod of the same name is another one.
    handle.api.put(PODS, make_pod("p", node_name="a", metadata={"uid": "other"}).pod)
    account.reserve(noted("x"), "a", "ours")
    account.unreserve(noted("x"))
    assert account.get(UID) is None


def test_a_pod_that_is_gone_or_has_finished_is_forgotten_but_for_hints() -> None:
    ended = noted("x", "a", status={"phase": "Succeeded"}).pod
    for new in (None, ended):
        account = charges()
        account.pod_changed(None, noted("x", "a").pod)
        account.pod_changed(noted("y", "a").pod, new)
        assert account.get(UID) is None
        assert account.latest(UID) == "x"
    for number in range(2_000):
        one = make_pod(f"q{number}", node_name="a", metadata={"annotations": {NOTE: "z"}}).pod
        account.pod_changed(None, one)
        account.pod_changed(one, None)
    assert account.latest(UID) is None
    assert len(account._gone) == 1_000


def test_a_pod_that_comes_back_is_not_charged_as_it_was_before_it_went() -> None:
    for charge in ("second", None):
        account = charges()
        account.pod_changed(None, noted("first", "a").pod)
        account.pod_changed(noted("first", "a").pod, None)
        account.reserve(noted("second"), "a", charge)
        assert account.latest(UID) == charge


def test_a_refused_claim_is_said_once_a_pod() -> None:
    handle = FakeHandle()
    account = charges(handle)
    pod = noted("x", "a").pod
    for _ in range(3):
        account.refuse(pod, "it is too much")
    [(key, reason, note)] = handle.event_recorder.events
    assert (key, reason) == ("default/p", "AllocationRefused")
    assert note == "Account does not count what the pod claims: it is too much"
    name = "proreus_refused_allocations_total"
    [family] = [one for one in handle.metrics.families() if one.description.name == name]
    assert dict(family.values()) == {("Account",): 1}
    account.pod_changed(pod, None)
    account.refuse(pod, "again")
    assert len(handle.event_recorder.events) == 2


def test_when_a_pod_was_bound_is_what_its_status_says() -> None:
    condition = {"type": "PodScheduled", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    pod = noted("", status={"conditions": [condition]}).pod
    assert bound_at(pod) == "2026-01-01T00:00:00Z"
    assert bound_at(noted("").pod) == ""


def test_what_is_shared_is_made_once_as_long_as_anybody_has_it() -> None:
    handle, made = FakeHandle(), []

    def make() -> PodCharges[str]:
        made.append(1)
        return charges(handle)

    first = of_cluster(handle, "key", make)
    assert of_cluster(handle, "key", make) is first
    assert of_cluster(handle, "other", make) is not first
    assert of_cluster(FakeHandle(), "key", make) is not first
    assert len(made) == 3
    del first
    of_cluster(handle, "key", make)
    assert len(made) == 4
