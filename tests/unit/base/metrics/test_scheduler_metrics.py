import time

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from proreus.base.kubernetes_version import V1_36, V1_37, V1_38
from proreus.base.metrics import SchedulerMetrics

# name, type, stability, labels, bounds as kube-scheduler 1.36 prints them ("a..z n" = ends, number)
ATTEMPT = "0.001..16.384 15"
SLI = "0.01..5242.88 20"
POINT = "0.0001..0.2048 12"
PLUGIN = "1e-05..0.02216837820053101 20"
LOOKUP = "1e-05..0.02048 12"
REST = "0.005..60 12"
SIZE = "64..1.6777216e+07 11"
KUBE_SCHEDULER = """
scheduler_schedule_attempts_total counter STABLE result,profile
scheduler_scheduling_attempt_duration_seconds histogram STABLE result,profile ATTEMPT
scheduler_scheduling_algorithm_duration_seconds histogram ALPHA - ATTEMPT
scheduler_event_handling_duration_seconds histogram ALPHA event POINT
scheduler_pod_scheduling_sli_duration_seconds histogram BETA attempts SLI
scheduler_pod_scheduling_attempts histogram STABLE - 1..16 5
scheduler_pod_scheduled_after_flush_total counter ALPHA -
scheduler_podgroup_schedule_attempts_total counter ALPHA result,profile
scheduler_podgroup_scheduling_attempt_duration_seconds histogram ALPHA result,profile ATTEMPT
scheduler_podgroup_scheduling_algorithm_duration_seconds histogram ALPHA - ATTEMPT
scheduler_framework_extension_point_duration_seconds histogram STABLE \
extension_point,status,profile POINT
scheduler_plugin_execution_duration_seconds histogram ALPHA plugin,extension_point,status PLUGIN
scheduler_plugin_evaluation_total counter BETA plugin,extension_point,profile
scheduler_permit_wait_duration_seconds histogram BETA result ATTEMPT
scheduler_pending_pods gauge STABLE queue
scheduler_queue_incoming_pods_total counter STABLE queue,event
scheduler_inflight_events gauge ALPHA event
scheduler_unschedulable_pods gauge BETA plugin,profile
scheduler_queueing_hint_execution_duration_seconds histogram ALPHA plugin,event,hint PLUGIN
scheduler_cache_size gauge ALPHA type
scheduler_goroutines gauge BETA operation
scheduler_preemption_attempts_total counter STABLE -
scheduler_preemption_victims histogram STABLE - 1..64 7
scheduler_preemption_goroutines_duration_seconds histogram ALPHA result SLI
scheduler_preemption_goroutines_execution_total counter ALPHA result
scheduler_batch_attempts_total counter ALPHA profile,result
scheduler_batch_cache_flushed_total counter ALPHA profile,reason
scheduler_get_node_hint_duration_seconds histogram ALPHA hinted,profile LOOKUP
scheduler_store_schedule_results_duration_seconds histogram ALPHA profile LOOKUP
scheduler_async_api_call_execution_total counter ALPHA call_type,result
scheduler_async_api_call_execution_duration_seconds histogram ALPHA call_type,result ATTEMPT
scheduler_pending_async_api_calls gauge ALPHA call_type
scheduler_resourceclaim_creates_total counter ALPHA status
scheduler_dra_bindingconditions_allocations_total counter ALPHA profile,driver,status
scheduler_dra_bindingconditions_wait_duration_seconds histogram ALPHA profile,driver,status \
0.1..819.2 14
scheduler_volume_binder_cache_requests_total counter ALPHA operation
scheduler_volume_scheduling_stage_error_total counter ALPHA operation
kubernetes_feature_enabled gauge BETA name,stage
kubernetes_build_info gauge BETA build_date,compiler,git_commit,git_tree_state,git_version,\
go_version,major,minor,platform
version_info gauge ALPHA component,binary,emulation,min_compat
registered_metrics_total counter BETA stability_level,deprecated_version
hidden_metrics_total counter BETA -
disabled_metrics_total counter BETA -
cardinality_enforcement_unexpected_categorizations_total counter ALPHA -
leader_election_master_status gauge ALPHA name
leader_election_slowpath_total counter ALPHA name
rest_client_requests_total counter ALPHA code,method,host
rest_client_request_duration_seconds histogram ALPHA verb,host REST
rest_client_rate_limiter_duration_seconds histogram ALPHA verb,host REST
rest_client_request_size_bytes histogram ALPHA verb,host SIZE
rest_client_response_size_bytes histogram ALPHA verb,host SIZE
rest_client_request_retries_total counter ALPHA code,verb,host
rest_client_dns_resolution_duration_seconds histogram ALPHA host 0.005..30 11
rest_client_transport_cache_entries gauge ALPHA -
rest_client_transport_create_calls_total counter ALPHA result
rest_client_exec_plugin_ttl_seconds gauge ALPHA -
rest_client_exec_plugin_certificate_rotation_age histogram ALPHA - 600..1.24416e+08 11
apiserver_client_certificate_expiration_seconds histogram ALPHA - 0..3.1104e+07 14
authentication_attempts counter ALPHA result
authentication_duration_seconds histogram ALPHA result ATTEMPT
authenticated_user_requests counter ALPHA username
authorization_attempts_total counter ALPHA result
authorization_duration_seconds histogram ALPHA result ATTEMPT
"""
CHANGED_IN_1_37 = """
scheduler_scheduling_algorithm_duration_seconds histogram BETA - ATTEMPT
scheduler_plugin_execution_duration_seconds histogram BETA plugin,extension_point,status PLUGIN
scheduler_queued_entities gauge ALPHA queue,type
scheduler_queue_incoming_entities_total counter ALPHA queue,event,type
scheduler_pre_queueing_hint_evaluations_total counter ALPHA plugin,result
scheduler_batch_rescore_attempts_total counter ALPHA profile
scheduler_batch_rescore_duration_seconds histogram ALPHA profile LOOKUP
dynamic_resource_allocation_resourceclaim_creates_total counter ALPHA \
status,admin_access,owner_api_group,owner_api_kind
informer_queued_items gauge ALPHA name,group,version,resource
informer_processing_latency_seconds histogram ALPHA name,group,version,resource 0.001..10 12
informer_store_resource_version gauge ALPHA name,group,version,resource
"""
CHANGED_IN_1_38 = """
scheduler_queued_entities gauge ALPHA queue,entity
scheduler_queue_incoming_entities_total counter ALPHA queue,event,entity
scheduler_store_schedule_results_total counter ALPHA profile,result
scheduler_podgroup_schedule_attempts_total counter ALPHA result,profile,entity
scheduler_podgroup_scheduling_attempt_duration_seconds histogram ALPHA result,profile,entity ATTEMPT
scheduler_podgroup_scheduling_algorithm_duration_seconds histogram ALPHA profile,entity ATTEMPT
scheduler_generated_placements_total counter ALPHA profile,entity
scheduler_placement_evaluations_total counter ALPHA result,profile,entity
scheduler_placement_evaluation_duration_seconds histogram ALPHA result,profile,entity ATTEMPT
scheduler_workload_preemption_attempts_total counter ALPHA preemptor,result
scheduler_workload_preemption_victims histogram ALPHA preemptor 1..1024 11
scheduler_preemption_workload_disruptions histogram ALPHA preemptor,victim 1..1024 11
scheduler_preemption_evaluation_duration_seconds histogram ALPHA preemptor,result 0.001..32.768 16
scheduler_preemption_execution_duration_seconds histogram ALPHA preemptor,result 0.001..32.768 16
scheduler_preemption_pdb_violations_total counter ALPHA preemptor
"""
GONE_IN_1_37 = {
    "scheduler_resourceclaim_creates_total",
    "scheduler_preemption_goroutines_duration_seconds",
}
NAMED = {
    "ATTEMPT": ATTEMPT,
    "SLI": SLI,
    "POINT": POINT,
    "PLUGIN": PLUGIN,
    "LOOKUP": LOOKUP,
    "REST": REST,
    "SIZE": SIZE,
}


