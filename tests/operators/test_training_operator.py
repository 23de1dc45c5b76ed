"""PyTorchJobs of Kubeflow's training operator v1."""

from __future__ import annotations

from typing import Any

from operators.gangs import GangCluster

Json = dict[str, Any]


def pytorchjob(gangs: GangCluster, workers: int, **spec: str) -> Json:
    def replicas(count: int) -> Json:
        template = gangs.template(**spec)
        template["spec"]["containers"][0]["name"] = "pytorch"
        return {"replicas": count, "restartPolicy": "OnFailure", "template": template}

    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "ddp"},
        "spec": {"pytorchReplicaSpecs": {"Master": replicas(1), "Worker": replicas(workers)}},
    }


def start(gangs: GangCluster, gang_scheduler: str, scheduler_name: str = "") -> None:
    gangs.install_pod_groups()
    flags = [f"--gang-scheduler-name={gang_scheduler}", "--health-probe-bind-address={probes}"]
    gangs.start_operator("training-operator", flags)
    gangs.schedule(scheduler_name or gang_scheduler)


def test_pytorchjob_with_volcano(gangs: GangCluster) -> None:
    start(gangs, "volcano")
    gangs.write_volcano_phases()
    gangs.starts_as_a_whole(pytorchjob(gangs, workers=2), "pytorchjobs", 3)


def test_pytorchjob_with_scheduler_plugins(gangs: GangCluster) -> None:
    start(gangs, "scheduler-plugins")
    gangs.starts_as_a_whole(pytorchjob(gangs, workers=2), "pytorchjobs", 3)


def test_pytorchjob_whose_template_names_its_scheduler(gangs: GangCluster) -> None:
    start(gangs, "scheduler-plugins", "gangs")
    document = pytorchjob(gangs, workers=2, schedulerName="gangs")
    gangs.starts_as_a_whole(document, "pytorchjobs", 3)
