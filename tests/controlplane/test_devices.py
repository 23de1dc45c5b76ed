"""Devices on a real apiserver: both schedulers allocate the same devices to the same claims.

Each scenario has a node of its own for each scheduler. What differs by nature (names of nodes,
share ids, times) is taken out; all else of a claim's status must be equal.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import pytest
from envtest import assertions, objects
from envtest.control_plane import ControlPlane
from envtest.kube_client import KubeClient
from envtest.schedulers import RunScheduler, configuration, profile
from envtest.waiting import eventually

Json = dict[str, Any]

OURS, UPSTREAM = "ours", "upstream"
DRIVER = "gpu.example.com"
DEVICE_API = "/apis/resource.k8s.io/v1"
CLAIMS = DEVICE_API + "/namespaces/default/resourceclaims"
PODS = objects.PODS.format("default")

BIG = f'device.attributes["{DRIVER}"].size > 1'
NEW = f'device.attributes["{DRIVER}"].version.isGreaterThan(semver("1.5.0"))'
ROOMY = f'device.capacity["{DRIVER}"].memory.compareTo(quantity("40Gi")) >= 0'


@dataclass
class Scenario:
    """Slices of one node, and claims in the order in which pods ask for them.

    ``extended``: pods that ask for the extended resource instead.
    """

    slices: list[Json]
    claims: list[Json] = field(default_factory=list)
    extended: list[int] = field(default_factory=list)


def device(name: str, memory: str = "80Gi", **more: Any) -> Json:
    attributes = {
        "numa": {"int": more.pop("numa", 0)},
        "size": {"int": more.pop("size", 1)},
        "version": {"version": more.pop("version", "1.0.0")},
    }
    policy = more.pop("policy", None)
    capacity = {"value": memory} | ({"requestPolicy": policy} if policy else {})
    return {"name": name, "attributes": attributes, "capacity": {"memory": capacity}, **more}


def request(name: str = "r", count: int = 1, cel: str = "", **more: Any) -> Json:
    return {"name": name, "exactly": wanted(count, cel, **more)}


def wanted(count: int = 1, cel: str = "", **more: Any) -> Json:
    asked: Json = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": count} | more
    if asked["allocationMode"] == "All":
        del asked["count"]
    if cel:
        asked["selectors"] = [{"cel": {"expression": cel}}]
    return asked


def claim(*requests: Json, **more: Any) -> Json:
    return {"devices": {"requests": list(requests or (request(),)), **more}}


def sharing(memory: str) -> Json:
    return claim(request(capacity={"requests": {"memory": memory}}))


def half(name: str, memory: str) -> Json:
    used = {"counterSet": "memory", "counters": {"gb": {"value": memory}}}
    return device(name, consumesCounters=[used])


SAME_NUMA = [{"matchAttribute": f"{DRIVER}/numa"}]
OPAQUE = {"opaque": {"driver": DRIVER, "parameters": {"mode": "fast"}}}
SHARED = {
    "allowMultipleAllocations": True,
    "policy": {
        "default": "8Gi",
        "validRange": {"min": "4Gi", "step": "2Gi", "max": "40Gi"},
    },
}

SCENARIOS = {
    "selectors": Scenario(
        [{"devices": [device("old"), device("new", version="2.0.0"), device("low", "16Gi")]}],
        [claim(request(cel=NEW)), claim(request(cel=f"{ROOMY} && !({NEW})")), claim(request())],
    ),
    "same-numa": Scenario(
        [{"devices": [device("a", numa=0), device("b", numa=1), device("c", numa=1)]}],
        [claim(request(count=2), constraints=SAME_NUMA, config=[OPAQUE | {"requests": ["r"]}])],
    ),
    "counters": Scenario(
        [
            {"sharedCounters": [{"name": "memory", "counters": {"gb": {"value": "40"}}}]},
            {"devices": [half("one", "20"), half("whole", "40"), half("two", "20")]},
        ],
        [claim(), claim(), claim()],
    ),
    "shares": Scenario(
        [{"devices": [device("s", "40Gi", **SHARED)]}],
        [sharing("5Gi"), sharing("1Gi"), sharing("21Gi"), sharing("9Gi"), sharing("6Gi")],
    ),
    "alternatives": Scenario(
        [{"devices": [device("small"), device("large", size=2)]}],
        [
            claim(
                {
                    "name": "g",
                    "firstAvailable": [
                        {"name": "two-big", **wanted(2, BIG)},
                        {"name": "one-big", **wanted(1, BIG)},
                    ],
                }
            ),
            claim({"name": "g", "firstAvailable": [{"name": "any", **wanted()}]}),
        ],
    ),
    "taints": Scenario(
        [
            {
                "devices": [
                    device("bad", taints=[{"key": "broken", "effect": "NoSchedule"}]),
                    device("good"),
                ]
            }
        ],
        [
            claim(),
            claim(request(tolerations=[{"key": "broken", "operator": "Exists"}])),
            claim(),
        ],
    ),
    "all": Scenario(
        [{"devices": [device("a"), device("b")]}, {"devices": [device("c")]}],
        [claim(request(allocationMode="All")), claim(request(allocationMode="All"))],
    ),
    "extended": Scenario([{"devices": [device("a"), device("b"), device("c")]}], [], [2, 1, 1]),
}


@dataclass
class Outcome:
    """By scheduler and scenario: the node or the reason of each pod, and its claim."""

    placed: dict[tuple[str, str], list[Json]]


@pytest.fixture(scope="module")
def outcome(control_plane: ControlPlane, run_module_scheduler: RunScheduler) -> Outcome:
    client = control_plane.client
    client.create(
        f"{DEVICE_API}/deviceclasses",
        {
            "metadata": {"name": "gpu"},
            "spec": {
                "selectors": [{"cel": {"expression": f'device.driver == "{DRIVER}"'}}],
                "config": [OPAQUE],
                "extendedResourceName": "example.com/gpu",
            },
        },
    )
    hosts = {}
    for index, key in enumerate((s, n) for s in (OURS, UPSTREAM) for n in SCENARIOS):
        node = objects.node(index)
        hosts[key] = node["metadata"]["name"]
        client.create(objects.NODES, node)
        publish(client, hosts[key], SCENARIOS[key[1]].slices)
    for scheduler, kind in ((OURS, None), (UPSTREAM, "kube-scheduler")):
        run_module_scheduler(
            configuration([profile(scheduler)], control_plane.kubeconfig),
            kind=kind,  # type: ignore[arg-type]
        )
    placed = {
        (scheduler, name): play(client, scheduler, name, host)
        for (scheduler, name), host in hosts.items()
    }
    return Outcome(placed)


def publish(client: KubeClient, node: str, slices: list[Json]) -> None:
    pool = {"name": node, "generation": 1, "resourceSliceCount": len(slices)}
    for index, spec in enumerate(slices):
        client.create(
            f"{DEVICE_API}/resourceslices",
            {
                "metadata": {"name": f"{node}-{index}"},
                "spec": {"driver": DRIVER, "nodeName": node, "pool": pool, **spec},
            },
        )


def play(client: KubeClient, scheduler: str, scenario: str, node: str) -> list[Json]:
    """Create one pod after the other; return the result of each."""
    found = []
    here = {"kubernetes.io/hostname": node}
    for index, spec in enumerate(SCENARIOS[scenario].claims):
        name = f"{scheduler}-{scenario}-{index}"
        client.create(CLAIMS, {"metadata": {"name": name}, "spec": spec})
        entry = {"name": "devices", "resourceClaimName": name}
        options = {"nodeSelector": here, "resourceClaims": [entry]}
        client.create(PODS, objects.pod(name, scheduler, spec=options))
        found.append(settled(client, name, node))
    for index, count in enumerate(SCENARIOS[scenario].extended):
        name = f"{scheduler}-{scenario}-{index}"
        pod = objects.pod(name, scheduler, spec={"nodeSelector": here})
        amounts = {"example.com/gpu": str(count)}
        resources = pod["spec"]["containers"][0]["resources"]
        resources["requests"] |= amounts
        resources["limits"] = amounts
        client.create(PODS, pod)
        found.append(settled(client, name, node))
    return found


def settled(client: KubeClient, name: str, node: str) -> Json:
    """Wait for a decision about a pod; return it, and the claim's status without names."""

    def done() -> Json:
        pod = client.get(f"{PODS}/{name}")
        refused = assertions.condition(pod).get("message")
        return pod if assertions.node_of(pod) or refused else {}

    pod = eventually(20, f"a decision about {name}", done)
    extended = pod["status"].get("extendedResourceClaimStatus")
    entries = pod["spec"].get("resourceClaims", ())
    claim_name = (
        extended["resourceClaimName"]
        if extended
        else next((entry["resourceClaimName"] for entry in entries), None)
    )
    claim = client.get(f"{CLAIMS}/{claim_name}") if claim_name else {}
    recorded_state = {
        "bound": assertions.node_of(pod) == node,
        "refused": assertions.condition(pod).get("message"),
        "mappings": extended and extended["requestMappings"],
        "spec": claim.get("spec"),
        "finalizers": claim.get("metadata", {}).get("finalizers"),
        "status": claim.get("status"),
    }
    plain = json.dumps(recorded_state, sort_keys=True).replace(node, "NODE")
    for unlike in (pod["metadata"]["uid"], name.split("-")[0]):
        plain = plain.replace(unlike, "-")
    result: Json = json.loads(plain, object_hook=_without_chance)
    return result


def _without_chance(fields: Json) -> Json:
    return {
        key: "…" if key in ("shareID", "allocationTimestamp") else value
        for key, value in fields.items()
    }


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_same_devices_are_allocated(outcome: Outcome, scenario: str) -> None:
    ours, theirs = (outcome.placed[scheduler, scenario] for scheduler in (OURS, UPSTREAM))
    assert [pod["bound"] for pod in ours] == [pod["bound"] for pod in theirs]
    assert ours == theirs
    assert any(pod["bound"] for pod in ours)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_no_device_is_allocated_twice(outcome: Outcome, scenario: str) -> None:
    for scheduler in (OURS, UPSTREAM):
        given = [
            result["device"]
            for pod in outcome.placed[scheduler, scenario]
            for result in (pod["status"] or {}).get("allocation", {})
            .get("devices", {}).get("results", ())
            if "shareID" not in result
        ]  # fmt: skip
        assert len(given) == len(set(given))
