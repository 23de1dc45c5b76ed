"""What the allocator of Kubernetes 1.38 reads, refuses and says otherwise than that of 1.37."""

from __future__ import annotations

from typing import Any

import pytest

from proreus.framework.status import Code

NO = "cannot allocate all claims"
DRIVER = "gpu.example.com"
SHARED = {"allowMultipleAllocations": True}
Make = Any


@pytest.fixture
def make(cluster: Any) -> Make:
    def make_cluster(version: str = "1.38", *gates: str, nodes: tuple[str, ...] = ("n1",)) -> Any:
        found = cluster(*nodes, kubernetes_version=version, gates=gates)
        found.device_class()
        return found

    return make_cluster


def share(one: Any, amounts: dict[str, str], device: str = "a") -> dict[str, Any]:
    """Return the status of a claim that has a share of a device."""
    status: dict[str, Any] = one.allocated(device)
    for result in status["allocation"]["devices"]["results"]:
        result |= {"shareID": "1", "consumedCapacity": amounts}
    return status


# ---- names of capacities -----------------------------------------------------------------------


@pytest.mark.parametrize("published", ["memory", f"{DRIVER}/memory"])
@pytest.mark.parametrize("requested", ["memory", f"{DRIVER}/memory"])
async def test_a_capacity_is_meant_with_and_without_the_drivers_domain(
    make: Make, published: str, requested: str
) -> None:
    for version in ("1.37", "1.38"):
        one = make(version)
        one.slice(one.device("a", capacity={published: "8Gi"}) | SHARED)
        one.claim("x", one.request(capacity={"requests": {requested: "2Gi"}}))
        pod = one.pod("x")
        if version == "1.37" and published != requested:
            assert one.filter(pod) == {"n1": NO}
        else:
            assert await one.bind(pod) is None
            result = one.claim_now("x").status.allocation.devices.results[0]
            assert result.consumed_capacity == {published: "2Gi"}, "as the driver writes it"


@pytest.mark.parametrize("written", ["memory", f"{DRIVER}/memory"])
def test_what_is_consumed_is_known_by_either_name(make: Make, written: str) -> None:
    one = make()
    one.slice(one.device("a", capacity={"memory": "8Gi"}) | SHARED)
    one.claim("held", status=share(one, {written: "7Gi"}))
    one.claim("x", one.request(capacity={"requests": {"memory": "2Gi"}}))
    assert one.filter(one.pod("x")) == {"n1": NO}


def test_the_domain_of_another_driver_is_another_capacity(make: Make) -> None:
    one = make()
    one.slice(one.device("a", capacity={"memory": "8Gi"}) | SHARED)
    one.claim("x", one.request(capacity={"requests": {"other.example.com/memory": "2Gi"}}))
    assert one.filter(one.pod("x")) == {"n1": NO}


def test_a_capacity_that_is_requested_by_both_names_is_an_error(make: Make) -> None:
    one = make()
    one.slice(one.device("a", capacity={"memory": "8Gi"}) | SHARED)
    both = {"memory": "1Gi", f"{DRIVER}/memory": "2Gi"}
    one.claim("x", one.request(capacity={"requests": both}))
    assert one.filter(one.pod("x")) == {
        "n1": f"!claim default/x, request r: checking capacity for device {DRIVER}/n1/a: capacity "
        f'"memory" requested both as "memory" and as "{DRIVER}/memory"'
    }


def test_of_a_capacity_that_is_published_by_both_names_the_full_one_counts(make: Make) -> None:
    one = make()
    both = {f"{DRIVER}/memory": "1Gi", "memory": "8Gi"}
    one.slice(one.device("a", capacity=both) | SHARED)
    cel = f'device.capacity["{DRIVER}"].memory.isGreaterThan(quantity("1Gi"))'
    one.claim("x", one.request(capacity={"requests": {"memory": "2Gi"}}))
    one.claim("y", one.request(cel=cel))
    assert one.filter(one.pod("x")) == one.filter(one.pod("y")) == {"n1": NO}


# ---- negative amounts --------------------------------------------------------------------------


def test_a_negative_request_is_an_error_even_if_it_would_be_rounded(make: Make) -> None:
    policy = {"validRange": {"min": "1Gi"}}
    capacity = {"memory": {"value": "8Gi", "requestPolicy": policy}}
    for version, text in (
        ("1.37", None),
        (
            "1.38",
            f"!claim default/x, request r: checking capacity for device {DRIVER}/n1/a: capacity "
            f'"{DRIVER}/memory": capacity value is negative: request -1',
        ),
    ):
        one = make(version)
        one.slice(one.device("a", capacity=capacity) | SHARED)
        one.claim("x", one.request(capacity={"requests": {"memory": "-1"}}))
        assert one.filter(one.pod("x")).get("n1") == text


