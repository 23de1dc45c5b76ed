"""MPIJobs of Kubeflow's MPI operator."""

from __future__ import annotations

from typing import Any

import pytest

from operators.gangs import GangCluster

Json = dict[str, Any]


def mpijob(gangs: GangCluster, workers: int) -> Json:
    def replicas(count: int) -> Json:
        return {"replicas": count, "template": gangs.template(schedulerName="overwritten")}

    return {
        "apiVersion": "kubeflow.org/v2beta1",
        "kind": "MPIJob",
        "metadata": {"name": "pi"},
        "spec": {"mpiReplicaSpecs": {"Launcher": replicas(1), "Worker": replicas(workers)}},
    }


@pytest.mark.parametrize("gang_scheduler", ["volcano", "scheduler-plugins"])
def test_mpijob(gangs: GangCluster, gang_scheduler: str) -> None:
    gangs.install_pod_groups()
    gangs.start_operator("mpi-operator", [f"--gang-scheduling={gang_scheduler}"])
    gangs.schedule(gang_scheduler)
    gangs.starts_as_a_whole(mpijob(gangs, workers=2), "mpijobs", 3)
