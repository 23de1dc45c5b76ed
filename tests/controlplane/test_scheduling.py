"""2,000 pods on 200 different nodes, with kube-scheduler alongside the scheduler under test.

One run, many questions: they are asked of the apiserver's own lists, of its audit log, and of both
schedulers' /metrics. Both have profiles of the same plugins, so what one says of a pod that fits
nowhere the other must say too.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import pytest
from envtest import assertions, objects
from envtest.binaries import emulated_version
from envtest.control_plane import ADMIN_TOKEN, STRANGER_TOKEN, ControlPlane
from envtest.kube_client import KubeClient
from envtest.schedulers import (
    SHARED_PLUGINS,
    RunScheduler,
    SchedulerProcess,
    configuration,
    profile,
)
from envtest.waiting import eventually
from prometheus_client import Metric

Json = dict[str, Any]

NODES = 200
PODS = 2000

SPREAD, PACK, UPSTREAM = "spread-out", "bin-packing", "upstream"

GPU_TAINT = {"key": "gpu", "value": "yes", "effect": "NoSchedule"}

FITS_NOWHERE: dict[str, Json] = {
    "too-many-cpus": {"cpu": "64"},
    "too-much-memory": {"memory": "1Ti"},
    "no-such-label": {"spec": {"nodeSelector": {"disk": "tape"}}},
    "only-where-it-may-not": {"spec": {"nodeSelector": {"kubernetes.io/hostname": "node-00000"}}},
    "no-such-node": {"spec": {"nodeSelector": {"kubernetes.io/hostname": "node-99999"}}},
    "ssd-and-too-big": {"cpu": "40", "spec": {"nodeSelector": {"disk": "ssd"}}},
    "gpu-and-too-big": {"cpu": "40", "spec": {"tolerations": [{"operator": "Exists"}]}},
}


@dataclass
class Outcome:
    """The cluster after all schedulable pods have been bound."""

    nodes: list[Json]
    pods: list[Json]
    hopeless: list[Json]
    events: dict[str, list[Json]]
    failures: dict[str, set[str]]
    scheduler: SchedulerProcess
    kube_scheduler: SchedulerProcess
    metrics: dict[str, Metric]
    kube_metrics: dict[str, Metric]


def make_nodes() -> list[Json]:
    """Return nodes: a tenth for GPUs, a twentieth cordoned, a third with SSDs, some small."""
    return [
        objects.node(
            index,
            cpu="8" if index % 4 == 1 else "32",
            memory="32Gi" if index % 4 == 1 else "256Gi",
            labels={"disk": "ssd"} if index % 3 == 0 else {},
            taints=[GPU_TAINT] if index % 10 == 3 else (),
            unschedulable=index % 20 == 0,
        )
        for index in range(NODES)
    ]


def make_pod(index: int, scheduler: str) -> Json:
    """Return pods of eight shapes in turn."""
    shapes: tuple[Json, ...] = (
        {},
        {"cpu": "250m", "memory": "1Gi"},
        {"cpu": "1", "memory": "256Mi"},
        {"spec": {"nodeSelector": {"disk": "ssd"}}},
        {"spec": {"tolerations": [{"key": "gpu", "operator": "Exists"}]}},
        {"cpu": "100m", "host_port": 8000 + index % 40},
        {"spec": {"affinity": in_zones("zone-a", "zone-b")}},
        {"cpu": "2", "memory": "2Gi", "labels": {"app": f"app-{index % 5}"}},
    )
    return objects.pod(f"{scheduler}-{index:04}", scheduler, **shapes[index % len(shapes)])


def in_zones(*zones: str) -> Json:
    """Return a node affinity that requires one of some zones."""
    expression = {"key": "topology.kubernetes.io/zone", "operator": "In", "values": list(zones)}
    term = {"matchExpressions": [expression]}
    required = {"nodeSelectorTerms": [term]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}


@pytest.fixture(scope="module")
def outcome(control_plane: ControlPlane, run_module_scheduler: RunScheduler) -> Outcome:
    client = control_plane.client
    client.create_all(objects.NODES, make_nodes())
    scheduler = run_module_scheduler(
        configuration(
            [
                profile(SPREAD, "LeastAllocated", SHARED_PLUGINS),
                profile(PACK, "MostAllocated", SHARED_PLUGINS),
            ],
            control_plane.kubeconfig,
        )
    )
    kube_scheduler = run_module_scheduler(
        configuration(
            [profile(UPSTREAM, "LeastAllocated", SHARED_PLUGINS)], control_plane.kubeconfig
        ),
        kind="kube-scheduler",
    )
    pods = [make_pod(index, (SPREAD, PACK)[index % 2]) for index in range(PODS)]
    pods += [make_pod(index, UPSTREAM) for index in range(100)]
    client.create_all(objects.PODS, pods)
    assertions.wait_until_bound(client, len(pods), 120)
    bound = client.list(assertions.ALL_PODS)
    hopeless = ask_for_the_impossible(client)
    return Outcome(
        nodes=client.list(objects.NODES),
        pods=bound,
        hopeless=hopeless,
        events=wait_for_events(client, len(pods)),
        failures=failure_notes(client, len(hopeless)),
        scheduler=scheduler,
        kube_scheduler=kube_scheduler,
        metrics=scheduler.metrics(ADMIN_TOKEN),
        kube_metrics=kube_scheduler.metrics(ADMIN_TOKEN),
    )


def ask_for_the_impossible(client: KubeClient) -> list[Json]:
    """Create one unschedulable pod of each kind for each scheduler; return them once rejected."""
    client.create_all(
        objects.PODS,
        [
            objects.pod(f"{name}.{scheduler}", scheduler, labels={"hopeless": "yes"}, **options)
            for name, options in FITS_NOWHERE.items()
            for scheduler in (SPREAD, PACK, UPSTREAM)
        ],
    )

    def refused() -> list[Json]:
        pods = client.list(assertions.ALL_PODS, labelSelector="hopeless")
        done = [pod for pod in pods if assertions.condition(pod).get("message")]
        return done if len(done) == len(FITS_NOWHERE) * 3 else []

    return eventually(30, "a reason for each pod that fits nowhere", refused)


def wait_for_events(client: KubeClient, count: int) -> dict[str, list[Json]]:
    """Wait for the Events, which are written after the bindings."""

    def enough() -> dict[str, list[Json]]:
        events = assertions.scheduled_events(client)
        return events if len(events) >= count else {}

    return eventually(30, f"Scheduled events of {count} pods", enough, every=0.5)


def failure_notes(client: KubeClient, count: int) -> dict[str, set[str]]:
    """Return the notes of each pod's FailedScheduling events."""

    def enough() -> dict[str, set[str]]:
        notes: dict[str, set[str]] = {}
        for event in client.list(assertions.EVENTS, fieldSelector="reason=FailedScheduling"):
            notes.setdefault(event["regarding"]["name"], set()).add(event["note"])
        return notes if len(notes) >= count else {}

    return eventually(30, "a FailedScheduling event of each pod", enough)


