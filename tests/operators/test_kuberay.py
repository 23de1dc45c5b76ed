"""RayClusters of KubeRay."""

from __future__ import annotations

from typing import Any

import pytest

from operators.gangs import GangCluster

Json = dict[str, Any]

SCHEDULER_NAMES = {
    "scheduler-plugins": "scheduler-plugins-scheduler",
    "volcano": "volcano",
}


def ray_cluster(gangs: GangCluster, workers: int) -> Json:
    template = gangs.template(schedulerName="overwritten")
    group = {
        "groupName": "workers",
        "replicas": workers,
        "minReplicas": workers,
        "maxReplicas": workers,
        "rayStartParams": {},
        "template": template,
    }
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": {"name": "demo", "labels": {"ray.io/gang-scheduling-enabled": "true"}},
        "spec": {
            "headGroupSpec": {"rayStartParams": {}, "template": template},
            "workerGroupSpecs": [group],
        },
    }


@pytest.mark.parametrize("batch_scheduler", SCHEDULER_NAMES)
def test_ray_cluster(gangs: GangCluster, batch_scheduler: str) -> None:
    gangs.install_pod_groups()
    flags = [
        "--metrics-addr=0",
        "--health-probe-bind-address={probes}",
        "--enable-leader-election=false",
        f"--batch-scheduler={batch_scheduler}",
    ]
    gangs.start_operator("ray-operator", flags)
    gangs.schedule(SCHEDULER_NAMES[batch_scheduler])
    gangs.starts_as_a_whole(ray_cluster(gangs, workers=2), "rayclusters", 3)