def test_nothing_is_allocated_while_a_claim_consumes_a_negative_amount(make: Make) -> None:
    one = make()
    one.slice(one.device("a", capacity={"memory": "8Gi"}) | SHARED, "b")
    for name in ("held", "more"):
        one.claim(name, status=share(one, {"memory": "-500m"}))
    one.claim("x")
    pod = one.pod("x")
    status = one.pre_filter(pod)
    assert status.code == Code.ERROR
    fault = (
        f'claim default/held, device {DRIVER}/n1/a: consumed capacity "memory" must not be '
        "negative, got -500m"
    )
    assert status.message == (
        f"gather allocation state: {fault} (and 1 more claims with invalid consumed capacity)"
    )
    one.handle.remove("ResourceClaim", "default/more")
    assert one.pre_filter(pod).message == f"gather allocation state: {fault}"
    one.handle.remove("ResourceClaim", "default/held")
    assert one.filter(pod) == {}


def test_a_pod_with_allocated_claims_needs_no_amounts(make: Make) -> None:
    one = make()
    one.slice("a", "b")
    one.claim("held", status=share(one, {"memory": "-1"}))
    one.claim("x", status=one.allocated("b", reserved=()))
    assert one.filter(one.pod("x")) == {}


# ---- shares, pools, versions -------------------------------------------------------------------


@pytest.mark.parametrize(("version", "rejected"), [("1.37", {}), ("1.38", {"n1": NO})])
def test_a_device_that_has_shares_is_not_given_whole(
    make: Make, version: str, rejected: dict[str, str]
) -> None:
    one = make(version)
    one.slice("a")
    one.claim("held", status=share(one, {}))
    one.claim("x")
    assert one.filter(one.pod("x")) == rejected
    one.claim("admin", one.request(adminAccess=True))
    assert one.filter(one.pod("admin")) == {}


@pytest.mark.parametrize(("version", "mark"), [("1.37", "!"), ("1.38", "")])
def test_all_devices_of_an_unfinished_pool_are_missing_on_its_node_only(
    make: Make, version: str, mark: str
) -> None:
    one = make(version, nodes=("n1", "n2"))
    one.slice("a", node="n1", count=2)
    one.slice("a", node="n2")
    one.claim("x", one.request(all_devices=True))
    assert one.filter(one.pod("x")) == {
        "n1": f"{mark}claim default/x, request r: asks for all devices, but resource pool "
        f"{DRIVER}/n1 is currently being updated"
    }


def versions(one: Any, *texts: str) -> None:
    devices = [
        {"name": f"d{number}", "attributes": {"v": {"version": text}}}
        for number, text in enumerate(texts)
    ]
    one.slice(*devices)


@pytest.mark.parametrize(("version", "matches"), [("1.37", False), ("1.38", True)])
def test_versions_are_equal_whatever_their_build(make: Make, version: str, matches: bool) -> None:
    one = make(version)
    versions(one, "1.0.0+a", "1.0.0+b")
    for kind in ("match", "distinct"):
        one.claim(kind, one.request(count=2), constraints=[{f"{kind}Attribute": f"{DRIVER}/v"}])
    assert (one.filter(one.pod("match")) == {}) is matches
    assert (one.filter(one.pod("distinct")) == {}) is not matches


HUGE = "99999999999999999999.0.0"


@pytest.mark.parametrize("value", [{"version": HUGE}, {"strings": ["a"]}, {}])
@pytest.mark.parametrize("kind", ["match", "distinct"])
def test_a_value_that_cannot_be_compared_is_an_error(
    make: Make, value: dict[str, Any], kind: str
) -> None:
    constraint = [{f"{kind}Attribute": f"{DRIVER}/v"}]
    for gate, whose in ((), "claim default/x, request r: "), (("DRADerivedAttributes=true",), ""):
        one = make("1.38", *gate)
        one.slice({"name": "a", "attributes": {"v": value}}, "b")
        one.claim("x", one.request(count=2), constraints=constraint)
        assert one.filter(one.pod("x")) == {
            "n1": f"!{whose}device {DRIVER}/n1/a: unsupported attribute value for {DRIVER}/v"
        }


def test_it_is_an_error_even_where_devices_are_too_few(make: Make) -> None:
    one = make()
    one.slice({"name": "a", "attributes": {"v": {"strings": ["a"]}}}, "b")
    one.claim("x", one.request(count=3), constraints=[{"matchAttribute": f"{DRIVER}/v"}])
    assert "unsupported attribute value" in one.filter(one.pod("x"))["n1"]


def test_a_selector_fails_at_such_a_value_only_if_it_looks_at_it(make: Make) -> None:
    one = make()
    one.slice({"name": "a", "attributes": {"v": {"version": HUGE}, "size": {"int": 2}}})
    one.claim("x", one.request(cel=f'device.attributes["{DRIVER}"].size == 2'))
    one.claim("y", one.request(cel=f'device.attributes["{DRIVER}"].v == semver("1.0.0")'))
    assert one.filter(one.pod("x")) == {}
    assert one.filter(one.pod("y")) == {
        "n1": f"!claim default/y: selector #0 on device {DRIVER}/n1/a: CEL runtime error: "
        "attribute v: value is invalid or its type is not supported by this version"
    }


def test_a_pool_that_gives_no_devices_keeps_its_place(make: Make) -> None:
    one = make()
    late = {"name": "a", "bindingConditions": ["ready"], "bindingFailureConditions": ["failed"]}
    one.slice(late, name="s1", driver="a.example.com", count=2)
    one.slice("b", name="s2", count=2)
    one.claim("x", one.request(all_devices=True))
    assert "resource pool a.example.com/n1 is" in one.filter(one.pod("x"))["n1"]
