"""Faults that kube-scheduler still has: as there by default, and corrected where asked for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from proreus.base.errors import ConfigError
from proreus.base.known_faults import KnownFault, parse_corrections
from proreus.base.kubernetes_version import V1_36, V1_37, KubernetesVersion
from proreus.engine.runtime.registry import Registry
from proreus.offline.evaluate import Fallbacks, evaluate
from proreus.plugins import IN_TREE_PLUGINS
from proreus.testing.volumes import make_claim, make_storage_class

JsonObject = dict[str, Any]

HOSTNAME = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"
REGISTRY = Registry(IN_TREE_PLUGINS)


def answer(
    case: JsonObject, correction: KnownFault | None, version: KubernetesVersion = V1_37
) -> JsonObject:
    corrections = frozenset({correction} if correction else ())
    fallbacks = Fallbacks(version=version, corrections=corrections)
    [result] = evaluate([{"id": "case", "config": None, **case}], REGISTRY, fallbacks)
    expect: JsonObject = result["expect"]
    return expect


def decision(pod: JsonObject, *objects: JsonObject) -> JsonObject:
    return {"objects": [namespace("default"), *objects], "pod": pod}


def namespace(name: str) -> JsonObject:
    labels = {"kubernetes.io/metadata.name": name}
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": name, "labels": labels},
    }


def node(name: str, cpu: int = 4, zone: str = "", **spec: Any) -> JsonObject:
    room = {"cpu": str(cpu), "memory": "8Gi", "pods": "110"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {HOSTNAME: name, ZONE: zone or name}},
        "spec": spec,
        "status": {"capacity": room, "allocatable": room},
    }


def pod(
    name: str,
    cpu: int = 0,
    *,
    on: str = "",
    labels: JsonObject | None = None,
    ns: str = "default",
    started: int = 0,
    **spec: Any,
) -> JsonObject:
    requests = {"cpu": str(cpu)} if cpu else {}
    status: JsonObject = {"startTime": f"2026-01-01T0{started}:00:00Z"}
    if on:
        spec["nodeName"], status["phase"] = on, "Running"
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": ns, "uid": name, "labels": labels or {}},
        "spec": {
            "schedulerName": "default-scheduler",
            "containers": [{"name": "c", "image": "pause", "resources": {"requests": requests}}],
            **spec,
        },
        "status": status,
    }


def feasible(case: JsonObject, correction: KnownFault | None, **options: Any) -> list[str]:
    found: list[str] = answer(case, correction, **options)["feasible"]
    return found


# ---- pinned-victim -------------------------------------------------------------------------------


def only_on(*names: str) -> JsonObject:
    field = {"key": "metadata.name", "operator": "In", "values": [*names]}
    terms = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
    return {"affinity": {"nodeAffinity": required}}


PINNED = {
    "node affinity": only_on("a"),
    "node selector": {"nodeSelector": {HOSTNAME: "a"}},
    "the taint of the other node": {},
}


@pytest.mark.parametrize("spec", PINNED.values(), ids=PINNED)
@pytest.mark.parametrize(
    ("correction", "victim"), [(None, "younger"), (KnownFault.PINNED_VICTIM, "older")]
)
def test_of_equal_victims_the_one_goes_whose_replacement_can_run_elsewhere(
    spec: JsonObject, correction: KnownFault | None, victim: str
) -> None:
    tolerates = {"tolerations": [{"key": "gpu", "operator": "Exists"}]}
    case = decision(
        pod("vip", 1, priority=10, nodeSelector={HOSTNAME: "a"}),
        node("a", 2),
        node("b", 1, taints=[{"key": "gpu", "effect": "NoSchedule"}]),
        pod("older", 1, on="a", started=1, priority=0, **tolerates),
        pod("younger", 1, on="a", started=5, priority=0, **spec),
    )
    [found] = answer(case, correction)["preemption"]
    assert found["victims"] == [victim]


def test_a_pinned_victim_of_lower_priority_still_goes() -> None:
    case = decision(
        pod("vip", 1, priority=10, nodeSelector={HOSTNAME: "a"}),
        node("a", 2),
        node("b", 1),
        pod("movable", 1, on="a", priority=1),
        pod("pinned", 1, on="a", priority=0, **only_on("a")),
    )
    [found] = answer(case, KnownFault.PINNED_VICTIM)["preemption"]
    assert found["victims"] == ["pinned"]


def test_the_victims_of_a_node_are_still_named_by_importance() -> None:
    """Nodes are compared by their most important victims."""
    case = decision(
        pod("vip", 2, priority=10, nodeSelector={HOSTNAME: "a"}),
        node("a", 2),
        node("b", 1),
        pod("older", 1, on="a", started=1, priority=0),
        pod("younger", 1, on="a", started=5, priority=0, **only_on("a")),
    )
    [found] = answer(case, KnownFault.PINNED_VICTIM)["preemption"]
    assert found["victims"] == ["older", "younger"]


# ---- gang-member-completed -----------------------------------------------------------------------


def gang(name: str, min_count: int) -> JsonObject:
    return {
        "apiVersion": "scheduling.k8s.io/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": "default", "uid": name, "generation": 1},
        "spec": {"schedulingPolicy": {"gang": {"minCount": min_count}}},
    }


def member(name: str) -> JsonObject:
    return pod(name, 1, schedulingGroup={"podGroupName": "g"})


def finish(name: str, phase: str) -> JsonObject:
    patch = {"status": {"phase": phase}}
    return {"patch": {"kind": "Pod", "namespace": "default", "name": name, "patch": patch}}


def bound(
    steps: Iterable[JsonObject],
    correction: KnownFault | None,
    version: KubernetesVersion = V1_37,
) -> JsonObject:
    case = {
        "objects": [namespace("default"), node("a")],
        "steps": [*steps, {"schedule": 5}, {"advance": 20}, {"schedule": 5}],
        "observe": ["bound"],
        "features": ["GenericWorkload=true", *(["GangScheduling=true"] * (version == V1_36))],
    }
    found: JsonObject = {}
    for step in answer(case, correction, version)["trace"]:
        found |= step.get("bound", {})
    return found


RAN = ({"add": gang("g", 2)}, {"add": member("one")}, {"add": member("two")}, {"schedule": 5})


@pytest.mark.parametrize("version", [V1_36, V1_37], ids=str)
@pytest.mark.parametrize(
    ("correction", "runs"), [(None, False), (KnownFault.GANG_MEMBER_COMPLETED, True)]
)
def test_the_replacement_of_a_gangs_member_does_not_wait_for_one_that_has_finished(
    correction: KnownFault | None, runs: bool, version: KubernetesVersion
) -> None:
    replaced = (finish("one", "Succeeded"), finish("two", "Failed"), {"add": member("three")})
    assert ("three" in bound((*RAN, *replaced), correction, version)) == runs


def test_a_gang_that_has_not_started_waits_for_all() -> None:
    steps = ({"add": gang("g", 2)}, {"add": member("one")})
    assert bound(steps, KnownFault.GANG_MEMBER_COMPLETED) == {}


def test_a_replacement_is_let_through_once_the_group_says_that_it_was_scheduled() -> None:
    scheduled = {"type": "PodGroupInitiallyScheduled", "status": "True", "reason": "Scheduled"}
    group = {"kind": "PodGroup", "namespace": "default", "name": "g"}
    patch = {"patch": {**group, "patch": {"status": {"conditions": [scheduled]}}}}
    steps = ({"add": gang("g", 2)}, {"add": member("one")}, {"schedule": 5}, patch)
    assert bound(steps, KnownFault.GANG_MEMBER_COMPLETED) == {"one": "a"}
    assert bound(steps, None) == {}


# ---- two-claims-one-capacity ---------------------------------------------------------------------


def capacity(name: str, on: str, size: str | None, largest: str | None = None) -> JsonObject:
    found: JsonObject = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSIStorageCapacity",
        "metadata": {"name": name, "namespace": "default"},
        "storageClassName": "wait",
        "nodeTopology": {"matchLabels": {HOSTNAME: on}},
    }
    if size is not None:
        found["capacity"] = size
    if largest is not None:
        found["maximumVolumeSize"] = largest
    return found


def storage_case(*capacities: JsonObject, sizes: Iterable[str] = ("40Gi", "10Gi")) -> JsonObject:
    claims = [make_claim(f"c{n}", size) for n, size in enumerate(sizes)]
    volumes = [
        {"name": f"v{n}", "persistentVolumeClaim": {"claimName": f"c{n}"}}
        for n in range(len(claims))
    ]
    driver = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSIDriver",
        "metadata": {"name": "csi.example.com"},
        "spec": {"storageCapacity": True},
    }
    return decision(
        pod("p", volumes=volumes),
        node("a"),
        node("b"),
        make_storage_class(),
        driver,
        *claims,
        *capacities,
    )


@pytest.mark.parametrize(
    ("correction", "nodes"),
    [(None, ["a", "b"]), (KnownFault.TWO_CLAIMS_ONE_CAPACITY, ["b"])],
)
def test_the_claims_of_a_pod_have_to_fit_together(
    correction: KnownFault | None, nodes: list[str]
) -> None:
    case = storage_case(capacity("x", "a", "43Gi"), capacity("y", "b", "100Gi"))
    assert feasible(case, correction) == nodes


def test_where_no_node_holds_all_claims_the_pod_waits() -> None:
    found = answer(storage_case(capacity("x", "a", "43Gi")), KnownFault.TWO_CLAIMS_ONE_CAPACITY)
    assert found["feasible"] == []
    assert "2 node(s) did not have enough free storage" in found["message"]


def test_claims_may_be_split_over_the_capacities_that_a_node_reaches() -> None:
    sizes = ("20Gi", "40Gi", "20Gi")
    split = capacity("x", "a", "40Gi"), capacity("y", "a", "40Gi")
    case = storage_case(*split, capacity("z", "b", "79Gi"), sizes=sizes)
    assert feasible(case, KnownFault.TWO_CLAIMS_ONE_CAPACITY) == ["a"]


def test_a_total_that_is_not_announced_limits_nothing() -> None:
    case = storage_case(capacity("x", "a", None, largest="45Gi"))
    assert feasible(case, KnownFault.TWO_CLAIMS_ONE_CAPACITY) == ["a"]


# ---- tainted-zone-min-domains --------------------------------------------------------------------


def spread_case(min_domains: int, taints: str = "Honor") -> JsonObject:
    labels = {"app": "w"}
    constraint = {
        "maxSkew": 1,
        "topologyKey": ZONE,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": labels},
        "nodeTaintsPolicy": taints,
        "minDomains": min_domains,
    }
    return decision(
        pod("third", labels=labels, topologySpreadConstraints=[constraint]),
        node("a"),
        node("b"),
        node("down", taints=[{"key": "zone-down", "effect": "NoSchedule"}]),
        pod("first", on="a", labels=labels),
        pod("second", on="b", labels=labels),
    )


@pytest.mark.parametrize(
    ("correction", "nodes"), [(None, []), (KnownFault.TAINTED_ZONE_MIN_DOMAINS, ["a", "b"])]
)
def test_a_zone_that_is_down_is_a_domain_all_the_same(
    correction: KnownFault | None, nodes: list[str]
) -> None:
    assert feasible(spread_case(3), correction) == nodes


def test_a_zone_that_does_not_exist_is_none() -> None:
    assert feasible(spread_case(4), KnownFault.TAINTED_ZONE_MIN_DOMAINS) == []


def test_with_taints_ignored_a_zone_that_is_down_counts_for_the_skew_too() -> None:
    assert feasible(spread_case(3, "Ignore"), KnownFault.TAINTED_ZONE_MIN_DOMAINS) == []


# ---- negative-namespace-selector -----------------------------------------------------------------


@pytest.mark.parametrize(
    "expression",
    [
        {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["blue"]},
        {"key": "kubernetes.io/metadata.name", "operator": "DoesNotExist"},
    ],
)
@pytest.mark.parametrize(
    ("version", "correction", "nodes"),
    [
        (V1_36, None, []),
        (V1_36, KnownFault.NEGATIVE_NAMESPACE_SELECTOR, ["a"]),
        (V1_37, None, ["a"]),
    ],
)
def test_pods_of_excluded_namespaces_count_for_no_term(
    expression: JsonObject,
    version: KubernetesVersion,
    correction: KnownFault | None,
    nodes: list[str],
) -> None:
    labels = {"role": "heavy"}
    term = {
        "labelSelector": {"matchLabels": labels},
        "topologyKey": HOSTNAME,
        "namespaceSelector": {"matchExpressions": [expression]},
    }
    anti = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    case = decision(
        pod("new", ns="blue", labels=labels, affinity=anti),
        namespace("blue"),
        node("a"),
        pod("old", ns="blue", labels=labels, on="a"),
    )
    assert feasible(case, correction, version=version) == nodes


# ---- device-pool-counts --------------------------------------------------------------------------


def device_slice(name: str, on: str, count: int, generation: int = 1) -> JsonObject:
    pool = {"name": "x", "generation": generation, "resourceSliceCount": count}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": name},
        "spec": {
            "driver": "gpu.example.com",
            "nodeName": on,
            "pool": pool,
            "devices": [{"name": f"of-{name}"}],
        },
    }


def device_case(*slices: JsonObject) -> JsonObject:
    request = {"name": "r", "exactly": {"deviceClassName": "gpu", "count": 1}}
    request["exactly"]["allocationMode"] = "ExactCount"  # type: ignore[index]
    claim = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "mine", "namespace": "default", "uid": "mine"},
        "spec": {"devices": {"requests": [request]}},
    }
    device_class = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": "gpu"},
        "spec": {},
    }
    wanted = [{"name": "r", "resourceClaimName": "mine"}]
    objects = (node("a"), node("b"), device_class, claim, *slices)
    return decision(pod("p", resourceClaims=wanted), *objects)


@pytest.mark.parametrize(
    ("correction", "nodes"), [(None, ["a", "b"]), (KnownFault.DEVICE_POOL_COUNTS, [])]
)
def test_a_pool_with_more_slices_than_it_declares_is_invalid(
    correction: KnownFault | None, nodes: list[str]
) -> None:
    found = answer(device_case(device_slice("s", "a", 1), device_slice("t", "b", 1)), correction)
    assert found["feasible"] == nodes
    if not nodes:
        assert "2 invalid resource pools were encountered" in found["message"]


def test_a_pool_whose_slices_declare_different_numbers_is_invalid() -> None:
    case = device_case(device_slice("s", "a", 2), device_slice("t", "b", 3))
    found = answer(case, KnownFault.DEVICE_POOL_COUNTS)
    assert "invalid resource pools were encountered" in found["message"]


@pytest.mark.parametrize("slices", [(2, 1, 2, 1), (1, 2, 1, 1)])
def test_a_pool_that_agrees_with_itself_is_used(slices: tuple[int, int, int, int]) -> None:
    """Both slices are there, or one of them is of an older generation."""
    count, generation, other_count, other_generation = slices
    case = device_case(
        device_slice("s", "a", count, generation),
        device_slice("t", "b", other_count, other_generation),
    )
    assert feasible(case, KnownFault.DEVICE_POOL_COUNTS) == feasible(case, None)


# ---- names ---------------------------------------------------------------------------------------


def test_corrections_are_named_in_lower_case() -> None:
    names = ["pinned-victim", " tainted-zone-min-domains ", ""]
    found = parse_corrections(names)
    assert found == {KnownFault.PINNED_VICTIM, KnownFault.TAINTED_ZONE_MIN_DOMAINS}
    assert parse_corrections([]) == frozenset()


def test_an_unknown_correction_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(ConfigError) as raised:
        parse_corrections(["pinned-victim", "pined-victim", "all"])
    first, second = raised.value.problems
    assert first.startswith('--corrections: unknown correction "pined-victim", there are: ')
    assert '"all"' in second
    for correction in KnownFault:
        assert correction.flag in first