def facts(version):
    lines = KUBE_SCHEDULER.strip().splitlines()
    if version > V1_36:
        lines = [line for line in lines if line.split()[0] not in GONE_IN_1_37]
        lines += CHANGED_IN_1_37.strip().splitlines()
    if version > V1_37:
        lines += CHANGED_IN_1_38.strip().splitlines()
    for line in lines:
        name, kind, stability, labels, *bounds = line.split()
        text = " ".join(bounds)
        yield name, (kind, stability, labels.replace("-", ""), NAMED.get(text, text))


def touch_everything(metrics):
    for family in metrics.families():
        if family.description.labels:
            family._add(tuple("x" for _ in family.description.labels))


@pytest.mark.parametrize("version", [V1_36, V1_37, V1_38], ids=str)
def test_names_types_labels_and_buckets_are_kube_schedulers(version):
    metrics = SchedulerMetrics(version=version)
    metrics.describe_pod_groups()
    if version == V1_38:
        metrics.describe_placements()
        metrics.describe_group_preemption()
    touch_everything(metrics)
    body, _ = metrics.expose()
    described = {family.description.name: family.description for family in metrics.families()}
    ours = {}
    for family in parse_text(body.decode()):
        samples = [sample for sample in family.samples if not sample.name.endswith("_created")]
        name = samples[0].name if family.type != "histogram" else family.name
        if name.startswith(("process_", "python_", "proreus_")):
            continue  # the language's, and those that kube-scheduler has no counterpart for
        stability = family.documentation[1 : family.documentation.index("]")]
        if name not in described:  # the parser itself adds a suffix to a counter that has none
            name = name.removesuffix("_total")
        description = described[name]
        assert {key for sample in samples for key in sample.labels} - {"le"} == set(
            description.labels
        )
        bounds = [s.labels["le"] for s in samples if s.name.endswith("_bucket")]
        assert not bounds or "+Inf" in bounds
        bounds = list(dict.fromkeys(bound for bound in bounds if bound != "+Inf"))
        text = f"{bounds[0]}..{bounds[-1]} {len(bounds)}" if bounds else ""
        ours[name] = (family.type, stability, ",".join(description.labels), text)
    assert ours == dict(facts(version))


