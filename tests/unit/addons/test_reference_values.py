"""Values computed by hand from the formulas of the originals, and which tests hold them.

================================  ==================================================================
of                                test
================================  ==================================================================
TargetLoadPacking, 8 points       test_trimaran: test_the_score_is_highest_at_the_target
LoadVariationRiskBalancing        test_trimaran: test_mean_and_deviation_are_balanced
LowRiskOverCommitment             test_trimaran: test_the_risk_of_limits_and_load
Peaks                             test_trimaran: test_the_node_whose_power_rises_least_is_the_best
LeastNUMANodes                    test_node_resource_topology_match:
                                  test_fewer_and_nearer_zones_are_better
NodeResourcesAllocatable          test_node_resources_allocatable: test_nodes_are_preferred_by_size
LoadAwareScheduling, estimates    test_load_aware_scheduling: test_pods_are_estimated
LoadAwareScheduling, threshold    test_load_aware_scheduling:
                                  test_a_node_beyond_a_threshold_is_rejected
elastic quota, borrowing          test_capacity_scheduling: test_idle_guarantees_may_be_borrowed
elastic quota, within the min     test_capacity_scheduling:
                                  test_a_guarantee_is_taken_back_from_pods_of_any_priority
elastic quota, beyond the min     test_capacity_scheduling:
                                  test_beyond_its_guarantee_a_namespace_preempts_its_own_less_important_pods
elastic quota, omitted max        test_capacity_scheduling: test_what_a_maximum_omits_is_not_limited
runtime quota, lent or kept       test_fair_share: test_what_is_lent
Coscheduling, reject percentage   test_coscheduling:
                                  test_a_group_close_to_its_quorum_is_not_rejected
Coscheduling, gates               test_coscheduling: test_members_that_are_gated_do_not_count
Coscheduling, order of groups     test_reference_values:
                                  test_a_group_that_failed_goes_behind_younger_ones_and_pods_alone
KAI's fair share                  test_fair_share:
                                  test_what_a_queue_does_not_ask_for_is_offered_once_more
Kueue, BestFit and                test_group_topology: test_which_domains_are_taken
LeastFreeCapacity
NetworkOverhead                   test_network_aware:
                                  test_as_many_met_as_violated_requirements_pass
elastic quota, several pods       test_reference_values: test_elastic_quotas_pod_by_pod
================================  ==================================================================
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from proreus.addons.capacity_scheduling import CapacityScheduling
from proreus.addons.coscheduling import Coscheduling
from proreus.addons.coscheduling.groups import POD_GROUP_LABEL
from proreus.testing import Harness, make_node, make_pod

HERE = Path(__file__).parent


def test_every_test_of_the_table_is_there() -> None:
    assert __doc__ is not None
    listed = re.findall(r"(test_\w+):\s+(test_\w+)", __doc__)
    assert len(listed) == 20
    for module, name in listed:
        assert f"def {name}(" in (HERE / f"{module}.py").read_text(), f"{module}: {name}"


def test_a_group_that_failed_goes_behind_younger_ones_and_pods_alone() -> None:
    def group(name: str, minimum: int, second: int) -> dict:
        return {
            "apiVersion": "scheduling.x-k8s.io/v1alpha1",
            "kind": "PodGroup",
            "metadata": {
                "name": name,
                "namespace": "default",
                "creationTimestamp": f"2023-11-14T22:13:{second}Z",
            },
            "spec": {"minMember": minimum},
        }

    # The clock of a harness starts at 22:13:20. g1 is created at second 1, g2 at 10; the pod alone
    # comes at 20, and g1 fails at 50.
    cluster = Harness(
        [Coscheduling], [make_node("n", "4")], [group("g1", 9, 21), group("g2", 9, 30)]
    )
    plugin = cluster.plugin(Coscheduling)
    cluster.advance(20)
    cluster.add(make_pod("alone", "9"))
    cluster.advance(10)
    for name in ("g1", "g2"):
        cluster.add(make_pod(f"of-{name}", "1", labels={POD_GROUP_LABEL: name}))
    queued = list(cluster.scheduler.queue.active_pods())

    def order() -> list[str]:
        return [one.info.name for one in sorted(queued, key=plugin.sort_key)]

    assert order() == ["of-g1", "of-g2", "alone"]
    cluster.advance(20)
    first = plugin.group(cluster.pod("of-g1"))
    assert first is not None
    plugin._fail(first, "a member fits nowhere")
    assert order() == ["of-g2", "alone", "of-g1"]


@pytest.mark.parametrize(
    ("namespace", "cpus", "victims"),
    [("a", 1, None), ("a", 2, {"a"}), ("b", 2, {"a"}), ("b", 3, {"b"})],
)
def test_elastic_quotas_pod_by_pod(namespace: str, cpus: int, victims: set[str] | None) -> None:
    """A uses 5 of its 4, B uses 4 of its 6. ``victims``: of whom; None: the pod just starts."""

    def quota(name: str, least: int, most: int) -> dict:
        return {
            "apiVersion": "scheduling.x-k8s.io/v1alpha1",
            "kind": "ElasticQuota",
            "metadata": {"name": name, "namespace": name},
            "spec": {"min": {"cpu": least}, "max": {"cpu": most}},
        }

    config = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [
            {
                "plugins": {
                    "multiPoint": {
                        "disabled": [{"name": "DefaultPreemption"}],
                        "enabled": [{"name": "CapacityScheduling"}],
                    }
                }
            }
        ],
    }
    used = [
        make_pod(f"{name}{number}", "1", namespace=name, node_name="n", priority=0)
        for name, count in (("a", 5), ("b", 4))
        for number in range(count)
    ]
    objects = [quota("a", 4, 8), quota("b", 6, 10), *used]
    cluster = Harness([CapacityScheduling], [make_node("n", "32")], objects, config=config)
    # More important than those of its own: those of others may be of any priority.
    outcome = cluster.schedule(make_pod("p", str(cpus), namespace=namespace, priority=1))
    assert outcome.bound == (victims is None)
    assert {key.partition("/")[0] for key in cluster.api.deleted} == (victims or set())
