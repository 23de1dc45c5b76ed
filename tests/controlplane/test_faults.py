"""Faults of a cluster: the apiserver crashes or hangs, history is compacted, the leader ends.

No pod may be lost, and none bound twice. Client-side rates are low here, so that the fault is sure
to happen in the middle of the work.
"""

from __future__ import annotations

import signal
import time
from collections import Counter
from pathlib import Path
from typing import Any

from envtest import assertions, objects
from envtest.control_plane import ADMIN_TOKEN, ControlPlane
from envtest.schedulers import RunScheduler, SchedulerProcess, configuration, profile
from envtest.waiting import eventually

Json = dict[str, Any]

NODES = 200
PODS = 500
SLOWLY = {"qps": 20, "burst": 20}
"""Lower than the rate at which a busy machine creates pods, or the fault would come too late."""

LEASE = {
    "leaderElect": True,
    "leaseDuration": "10s",
    "renewDeadline": "8s",
    "retryPeriod": "1s",
    "resourceName": "proreus",
}


def slow_configuration(kubeconfig: Path, **leader_election: Any) -> Json:
    config = configuration([profile("spread-out")], kubeconfig, leader_election)
    config["clientConnection"] |= SLOWLY
    return config


def fill(plane: ControlPlane, *, nodes: int = NODES, pods: int = PODS) -> None:
    plane.client.create_all(objects.NODES, [objects.node(index) for index in range(nodes)])
    plane.client.create_all(
        objects.PODS, [objects.pod(f"pod-{index:04}", "spread-out") for index in range(pods)]
    )


def wait_until_half_way(plane: ControlPlane) -> None:
    eventually(60, "a quarter of the pods bound", lambda: len(plane.binds_by_pod()) > PODS / 4)
    assert len(plane.binds_by_pod()) < PODS * 3 / 4, "too fast: the fault would come too late"


def check_nothing_lost_or_doubled(plane: ControlPlane, pods: int = PODS) -> None:
    assertions.wait_until_bound(plane.client, pods, 120)
    listed = plane.client.list(assertions.ALL_PODS)
    assert len(listed) == pods
    assertions.check_no_node_over_committed(plane.client.list(objects.NODES), listed)
    # an apiserver that is killed after a write to etcd may not log it, hence "at most once"
    twice = {pod: statuses for pod, statuses in plane.binds_by_pod().items() if statuses[201] > 1}
    assert not twice


def test_apiserver_is_killed_and_restarted(
    new_control_plane: ControlPlane, run_scheduler: RunScheduler
) -> None:
    fill(new_control_plane)
    scheduler = run_scheduler(slow_configuration(new_control_plane.kubeconfig))
    wait_until_half_way(new_control_plane)

    new_control_plane.kill_apiserver()
    time.sleep(2)  # long enough for everything in flight to fail
    assert scheduler.running
    new_control_plane.start_apiserver()

    check_nothing_lost_or_doubled(new_control_plane)
    scheduler.finish()


def test_apiserver_is_killed_while_a_lease_is_held(
    new_control_plane: ControlPlane, run_scheduler: RunScheduler
) -> None:
    """An outage shorter than the renew deadline does not cost the leader its Lease."""
    fill(new_control_plane, pods=200)
    lease = LEASE | {"leaseDuration": "30s", "renewDeadline": "25s"}
    scheduler = run_scheduler(slow_configuration(new_control_plane.kubeconfig, **lease))
    assertions.wait_until_bound(new_control_plane.client, 200, 60)

    new_control_plane.restart_apiserver()
    new_control_plane.client.create_all(
        objects.PODS, [objects.pod(f"later-{index}", "spread-out") for index in range(50)]
    )

    check_nothing_lost_or_doubled(new_control_plane, 250)
    holder = lease_of(new_control_plane)
    assert holder["holderIdentity"]
    assert holder["leaseTransitions"] == 0
    scheduler.finish()
    assert lease_of(new_control_plane)["holderIdentity"] == ""