@pytest.mark.parametrize(
    ("version", "labels"), [(V1_37, ("error",)), (V1_38, ("podgroup", "error"))]
)
def test_values_of_labels_that_a_version_lacks_are_dropped(version, labels):
    metrics = SchedulerMetrics(version=version)
    metrics.describe_group_preemption()
    family = metrics.workload_preemption_attempts_total
    family.labels("podgroup", "error").inc()
    assert dict(family.values()) == {labels: 1}
    with pytest.raises(ValueError, match=r"has the labels|longer than argument"):
        family.labels("error")


def exposed_help(metrics):
    body, _ = metrics.expose()
    lines = body.decode().splitlines()
    return {line.split()[2]: line.split(" ", 3)[3] for line in lines if line.startswith("# HELP")}


def test_a_metric_that_1_37_deprecates_is_hidden_unless_asked_for():
    name = "scheduler_preemption_goroutines_duration_seconds"
    text = "[ALPHA] Seconds that the removal"
    for version, show_hidden, hidden, start in (
        (V1_36, False, 0, text),
        (V1_37, False, 1, None),
        (V1_37, True, 0, text.replace("] ", "] (Deprecated since 1.37.0) ")),
    ):
        metrics = SchedulerMetrics(version=version, show_hidden=show_hidden)
        metrics.preemption_goroutines_duration_seconds.labels("success").observe(1)
        found = exposed_help(metrics).get(name)
        assert found is None if start is None else found.startswith(start)
        assert metrics.hidden_metrics_total.value == hidden
        deprecated = {
            labels for labels, _ in metrics.registered_metrics_total.values() if labels[1]
        }
        assert deprecated == ({("ALPHA", "1.37.0")} if show_hidden else set())


def test_the_version_may_become_known_later():
    late = SchedulerMetrics(version=V1_37)
    late.rest_client_requests_total.labels("200", "GET", "h").inc()
    late.emulate(V1_36)
    expected = SchedulerMetrics(version=V1_36)
    assert {f.description for f in late.families()} == {f.description for f in expected.families()}
    assert list(late.registered_metrics_total.values()) == list(
        expected.registered_metrics_total.values()
    )
    assert list(late.rest_client_requests_total.values()) == [(("200", "GET", "h"), 1)]


