"""The cache is compared with a real apiserver while pods come, are bound, and go."""

from __future__ import annotations

import signal

from envtest import assertions, objects
from envtest.control_plane import ADMIN_TOKEN, ControlPlane
from envtest.schedulers import RunScheduler, SchedulerProcess, configuration, profile
from envtest.waiting import eventually

PODS = 400


def comparisons(scheduler: SchedulerProcess) -> float:
    family = scheduler.metrics(ADMIN_TOKEN).get("proreus_cache_comparisons")
    samples = () if family is None else family.samples
    assert all(one.value == 0 for one in samples if one.labels["result"] == "failure"), samples
    return sum(sample.value for sample in samples)


def test_a_busy_cluster_shows_no_difference(
    new_control_plane: ControlPlane, run_scheduler: RunScheduler
) -> None:
    plane, client = new_control_plane, new_control_plane.client
    client.create_all(objects.NODES, [objects.node(index) for index in range(50)])
    config = configuration([profile("spread-out")], plane.kubeconfig)
    config["clientConnection"] |= {"qps": 50, "burst": 20}
    scheduler = run_scheduler(config, flags=("--cache-compare-interval=200ms",))
    pods = [objects.pod(f"pod-{index:04}", "spread-out") for index in range(PODS)]
    client.create_all(objects.PODS, pods)
    assertions.wait_until_bound(client, PODS, 60)
    done = comparisons(scheduler)
    for pod in pods[:100]:
        client.delete(
            f"{objects.PODS.format('default')}/{pod['metadata']['name']}", gracePeriodSeconds="0"
        )
    eventually(60, "another comparison", lambda: comparisons(scheduler) >= done + 2)
    family = scheduler.metrics(ADMIN_TOKEN).get("proreus_cache_differences")
    assert family is None or not any(sample.value for sample in family.samples)

    scheduler.signal(signal.SIGUSR2)
    eventually(30, "a dump", lambda: scheduler.log.read_text().count("Dump of cached node") >= 50)
    scheduler.finish()