def test_watches_resume_after_a_compaction(
    new_control_plane: ControlPlane, run_scheduler: RunScheduler
) -> None:
    """The cluster changes and is compacted while the scheduler is suspended: it must relist."""
    plane, client = new_control_plane, new_control_plane.client
    fill(plane, nodes=40, pods=200)
    scheduler = run_scheduler(configuration([profile("spread-out")], plane.kubeconfig))
    assertions.wait_until_bound(client, 200, 60)
    old_version = client.get(objects.NODES, limit="1")["metadata"]["resourceVersion"]

    scheduler.signal(signal.SIGSTOP)
    change_the_world(plane)
    plane.kill_apiserver()
    time.sleep(0.2)
    plane.start_apiserver()
    plane.compact_etcd()
    [too_old] = client.watch(objects.NODES, old_version)
    assert too_old["object"]["code"] == 410
    scheduler.signal(signal.SIGCONT)

    # Pods may be relisted before nodes, and be bound to nodes that are gone, as in any cluster.
    selector = {"nodeSelector": {"kubernetes.io/hostname": "node-00050"}}
    client.create_all(objects.PODS, [objects.pod("first", "spread-out", spec=selector)])
    assertions.wait_until_bound(client, 100 + 20 + 1, 60)
    waiting = [objects.pod(f"later-{i}", "spread-out", cpu="4") for i in range(60)]
    client.create_all(objects.PODS, waiting)
    assertions.wait_until_bound(client, 100 + 20 + 1 + 60, 60)
    nodes, pods = client.list(objects.NODES), client.list(assertions.ALL_PODS)
    later = [pod for pod in pods if pod["metadata"]["name"].startswith("later-")]
    assertions.check_all_fit(nodes, later)  # none on a node that went
    assertions.check_no_node_over_committed(nodes, [p for p in pods if p in later or others(p)])
    assert {assertions.node_of(pod) for pod in later} & {f"node-{i:05}" for i in range(40, 60)}
    scheduler.finish()


def test_etcd_is_restored_from_a_backup(
    new_control_plane: ControlPlane, run_scheduler: RunScheduler
) -> None:
    """What was bound after the backup never happened, and what was deleted is there again."""
    plane, client = new_control_plane, new_control_plane.client

    def create(name: str, count: int) -> None:
        pods = [objects.pod(f"{name}-{index}", "spread-out", cpu="4") for index in range(count)]
        client.create_all(objects.PODS, pods)

    # Ten nodes can hold eighty pods: for the last ones only once those undone are forgotten.
    client.create_all(objects.NODES, [objects.node(index) for index in range(10)])
    scheduler = run_scheduler(configuration([profile("spread-out")], plane.kubeconfig))
    create("before", 20)
    assertions.wait_until_bound(client, 20, 60)
    backup = plane.back_up()
    create("undone", 60)
    assertions.wait_until_bound(client, 80, 60)
    path = objects.PODS.format("default")
    client.in_parallel(
        lambda index: client.delete(f"{path}/before-{index}", gracePeriodSeconds="0"), range(10)
    )

    plane.restore(backup)
    create("after", 60)

    assertions.wait_until_bound(client, 80, 120)
    pods = client.list(assertions.ALL_PODS)
    kinds = Counter(pod["metadata"]["name"].partition("-")[0] for pod in pods)
    assert kinds == {"before": 20, "after": 60}
    assertions.check_no_node_over_committed(client.list(objects.NODES), pods)
    assert scheduler.running
    scheduler.finish()


def change_the_world(plane: ControlPlane) -> None:
    """Replace nodes, delete pods, and fill half of the remaining nodes."""
    client = plane.client
    client.in_parallel(client.delete, [f"{objects.NODES}/node-{index:05}" for index in range(20)])
    client.create_all(objects.NODES, [objects.node(index) for index in range(40, 60)])
    path = objects.PODS.format("default")
    client.in_parallel(
        lambda name: client.delete(f"{path}/{name}", gracePeriodSeconds="0"),
        [f"pod-{index:04}" for index in range(100)],
    )
    for index in range(20, 40):
        blocker = objects.pod(f"other-{index}", "somebody-else", cpu="24")
        blocker["spec"]["nodeName"] = f"node-{index:05}"
        client.create(path, blocker)


