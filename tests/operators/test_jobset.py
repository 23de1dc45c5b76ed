"""JobSets, whose pods are a group where their template names a PodGroup."""

from __future__ import annotations

from typing import Any

from envtest import controllers

from operators.gangs import GangCluster

Json = dict[str, Any]

LABEL = "scheduling.x-k8s.io/pod-group"
CONFIG = {"apiVersion": "config.jobset.x-k8s.io/v1alpha1", "kind": "Configuration"}


def jobset(gangs: GangCluster, replicas: int, parallelism: int) -> Json:
    template = gangs.template(schedulerName="gangs", restartPolicy="Never")
    template["metadata"]["labels"] = {LABEL: "llama"}
    job = {"parallelism": parallelism, "completions": parallelism, "template": template}
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "llama"},
        "spec": {
            "replicatedJobs": [{"name": "node", "replicas": replicas, "template": {"spec": job}}]
        },
    }


def test_jobset_whose_template_names_a_pod_group(gangs: GangCluster) -> None:
    gangs.install_pod_groups()
    gangs.start_operator("jobset", config=CONFIG)
    gangs.schedule("gangs")
    group = {
        "apiVersion": "scheduling.x-k8s.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": "llama"},
        "spec": {"minMember": 4},
    }
    gangs.client.create(controllers.POD_GROUPS.format(gangs.namespace), group)
    gangs.starts_as_a_whole(jobset(gangs, replicas=2, parallelism=2), "jobsets", 4)