@pytest.mark.parametrize(
    ("version", "name", "labels"),
    [
        (V1_36, "scheduler_resourceclaim_creates_total", ("success",)),
        (
            V1_37,
            "dynamic_resource_allocation_resourceclaim_creates_total",
            ("success", "false", "", "Pod"),
        ),
    ],
)
def test_created_claims_are_counted_under_the_name_of_the_version(version, name, labels):
    metrics = SchedulerMetrics(version=version)
    metrics.count_claim_creation("success")
    (family,) = (f for f in metrics.families() if f.description.name == name)
    assert list(family.values()) == [(labels, 1)]


def test_series_that_exist_from_the_start():
    body, _ = SchedulerMetrics().expose()
    values = {
        (sample.name, *sample.labels.values()): sample.value
        for family in parse_text(body.decode())
        for sample in family.samples
    }
    for queue in ("active", "backoff", "gated", "unschedulable"):
        assert values["scheduler_pending_pods", queue] == 0
    for name in (
        "scheduler_preemption_attempts_total",
        "scheduler_pod_scheduled_after_flush_total",
        "scheduler_scheduling_algorithm_duration_seconds_count",
        "scheduler_preemption_victims_sum",
    ):
        assert values[name,] == 0
    for structure in ("store", "cache", "columns", "queue"):
        assert values["proreus_cache_differences_total", structure] == 0
    for result in ("success", "failure"):
        assert values["proreus_config_reload_total", result] == 0
        assert values["proreus_cache_comparisons_total", result] == 0
    assert values["proreus_node_overcommits_total",] == 0
    assert not any(key[0] == "scheduler_schedule_attempts_total" for key in values)
    assert values["rest_client_exec_plugin_ttl_seconds",] == float("inf")
    assert values["process_resident_memory_bytes",] > 0
    assert values["process_network_receive_bytes_total",] >= 0
    assert values["process_virtual_memory_max_bytes",] > 0


def test_everything_is_valid_openmetrics():
    metrics = SchedulerMetrics()
    touch_everything(metrics)
    body, _ = metrics.expose("application/openmetrics-text; version=1.0.0")
    assert len(list(parse_openmetrics(body.decode()))) > 50


def test_versions_are_exposed():
    metrics = SchedulerMetrics()
    metrics.set_versions("1.36.2", "1.36", "1.35")
    ((labels, value),) = metrics.version_info.values()
    assert (labels, value) == (("kube", "1.36", "1.36", "1.35"), 1)
    ((labels, _),) = metrics.kubernetes_build_info.values()
    shown = dict(zip(metrics.kubernetes_build_info.description.labels, labels, strict=True))
    assert (shown["git_version"], shown["major"], shown["minor"]) == ("v1.36.2", "1", "36")


def test_feature_gates_are_exposed():
    metrics = SchedulerMetrics()
    metrics.set_features([("A", "GA", True), ("B", "BETA", False)])
    assert dict(metrics.kubernetes_feature_enabled.values()) == {("A", ""): 1, ("B", "BETA"): 0}


def test_registered_and_disabled_metrics_are_counted():
    metrics = SchedulerMetrics(disabled=["scheduler_goroutines"])
    by_stability = {labels[0]: value for labels, value in metrics.registered_metrics_total.values()}
    assert sum(by_stability.values()) == len(metrics.families())
    body, _ = metrics.expose()
    assert b"disabled_metrics_total 1.0" in body
    metrics.goroutines.labels("binding").inc()
    assert b"scheduler_goroutines" not in metrics.expose()[0]


@pytest.mark.parametrize("what", ["observe", "inc", "labels"])
def test_the_hot_path_stays_cheap(what):
    metrics = SchedulerMetrics()
    family = metrics.scheduling_attempt_duration_seconds
    histogram = family.labels("scheduled", "default-scheduler")
    counter = metrics.preemption_attempts_total
    work = {
        "observe": lambda: histogram.observe(0.003),
        "inc": counter.inc,
        "labels": lambda: family.labels("scheduled", "default-scheduler"),
    }[what]
    best = min(_seconds(work, 10_000) for _ in range(5))
    # 0.1 us on a quiet machine; the bar allows for a busy one, not for a lock and five calls
    assert best / 10_000 < 1e-6


def _seconds(work, times):
    started = time.process_time()
    for _ in range(times):
        work()
    return time.process_time() - started