def others(pod: Json) -> bool:
    return bool(pod["spec"]["schedulerName"] == "somebody-else")


def test_apiserver_hangs(new_control_plane: ControlPlane, run_scheduler: RunScheduler) -> None:
    """Connections stay open, but the apiserver does not respond for a while."""
    fill(new_control_plane)
    scheduler = run_scheduler(slow_configuration(new_control_plane.kubeconfig))
    wait_until_half_way(new_control_plane)

    new_control_plane.freeze_apiserver()
    time.sleep(3)
    new_control_plane.thaw_apiserver()

    check_nothing_lost_or_doubled(new_control_plane)
    scheduler.finish()


def lease_of(plane: ControlPlane) -> Json:
    leases = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
    return dict(plane.client.get(f"{leases}/proreus")["spec"])


def leader_and_standby(
    plane: ControlPlane, run_scheduler: RunScheduler
) -> tuple[SchedulerProcess, SchedulerProcess]:
    config = slow_configuration(plane.kubeconfig, **LEASE)
    first = run_scheduler(config)
    eventually(20, "the first to lead", lambda: first.is_leader(ADMIN_TOKEN))
    second = run_scheduler(config)
    assert not second.is_leader(ADMIN_TOKEN)
    return first, second


def test_a_standby_takes_over_when_the_leader_is_killed(
    new_control_plane: ControlPlane, run_scheduler: RunScheduler
) -> None:
    first, second = leader_and_standby(new_control_plane, run_scheduler)
    fill(new_control_plane)
    wait_until_half_way(new_control_plane)
    assert not second.is_leader(ADMIN_TOKEN)

    first.kill()

    check_nothing_lost_or_doubled(new_control_plane)
    assert second.is_leader(ADMIN_TOKEN)
    assert lease_of(new_control_plane)["leaseTransitions"] == 1
    second.finish()


def test_a_standby_takes_over_at_once_when_the_leader_is_stopped(
    new_control_plane: ControlPlane, run_scheduler: RunScheduler
) -> None:
    """On SIGTERM the leader releases the Lease, so the standby need not wait for its expiry."""
    first, second = leader_and_standby(new_control_plane, run_scheduler)
    fill(new_control_plane)
    wait_until_half_way(new_control_plane)

    first.finish()

    eventually(6, "the second to lead", lambda: second.is_leader(ADMIN_TOKEN))
    check_nothing_lost_or_doubled(new_control_plane)
    second.finish()


def test_a_leader_that_was_suspended_past_its_lease_ends(
    new_control_plane: ControlPlane, run_scheduler: RunScheduler
) -> None:
    """A process that was suspended for longer than its Lease must not bind when it resumes."""
    first, second = leader_and_standby(new_control_plane, run_scheduler)
    fill(new_control_plane)
    wait_until_half_way(new_control_plane)

    first.signal(signal.SIGSTOP)
    eventually(30, "the second to lead", lambda: second.is_leader(ADMIN_TOKEN))
    first.signal(signal.SIGCONT)

    assert first.wait(20) == 1
    check_nothing_lost_or_doubled(new_control_plane)
    second.finish()


def test_a_successor_finishes_the_work_of_a_killed_scheduler(
    new_control_plane: ControlPlane, run_scheduler: RunScheduler
) -> None:
    """Without leader election: crash and restart several times."""
    fill(new_control_plane)
    for _ in range(3):
        scheduler = run_scheduler(slow_configuration(new_control_plane.kubeconfig))
        before = len(new_control_plane.binds_by_pod())
        eventually(
            30, "work done", lambda n=before: len(new_control_plane.binds_by_pod()) > n + 100
        )
        scheduler.kill()
    run_scheduler(slow_configuration(new_control_plane.kubeconfig))
    check_nothing_lost_or_doubled(new_control_plane)