def test_all_pods_are_bound(outcome: Outcome) -> None:
    assert len(outcome.pods) == PODS + 100
    assert all(assertions.node_of(pod) for pod in outcome.pods)


def test_pods_fit_their_nodes(outcome: Outcome) -> None:
    assertions.check_all_fit(outcome.nodes, outcome.pods)


def test_no_node_is_over_committed(outcome: Outcome) -> None:
    assertions.check_no_node_over_committed(outcome.nodes, outcome.pods)


def test_no_pod_is_bound_twice(outcome: Outcome, control_plane: ControlPlane) -> None:
    binds = control_plane.binds_by_pod()
    assert len(binds) == len(outcome.pods)
    assert {frozenset(statuses.items()) for statuses in binds.values()} == {frozenset({(201, 1)})}


def test_every_pod_has_one_scheduled_event(outcome: Outcome) -> None:
    assertions.check_every_pod_has_one_scheduled_event(outcome.events, outcome.pods)


def test_each_scheduler_binds_its_own_pods(outcome: Outcome) -> None:
    done = assertions.check_each_scheduler_bound_its_own_pods(outcome.events, outcome.pods)
    assert done == {SPREAD: PODS // 2, PACK: PODS // 2, UPSTREAM: 100}


def test_conditions_of_pods(outcome: Outcome) -> None:
    assertions.check_scheduled_conditions(outcome.pods)
    assertions.check_scheduled_conditions(outcome.hopeless)


def test_profiles_follow_their_strategies(outcome: Outcome) -> None:
    def pods_per_node(scheduler: str) -> float:
        """Return how many pods of the scheduler share a pod's node, on average over the pods."""
        pods = [pod for pod in outcome.pods if pod["spec"]["schedulerName"] == scheduler]
        on_node = Counter(assertions.node_of(pod) for pod in pods)
        return sum(count * count for count in on_node.values()) / len(pods)

    assert pods_per_node(PACK) > 2 * pods_per_node(SPREAD)


@pytest.mark.parametrize("name", FITS_NOWHERE)
@pytest.mark.parametrize("scheduler", [SPREAD, PACK])
def test_the_reason_is_that_of_kube_scheduler(outcome: Outcome, name: str, scheduler: str) -> None:
    by_name = {pod["metadata"]["name"]: pod for pod in outcome.hopeless}
    ours = assertions.condition(by_name[f"{name}.{scheduler}"])
    theirs = assertions.condition(by_name[f"{name}.{UPSTREAM}"])
    for field in ("lastTransitionTime", "lastProbeTime"):
        ours.pop(field), theirs.pop(field)
    assert ours == theirs
    assert outcome.failures[f"{name}.{scheduler}"] == outcome.failures[f"{name}.{UPSTREAM}"]


def test_reasons_count_the_nodes(outcome: Outcome) -> None:
    [pod] = [p for p in outcome.hopeless if p["metadata"]["name"] == f"no-such-label.{SPREAD}"]
    assert assertions.condition(pod)["message"] == (
        "0/200 nodes are available: 10 node(s) were unschedulable, 170 node(s) didn't match Pod's "
        "node affinity/selector, 20 node(s) had untolerated taint(s)."
    )


# --- /metrics, compared with kube-scheduler's -----------------------------------------------------

NOT_OURS = {
    # kube-scheduler batches pods by a signature of the whole pod; proreus caches the results of
    # each plugin instead
    "scheduler_batch_attempts",
    "scheduler_batch_cache_flushed",
    "scheduler_batch_rescore_attempts",
    "scheduler_batch_rescore_duration_seconds",
    "scheduler_get_node_hint_duration_seconds",
    "scheduler_store_schedule_results",
    "scheduler_store_schedule_results_duration_seconds",
}
NOT_OUR_POINTS = {"Sign"}

ENTITY = "type" if emulated_version() == "1.37" else "entity"
"""The label that tells pods from groups; 1.36 has none."""


def scheduler_families(metrics: dict[str, Metric]) -> dict[str, Metric]:
    return {name: family for name, family in metrics.items() if name.startswith("scheduler_")}


def label_names(family: Metric) -> set[str]:
    return {label for sample in family.samples for label in sample.labels} - {"le"}


def bounds(family: Metric) -> set[float]:
    return {float(sample.labels["le"]) for sample in family.samples if "le" in sample.labels}


def label_values(metrics: dict[str, Metric], family: str, label: str) -> set[str]:
    return {sample.labels[label] for sample in metrics[family].samples}


def test_families_have_the_names_of_kube_scheduler(outcome: Outcome) -> None:
    ours, theirs = scheduler_families(outcome.metrics), scheduler_families(outcome.kube_metrics)
    assert set(theirs) - NOT_OURS <= set(ours)
    assert set(ours) <= set(theirs)


def test_families_have_the_types_labels_and_buckets_of_kube_scheduler(outcome: Outcome) -> None:
    compared = set(outcome.metrics) & set(outcome.kube_metrics)
    assert len(compared) > 20
    for name in sorted(compared):
        ours, theirs = outcome.metrics[name], outcome.kube_metrics[name]
        assert (ours.type, label_names(ours)) == (theirs.type, label_names(theirs)), name
        assert bounds(ours) == bounds(theirs), name


@pytest.mark.parametrize(
    ("family", "label"),
    [
        ("scheduler_schedule_attempts", "result"),
        ("scheduler_pending_pods", "queue"),
        ("scheduler_plugin_evaluation", "plugin"),
        ("scheduler_plugin_evaluation", "extension_point"),
        ("scheduler_framework_extension_point_duration_seconds", "extension_point"),
        ("scheduler_framework_extension_point_duration_seconds", "status"),
        ("scheduler_cache_size", "type"),
        *(
            [
                ("scheduler_queue_incoming_entities", "event"),
                ("scheduler_queue_incoming_entities", ENTITY),
                ("scheduler_queued_entities", "queue"),
                ("scheduler_queued_entities", ENTITY),
                ("informer_queued_items", "name"),
            ]
            if emulated_version() != "1.36"
            else []
        ),
    ],
)
def test_labels_have_the_values_of_kube_scheduler(
    outcome: Outcome, family: str, label: str
) -> None:
    ours, theirs = outcome.metrics, outcome.kube_metrics
    wanted = label_values(theirs, family, label) - NOT_OUR_POINTS
    assert label_values(ours, family, label) - NOT_OUR_POINTS == wanted


def test_informers_are_measured_as_those_of_kube_scheduler(outcome: Outcome) -> None:
    def measured(metrics: dict[str, Metric], family: str) -> set[tuple[str, str, str]]:
        found = metrics[family].samples if family in metrics else ()
        return {(s.labels["group"], s.labels["version"], s.labels["resource"]) for s in found}

    for family in (
        "informer_queued_items",
        "informer_store_resource_version",
        "informer_processing_latency_seconds",
    ):
        ours, theirs = measured(outcome.metrics, family), measured(outcome.kube_metrics, family)
        # Only what a plugin of the profiles reads is watched here.
        assert ours <= theirs
        assert ("", "v1", "pods") in ours or not theirs


def test_attempts_are_counted(outcome: Outcome) -> None:
    attempts = {
        (sample.labels["profile"], sample.labels["result"]): sample.value
        for sample in outcome.metrics["scheduler_schedule_attempts"].samples
        if sample.name.endswith("_total")
    }
    assert attempts[SPREAD, "scheduled"] == attempts[PACK, "scheduled"] == PODS / 2
    assert attempts[SPREAD, "unschedulable"] >= len(FITS_NOWHERE)


def test_metrics_require_rbac(outcome: Outcome) -> None:
    assert outcome.scheduler.get("/metrics", ADMIN_TOKEN)[0] == 200
    assert outcome.scheduler.get("/configz", ADMIN_TOKEN)[0] == 200
    assert outcome.scheduler.get("/metrics", STRANGER_TOKEN)[0] == 403
    assert outcome.scheduler.get("/metrics")[0] == 403
    assert outcome.scheduler.get("/metrics", "no-such-token")[0] == 401
    assert outcome.scheduler.get("/healthz") == (200, "ok")


def test_sigterm_ends_it_cleanly(outcome: Outcome) -> None:
    outcome.scheduler.finish()
