"""Pods as the operators of batch workloads make them are scheduled as groups.

The labels and annotations of each test are those that the operator itself sets: see
docs/addons/workloads.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from proreus.addons.coscheduling import Coscheduling
from proreus.addons.coscheduling.base import BaseCoscheduling
from proreus.testing import Harness, make_node, make_pod

Json = dict[str, Any]


def pod_group(api: str, name: str, members: int) -> Json:
    meta = {"name": name, "namespace": "default"}
    return {"apiVersion": api, "kind": "PodGroup", "metadata": meta, "spec": {"minMember": members}}


def of_scheduler_plugins(name: str, members: int) -> Json:
    return pod_group("scheduling.x-k8s.io/v1alpha1", name, members)


def of_volcano(name: str, members: int) -> Json:
    return pod_group("scheduling.volcano.sh/v1beta1", name, members)


def made(name: str, labels: Json, annotations: Json | None = None, gate: str = ""):
    spec = {"schedulingGates": [{"name": gate}]} if gate else {}
    meta = {"annotations": annotations or {}}
    return make_pod(name, "1", labels=labels, metadata=meta, spec=spec)


def harness(*objects: Json, cpus: str) -> Harness:
    args = {"Coscheduling": {"mode": "plan"}}
    return Harness([Coscheduling], [make_node("n0", cpus)], objects, args=args)


def bound(cluster: Harness, pods: Iterable[Any]) -> int:
    return sum(bool(cluster.pod(one.name).spec.node_name) for one in pods)


def assert_is_a_group(pods: list[Any], *objects: Json) -> None:
    """Assert that none is bound where one does not fit or is missing, and all are where all fit."""
    cluster = harness(*objects, cpus=str(len(pods) - 1))
    cluster.add(*pods)
    cluster.schedule_all()
    assert bound(cluster, pods) == 0
    cluster = harness(*objects, cpus=str(len(pods)))
    cluster.add(*pods[:-1])
    cluster.schedule_all()
    assert bound(cluster, pods[:-1]) == 0
    cluster.add(pods[-1])
    cluster.schedule_all()
    assert bound(cluster, pods) == len(pods)
    cluster.scheduler.queue.validate()


# ---- Kubeflow -----------------------------------------------------------------------------------


def kubeflow_labels(job: str, kind: str, role: str, index: int) -> Json:
    return {
        "training.kubeflow.org/operator-name": f"{kind}-controller",
        "training.kubeflow.org/job-name": job,
        "training.kubeflow.org/replica-type": role,
        "training.kubeflow.org/replica-index": str(index),
    }


def pytorch_pods(labels: Json, annotations: bool) -> list[Any]:
    roles = [("master", 0), ("worker", 0), ("worker", 1)]
    return [
        made(
            f"ddp-{role}-{index}",
            kubeflow_labels("ddp", "pytorchjob", role, index) | labels,
            {"scheduling.k8s.io/group-name": "ddp", "volcano.sh/task-spec": role}
            if annotations
            else None,
        )
        for role, index in roles
    ]


def test_a_pytorchjob_of_the_training_operator_with_scheduler_plugins() -> None:
    labels = {"scheduling.x-k8s.io/pod-group": "ddp"}
    assert_is_a_group(pytorch_pods(labels, False), of_scheduler_plugins("ddp", 3))


def test_a_pytorchjob_of_the_training_operator_with_volcano() -> None:
    assert_is_a_group(pytorch_pods({}, True), of_volcano("ddp", 3))


def test_an_mpijob_of_the_mpi_operator() -> None:
    def labels(role: str) -> Json:
        return {
            "training.kubeflow.org/operator-name": "mpi-operator",
            "training.kubeflow.org/job-name": "pi",
            "training.kubeflow.org/job-role": role,
        }

    names = [
        ("pi-launcher-x7k2p", "launcher"),
        ("pi-worker-0", "worker"),
        ("pi-worker-1", "worker"),
    ]
    volcano = [made(n, labels(r), {"scheduling.k8s.io/group-name": "pi"}) for n, r in names]
    assert_is_a_group(volcano, of_volcano("pi", 3))
    group = {"scheduling.x-k8s.io/pod-group": "pi"}
    plugins = [made(name, labels(role) | group) for name, role in names]
    assert_is_a_group(plugins, of_scheduler_plugins("pi", 3))


def test_a_trainjob_of_trainer_v2_is_a_jobset_with_the_label_of_its_pod_group() -> None:
    def pod(index: int):
        labels = {
            "jobset.sigs.k8s.io/jobset-name": "llama",
            "jobset.sigs.k8s.io/replicatedjob-name": "node",
            "jobset.sigs.k8s.io/job-index": "0",
            "jobset.sigs.k8s.io/job-global-index": "0",
            "batch.kubernetes.io/job-name": "llama-node-0",
            "batch.kubernetes.io/job-completion-index": str(index),
            "scheduling.x-k8s.io/pod-group": "llama",
        }
        return made(f"llama-node-0-{index}-abcde", labels)

    assert_is_a_group([pod(index) for index in range(3)], of_scheduler_plugins("llama", 3))


# ---- KubeRay ------------------------------------------------------------------------------------


def ray_labels(role: str, group: str) -> Json:
    return {
        "ray.io/cluster": "demo",
        "ray.io/node-type": role,
        "ray.io/group": group,
        "app.kubernetes.io/created-by": "kuberay-operator",
    }


RAY = [("head", "headgroup"), ("worker", "small"), ("worker", "small")]


def test_a_raycluster_with_scheduler_plugins() -> None:
    label = {"scheduling.x-k8s.io/pod-group": "demo"}
    pods = [made(f"demo-{i}", ray_labels(*RAY[i]) | label) for i in range(3)]
    assert_is_a_group(pods, of_scheduler_plugins("demo", 3))


def ray_pod_of_volcano(name: str, role: str, group: str):
    annotations = {"scheduling.k8s.io/group-name": "ray-demo-pg", "volcano.sh/task-spec": group}
    return made(name, ray_labels(role, group), annotations)


def test_a_raycluster_with_volcano() -> None:
    pods = [ray_pod_of_volcano(f"demo-{i}", *RAY[i]) for i in range(3)]
    assert_is_a_group(pods, of_volcano("ray-demo-pg", 3))


def test_the_submitter_of_a_rayjob_comes_after_its_cluster() -> None:
    cluster = harness(of_volcano("ray-demo-pg", 3), cpus="4")
    pods = [ray_pod_of_volcano(f"demo-{i}", *RAY[i]) for i in range(3)]
    cluster.add(*pods)
    cluster.schedule_all()
    submitter = ray_pod_of_volcano("demo-submitter", "submitter", "submitter")
    cluster.add(submitter)
    cluster.schedule_all()
    cluster.advance(2)
    cluster.schedule_all()
    assert bound(cluster, [*pods, submitter]) == 4


# ---- Volcano ------------------------------------------------------------------------------------


def test_a_job_of_volcano() -> None:
    group = "train-2f1b2b3c-5d1e-4f7a-9a57-0123456789ab"

    def pod(task: str, index: int):
        own = {"volcano.sh/job-name": "train", "volcano.sh/job-namespace": "default"}
        annotations = {
            "scheduling.k8s.io/group-name": group,
            "volcano.sh/job-name": "train",
            "volcano.sh/job-version": "0",
            "volcano.sh/queue-name": "default",
            "volcano.sh/task-index": str(index),
            "volcano.sh/task-spec": task,
            "volcano.sh/template-uid": f"train-{task}",
        }
        return made(f"train-{task}-{index}", own, annotations)

    of_tasks = of_volcano(group, 3)
    of_tasks["spec"]["minTaskMember"] = {"ps": 1, "worker": 2}
    assert_is_a_group([pod("ps", 0), pod("worker", 0), pod("worker", 1)], of_tasks)


# ---- LeaderWorkerSet ----------------------------------------------------------------------------


def leader_worker_set(startup_policy: str, **annotations: str) -> Json:
    return {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": {"name": "vllm", "namespace": "default", "annotations": annotations},
        "spec": {"replicas": 2, "startupPolicy": startup_policy},
    }


def lws_pod(group: int, worker: int, size: int = 3, **annotations: str):
    labels = {
        "leaderworkerset.sigs.k8s.io/name": "vllm",
        "leaderworkerset.sigs.k8s.io/group-index": str(group),
        "leaderworkerset.sigs.k8s.io/group-key": f"3e238779391c8fd563d42eb5af19391bdcd7c13{group}",
        "leaderworkerset.sigs.k8s.io/worker-index": str(worker),
        "leaderworkerset.sigs.k8s.io/template-revision-hash": "68c67c6876",
        "apps.kubernetes.io/pod-index": str(worker or group),
    }
    name = f"vllm-{group}-{worker}" if worker else f"vllm-{group}"
    size_annotation = {"leaderworkerset.sigs.k8s.io/size": str(size)}
    return made(name, labels, size_annotation | annotations)


def test_each_group_of_a_leaderworkerset() -> None:
    pods = [lws_pod(0, worker) for worker in range(3)]
    assert_is_a_group(pods, leader_worker_set("LeaderCreated"))
    cluster = harness(leader_worker_set("LeaderCreated"), cpus="3")
    other = [lws_pod(1, worker) for worker in range(3)]
    cluster.add(*pods, *other)
    cluster.schedule_all()
    assert sorted((bound(cluster, pods), bound(cluster, other))) == [0, 3]


@pytest.mark.parametrize(
    "leader_worker_set_",
    [
        leader_worker_set("LeaderReady"),
        leader_worker_set(
            "LeaderCreated", **{"leaderworkerset.sigs.k8s.io/exclusive-topology": "rack"}
        ),
    ],
)
def test_a_leader_whose_workers_are_created_later_waits_for_none(leader_worker_set_: Json) -> None:
    cluster = harness(leader_worker_set_, cpus="3")
    cluster.add(lws_pod(0, 0))
    cluster.schedule_all()
    assert bound(cluster, [lws_pod(0, 0)]) == 1


def test_a_leaderworkerset_that_appears_after_its_pods_makes_them_a_group() -> None:
    cluster = harness(cpus="0")
    pods = [lws_pod(0, worker) for worker in range(3)]
    cluster.add(*pods)
    cluster.schedule_all()
    cluster.add(leader_worker_set("LeaderCreated"), make_node("n1", "2"))
    cluster.advance(20)
    cluster.schedule_all()
    assert bound(cluster, pods) == 0
    cluster.add(make_node("n2", "1"))
    cluster.advance(20)
    cluster.schedule_all()
    assert bound(cluster, pods) == 3


def test_a_leaderworkerset_with_volcano() -> None:
    group = "vllm-0-68c67c6876"
    annotation = {"scheduling.k8s.io/group-name": group}
    pods = [lws_pod(0, worker, **annotation) for worker in range(3)]
    assert_is_a_group(pods, of_volcano(group, 3))


# ---- Kueue --------------------------------------------------------------------------------------


GATE = "kueue.x-k8s.io/admission"


def kueue_pod(name: str, total: int = 3, gate: str = "", **annotations: str):
    labels = {
        "kueue.x-k8s.io/queue-name": "user-queue",
        "kueue.x-k8s.io/managed": "true",
        "kueue.x-k8s.io/pod-group-name": "sample-group",
    }
    count = {"kueue.x-k8s.io/pod-group-total-count": str(total)}
    return made(name, labels, count | annotations, gate)


def test_a_pod_group_of_kueue() -> None:
    assert_is_a_group([kueue_pod(name) for name in ("a", "b", "c")])


def test_pods_gated_by_kueue_are_left_alone_until_all_are_ungated() -> None:
    cluster = harness(cpus="3")
    pods = [kueue_pod(name, gate=GATE) for name in ("a", "b", "c")]
    cluster.add(*pods)
    for name in ("a", "b"):
        cluster.patch("Pod", name, {"spec": {"schedulingGates": []}})
        cluster.schedule_all()
        assert bound(cluster, pods) == 0
    cluster.patch("Pod", "c", {"spec": {"schedulingGates": []}})
    cluster.schedule_all()
    assert bound(cluster, pods) == 3


def test_pods_that_kueue_lets_come_one_after_another_are_no_group() -> None:
    serving = {
        "kueue.x-k8s.io/pod-group-serving": "true",
        "kueue.x-k8s.io/pod-group-fast-admission": "true",
    }
    cluster = harness(cpus="3")
    first = kueue_pod("sts-0", **serving)
    cluster.add(first)
    cluster.schedule_all()
    assert bound(cluster, [first]) == 1


def test_a_leaderworkerset_under_kueue_is_the_group_that_it_says_itself() -> None:
    kueue = {
        "kueue.x-k8s.io/pod-group-serving": "true",
        "kueue.x-k8s.io/pod-group-total-count": "3",
    }
    pods = [lws_pod(0, worker, **kueue) for worker in range(3)]
    assert_is_a_group(pods, leader_worker_set("LeaderCreated"))


# ---- JobSet -------------------------------------------------------------------------------------


def jobset_pod(job: int, index: int, **labels: str):
    own = {
        "jobset.sigs.k8s.io/jobset-name": "pytorch",
        "jobset.sigs.k8s.io/replicatedjob-name": "workers",
        "jobset.sigs.k8s.io/replicatedjob-replicas": "2",
        "jobset.sigs.k8s.io/job-index": str(job),
        "jobset.sigs.k8s.io/job-global-index": str(job),
        "batch.kubernetes.io/job-completion-index": str(index),
    }
    return made(f"pytorch-workers-{job}-{index}-x9z4q", own | labels)


def test_a_jobset_whose_template_names_a_pod_group() -> None:
    label = {"scheduling.x-k8s.io/pod-group": "pytorch"}
    pods = [jobset_pod(job, index, **label) for job in range(2) for index in range(2)]
    assert_is_a_group(pods, of_scheduler_plugins("pytorch", 4))


def test_a_jobset_alone_says_not_how_many_pods_it_has() -> None:
    cluster = harness(cpus="1")
    pods = [jobset_pod(0, 0), jobset_pod(1, 0)]
    cluster.add(*pods)
    cluster.schedule_all()
    assert bound(cluster, pods) == 1


@pytest.mark.parametrize("mode", ["permit", "plan"])
def test_the_groups_of_a_leaderworkerset_are_forgotten_with_their_pods(mode: str) -> None:
    args = {"Coscheduling": {"mode": mode}}
    cluster = Harness([Coscheduling], [make_node("n0", "8")], args=args)
    objects = cluster.plugin(BaseCoscheduling)._objects
    for group in range(3):
        pods = [lws_pod(group, worker) for worker in range(3)]
        cluster.add(*pods)
        cluster.schedule_all()
        assert bound(cluster, pods) == 3
        assert len(objects._keys_of_set["default/vllm"]) == 1
        for one in pods:
            cluster.remove("Pod", one.name)
    assert not objects._keys_of_set
    assert not objects._set_of


def test_groups_follow_a_leaderworkerset_that_is_created_again() -> None:
    cluster = harness(cpus="8")
    cluster.add(lws_pod(0, 0))
    for _ in range(2):
        cluster.add(leader_worker_set("LeaderCreated"))
        cluster.schedule_all()
        cluster.remove("LeaderWorkerSet", "vllm")
    assert not bound(cluster, [lws_pod(0, 0)])
    cluster.add(leader_worker_set("LeaderReady"))
    cluster.schedule_all()
    assert bound(cluster, [lws_pod(0, 0)])
