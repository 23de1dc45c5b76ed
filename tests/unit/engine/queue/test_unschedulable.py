from __future__ import annotations

from proreus.engine.queue.unschedulable import RejectorKey, UnschedulablePods
from proreus.framework.pod_info import QueuedPodInfo


def queued(pod, *plugins: str, gate: str = "", pending: tuple[str, ...] = ()) -> QueuedPodInfo:
    return QueuedPodInfo(
        pod,
        1000.0,
        unschedulable_plugins={*plugins},
        pending_plugins={*pending},
        gating_plugin=gate,
    )


def waiting(
    pods: UnschedulablePods,
    *plugins: str,
    profile: str = "default-scheduler",
    gated: bool = False,
):
    rejector_keys = [RejectorKey(profile, plugin, gated) for plugin in plugins]
    return [q.info.name for q in pods.rejected_by(rejector_keys)]


def test_found_by_any_rejector_and_only_once(pod):
    pods = UnschedulablePods()
    pods.put(queued(pod("a"), "Fit", "Taint"))
    pods.put(queued(pod("b"), "Fit"))
    pods.put(queued(pod("c"), "Volume", pending=("Claims",)))
    pods.validate()
    assert waiting(pods, "Fit") == ["a", "b"]
    assert waiting(pods, "Taint", "Fit") == ["a", "b"]
    assert waiting(pods, "Claims") == ["c"]
    assert waiting(pods, "Other") == []
    assert waiting(pods, "Fit", profile="other") == []


def test_gated_pod_is_found_by_its_gate_only(pod):
    pods = UnschedulablePods()
    pods.put(queued(pod("a"), "Fit", "Gates", gate="Gates"))
    assert waiting(pods, "Fit", "Gates") == []
    assert waiting(pods, "Fit", gated=True) == []
    assert waiting(pods, "Gates", gated=True) == ["a"]


def test_named_pods_are_found_where_they_stand(pod):
    pods = UnschedulablePods()
    pods.put(queued(pod("a"), "Fit", gate="Gates"))
    pods.put(queued(pod("b"), "Fit", gate="Other"))
    pods.put(queued(pod("c"), "Gates"))
    keys = ["default/c", "default/b", "default/a", "default/d"]
    gate = RejectorKey("default-scheduler", "Gates", gated=True)
    assert [q.info.name for q in pods.rejected_among(gate, keys)] == ["a"]


def test_shelved_anew_when_put_again(pod):
    pods = UnschedulablePods()
    one = queued(pod("a"), "Fit")
    pods.put(one)
    one.unschedulable_plugins.add("Gates")
    one.gating_plugin = "Gates"
    pods.put(one)
    pods.validate()
    assert waiting(pods, "Fit") == []
    assert waiting(pods, "Gates", gated=True) == ["a"]


def test_replaced_by_another_item_of_the_same_key(pod):
    pods = UnschedulablePods()
    pods.put(queued(pod("a"), "Fit"))
    pods.put(replacement := queued(pod("a"), "Fit"))
    pods.validate()
    assert len(pods) == 1
    assert pods.rejected_by([RejectorKey("default-scheduler", "Fit")]) == [replacement]


def test_discard_leaves_nothing(pod):
    pods = UnschedulablePods()
    pods.put(queued(pod("a"), "Gates", gate="Gates"))
    assert pods.discard("default/a") is not None
    assert pods.discard("default/a") is None
    pods.validate()
    assert (len(pods), pods._by_rejector) == (0, {})
