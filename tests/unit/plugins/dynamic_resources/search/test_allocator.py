"""Which devices a claim gets: order, backtracking, constraints, counters, capacity."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

NO = "cannot allocate all claims"


@pytest.fixture
def one(cluster: Any) -> Any:
    """Return one node and a class that takes every device."""
    devices = cluster("n1")
    devices.device_class()
    return devices


async def test_first_devices_first(one: Any) -> None:
    one.slice("b", "a", "c")
    one.claim("x", one.request(count=2))
    assert await one.devices_given(one.pod("x")) == ["r=b", "r=a"]
    one.claim("y")
    assert await one.devices_given(one.pod("y", name="other")) == ["r=c"]
    one.claim("z")
    assert one.filter(one.pod("z", name="third")) == {"n1": NO}


def test_pools_by_driver_and_name_slices_by_name_binding_conditions_last(one: Any) -> None:
    one.slice("d1", pool="zz", name="s1", driver="a.example.com")
    one.slice("d2", pool="b", name="s3", count=2)
    one.slice("d3", pool="b", name="s2", count=2)
    one.slice(one.device("d4", bindingConditions=["Ready"]), pool="a", name="s4", driver="a")
    one.claim("x", one.request(count=4))
    assert one.reserve(one.pod("x")) is None
    (flying,) = one.plugin.manager.allocated.in_flight.values()
    results = flying.allocation.devices.results
    assert [result.device for result in results] == ["d1", "d3", "d2", "d4"]


async def test_selectors_of_class_and_request_must_both_hold(one: Any) -> None:
    one.device_class("big", 'device.attributes["gpu.example.com"].size > 1')
    one.slice(*(one.device(f"d{n}", size=n, even=n % 2 == 0) for n in range(5)))
    cel = 'device.attributes["gpu.example.com"].even'
    one.claim("x", one.request(cls="big", cel=cel, count=2))
    assert await one.devices_given(one.pod("x")) == ["r=d2", "r=d4"]


@pytest.mark.parametrize(
    ("cel", "text"),
    [
        ("device.attributes['gpu.example.com'].missing == 1",
         "!claim default/x: selector #0: CEL runtime error: no such key: missing"),
        ("device.driver == 1", "!claim default/x: selector #0: CEL compile error: "),
    ],
)  # fmt: skip
def test_a_selector_that_fails_is_an_error(one: Any, cel: str, text: str) -> None:
    one.slice("d")
    one.claim("x", one.request(cel=cel))
    assert one.filter(one.pod("x"))["n1"].startswith(text)


async def test_matching_backtracks(one: Any) -> None:
    one.slice(*(one.device(f"d{n}", numa=numa) for n, numa in enumerate((0, 1, 1), 1)))
    constraints = [{"matchAttribute": "gpu.example.com/numa"}]
    one.claim("x", one.request(count=2), constraints=constraints)
    assert await one.devices_given(one.pod("x")) == ["r=d2", "r=d3"]


async def test_matching_over_two_requests_and_only_those_named(one: Any) -> None:
    one.slice(*(one.device(f"d{n}", numa=numa) for n, numa in enumerate((0, 1, 0, 1))))
    constraints = [{"matchAttribute": "gpu.example.com/numa", "requests": ["a", "c"]}]
    requests = (one.request(name) for name in "abc")
    one.claim("x", *requests, constraints=constraints)
    assert await one.devices_given(one.pod("x")) == ["a=d0", "b=d1", "c=d2"]


def test_matching_needs_the_attribute(one: Any) -> None:
    one.slice("d")
    one.claim("x", constraints=[{"matchAttribute": "gpu.example.com/numa"}])
    assert one.filter(one.pod("x")) == {"n1": NO}


async def test_distinct_looks_back_one_device_a_request(one: Any) -> None:
    one.slice(*(one.device(f"d{n}", rack=rack) for n, rack in enumerate("AABA")))
    constraints = [{"distinctAttribute": "gpu.example.com/rack"}]
    one.claim("x", one.request(count=3), constraints=constraints)
    assert await one.devices_given(one.pod("x")) == ["r=d0", "r=d2", "r=d3"]


async def test_alternatives_in_order(one: Any) -> None:
    one.device_class("big", 'device.attributes["gpu.example.com"].size > 7')
    one.slice(one.device("small", size=1))
    one.claim("x", one.first_available("g", one.sub("first", "big"), one.sub("second")))
    assert await one.devices_given(one.pod("x")) == ["g/second=small"]


async def test_alternatives_count_where_a_request_names_exact_devices_too(one: Any) -> None:
    one.slice("d1", "d2")
    both = one.request(count=3) | one.first_available("r", one.sub("one"))
    one.claim("x", both)
    assert await one.devices_given(one.pod("x")) == ["r/one=d1"]


def test_a_node_selector_that_cannot_be_parsed_is_an_error_on_every_node(cluster: Any) -> None:
    devices = cluster("n1", "n2")
    devices.device_class()
    wrong = {"key": "a", "operator": "Gt", "values": ["9" * 60]}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [wrong]}]}
    devices.slice(devices.device("d"), node="", name="wrong", nodeSelector=terms)
    devices.claim("x", devices.request())
    found = devices.filter(devices.pod("x"))
    text = found["n1"]
    assert text.startswith(
        "!gather pool information: failed to perform node selection for slice wrong: "
    )
    assert found == {"n1": text, "n2": text}


def test_an_unknown_type_of_selector_is_an_error_on_every_node(cluster: Any) -> None:
    devices = cluster("n1", "n2")
    devices.device_class()
    devices.slice("d", node="n1")
    devices.claim("x", devices.request(selectors=[{}]))
    text = (
        "!claim default/x, request r, selector #0: CEL expression empty "
        "(unsupported selector type?)"
    )
    assert devices.filter(devices.pod("x")) == {"n1": text, "n2": text}


def test_the_first_alternative_scores_more(cluster: Any) -> None:
    two = cluster("n1", "n2")
    two.device_class()
    two.device_class("big", 'device.attributes["gpu.example.com"].size > 7')
    two.slice(two.device("small", size=1), node="n1")
    two.slice(two.device("large", size=8), node="n2")
    two.claim("x", two.first_available("g", two.sub("first", "big"), two.sub("second")))
    pod = two.pod("x")
    assert two.filter(pod) == {}
    assert two.scores(pod) == {"n1": 87, "n2": 100}


def test_no_alternatives_no_score(gpus: Any) -> None:
    gpus.claim()
    gpus.filter(gpus.pod("claim"))
    assert gpus.scores(gpus.pod("claim")) == {"n1": 0, "n2": 0}


def test_no_score_for_alternatives_of_a_request_that_names_exact_devices_too(gpus: Any) -> None:
    gpus.claim("x", gpus.request() | gpus.first_available("r", gpus.sub("one")))
    pod = gpus.pod("x")
    assert gpus.filter(pod) == {}
    assert gpus.scores(pod) == {"n1": 0, "n2": 0}


async def test_all_devices_or_none(one: Any) -> None:
    one.slice("a", "b", "c")
    one.claim("x", one.request(all_devices=True))
    assert await one.devices_given(one.pod("x")) == ["r=a", "r=b", "r=c"]
    one.claim("y", one.request(all_devices=True))
    assert one.filter(one.pod("y", name="other")) == {"n1": NO}


def test_all_of_nothing_is_not_enough(one: Any) -> None:
    one.claim("x", one.request(all_devices=True))
    assert one.filter(one.pod("x")) == {"n1": NO}


def test_all_devices_against_a_constraint_is_an_error(one: Any) -> None:
    one.slice(one.device("a", numa=0), one.device("b", numa=1))
    constraints = [{"matchAttribute": "gpu.example.com/numa"}]
    one.claim("x", one.request(all_devices=True), constraints=constraints)
    assert one.filter(one.pod("x")) == {
        "n1": "!claim default/x, request r: cannot add device gpu.example.com/n1/b because a "
        "claim constraint would not be satisfied"
    }


def test_an_incomplete_pool_is_skipped_but_an_error_for_all_devices(one: Any) -> None:
    one.slice("a", count=2)
    one.claim("x")
    one.claim("y", one.request(all_devices=True))
    assert one.filter(one.pod("x")) == {"n1": NO}
    assert one.filter(one.pod("y")) == {
        "n1": "!claim default/y, request r: asks for all devices, but resource pool "
        "gpu.example.com/n1 is currently being updated"
    }


def test_an_error_names_a_subrequest_without_its_request(one: Any) -> None:
    one.slice("a", count=2)
    one.claim("x", one.first_available("g", one.sub("every", all_devices=True)))
    assert one.filter(one.pod("x")) == {
        "n1": "!claim default/x, request every: asks for all devices, but resource pool "
        "gpu.example.com/n1 is currently being updated"
    }


def test_a_pool_with_a_name_twice_is_invalid(one: Any) -> None:
    one.slice("a", "a")
    one.claim("x")
    one.claim("y", one.request(all_devices=True))
    assert one.filter(one.pod("x")) == {"n1": "invalid resource pools were encountered"}
    assert one.filter(one.pod("y"))["n1"].endswith("gpu.example.com/n1 is currently invalid")


@pytest.mark.parametrize("all_devices", [False, True])
def test_a_selector_may_fail_on_a_device_that_is_out_of_reach(one: Any, all_devices: bool) -> None:
    near = one.device("near", size=0) | {"nodeName": "n1"}
    far = one.device("far") | {"nodeName": "elsewhere"}
    one.slice(near, far, node="", name="s", pool="p", perDeviceNodeSelection=True)
    cel = 'device.attributes["gpu.example.com"].size > 1'
    one.claim("x", one.request(cel=cel, all_devices=all_devices))
    assert one.filter(one.pod("x")) == {
        "n1": "!claim default/x: selector #0: CEL runtime error: no such key: size"
    }


def test_an_incomplete_pool_is_not_validated(one: Any) -> None:
    one.slice("a", "a", count=2)
    one.claim("x")
    one.claim("y", one.request(all_devices=True))
    assert one.filter(one.pod("x")) == {"n1": NO}
    assert one.filter(one.pod("y"))["n1"].endswith("gpu.example.com/n1 is currently being updated")


async def test_only_the_newest_generation_counts(one: Any) -> None:
    one.slice("old", name="s1")
    one.slice("new", name="s2", generation=2)
    one.claim("x", one.request(all_devices=True))
    assert await one.devices_given(one.pod("x")) == ["r=new"]


def test_at_most_32_devices_a_claim(one: Any) -> None:
    one.slice(*(f"d{n}" for n in range(40)))
    one.claim("x", one.request(count=33))
    assert one.filter(one.pod("x")) == {
        "n1": "!claim default/x: number of requested devices 33 exceeds the claim limit of 32"
    }


async def test_an_alternative_with_too_many_devices_gives_way(one: Any) -> None:
    one.slice(*(f"d{n}" for n in range(40)))
    one.claim(
        "x",
        one.first_available("g", one.sub("many", count=32), one.sub("few")),
        one.request("r"),
    )
    assert await one.devices_given(one.pod("x")) == ["g/few=d0", "r=d1"]


async def test_taints_and_tolerations(one: Any) -> None:
    hard = {"key": "broken", "effect": "NoSchedule"}
    one.slice(
        one.device("bad", taints=[hard]),
        one.device("noted", taints=[{"key": "broken", "effect": "None"}]),
    )
    one.claim("x")
    one.claim("y", one.request(tolerations=[{"key": "broken", "operator": "Exists"}]))
    assert await one.devices_given(one.pod("x")) == ["r=noted"]
    assert await one.devices_given(one.pod("y", name="other")) == ["r=bad"]
    results = one.claim_now("y").status.allocation.devices.results
    assert results[0].tolerations[0].key == "broken"


async def test_admin_access_shares_devices_in_use(one: Any) -> None:
    one.slice("a")
    one.claim("x")
    one.claim("admin", one.request(adminAccess=True))
    one.claim("y")
    assert await one.devices_given(one.pod("x")) == ["r=a"]
    assert await one.devices_given(one.pod("admin", name="root")) == ["r=a"]
    assert one.filter(one.pod("y", name="other")) == {"n1": NO}


async def test_claims_of_one_pod_do_not_share(one: Any) -> None:
    one.slice("a", "b")
    one.claim("x")
    one.claim("y")
    assert await one.devices_given(one.pod("x", "y")) == ["r=a", "r=b"]


def counters(**amounts: str) -> dict[str, Any]:
    return {"name": "memory", "counters": {k: {"value": v} for k, v in amounts.items()}}


def partition(name: str, memory: str) -> dict[str, Any]:
    used = {"counterSet": "memory", "counters": {"gb": {"value": memory}}}
    return {"name": name, "consumesCounters": [used]}


async def test_counters_limit_partitions(one: Any) -> None:
    one.slice(name="s1", count=2, sharedCounters=[counters(gb="40")])
    one.slice(
        partition("half-1", "20"),
        partition("full", "40"),
        partition("half-2", "20"),
        name="s2",
        count=2,
    )
    one.claim("x")
    assert await one.devices_given(one.pod("x")) == ["r=half-1"]
    one.claim("y")
    assert await one.devices_given(one.pod("y", name="other")) == ["r=half-2"]
    one.claim("z")
    assert one.filter(one.pod("z", name="third")) == {"n1": NO}


@pytest.mark.parametrize("version", ["1.36", "1.37", "1.38"])
def test_counters_of_a_refused_device_are_free_again(cluster: Any, version: str) -> None:
    """As since 1.36.3 (kubernetes/kubernetes#140663); before, b was refused."""
    one = cluster("n1", kubernetes_version=version)
    one.device_class()
    one.slice(name="s1", count=2, sharedCounters=[counters(gb="40")])
    tainted = partition("a", "40") | {"taints": [{"key": "k", "effect": "NoSchedule"}]}
    one.slice(tainted, partition("b", "40"), name="s2", count=2)
    one.claim("x")
    assert one.filter(one.pod("x")) == {}


def test_counters_that_nobody_declared_make_a_pool_invalid(one: Any) -> None:
    one.slice(partition("a", "1"))
    one.claim("x")
    assert one.filter(one.pod("x")) == {"n1": "invalid resource pools were encountered"}


def test_a_pool_that_one_node_sees_completely_is_valid_there(cluster: Any) -> None:
    two = cluster("n1", "n2")
    two.device_class()
    two.slice("a", pool="same", name="s1", node="n1")
    two.slice(partition("b", "1"), pool="same", name="s2", node="n2")
    two.claim("x")
    assert two.filter(two.pod("x")) == {"n2": "invalid resource pools were encountered"}


def test_partitions_need_their_gate(cluster: Any) -> None:
    old = cluster("n1", gates=["DRAPartitionableDevices=false"])
    old.device_class()
    old.slice(partition("a", "1"))
    old.claim("x")
    assert old.filter(old.pod("x")) == {"n1": NO}


def shared(one: Any, **policy: Any) -> dict[str, Any]:
    memory: dict[str, Any] = {"value": "40Gi"}
    if policy:
        memory["requestPolicy"] = policy
    device: dict[str, Any] = one.device("s", capacity={"memory": memory})
    return device | {"allowMultipleAllocations": True}


def asks_for(one: Any, memory: str) -> dict[str, Any]:
    share: dict[str, Any] = one.request(capacity={"requests": {"memory": memory}})
    return share


async def test_shares_of_a_device(one: Any) -> None:
    one.slice(shared(one, default="8Gi", validRange={"min": "4Gi", "step": "2Gi", "max": "40Gi"}))
    given = []
    for name, memory in (("a", "5Gi"), ("b", "1Gi"), ("c", "19Gi")):
        one.claim(name, asks_for(one, memory))
        assert await one.devices_given(one.pod(name, name=name)) == ["r=s"]
        result = one.claim_now(name).status.allocation.devices.results[0]
        assert result.share_id
        given.append(result.consumed_capacity["memory"])
    assert given == ["6Gi", "4Gi", "20Gi"]
    one.claim("fits", asks_for(one, "9Gi"))
    one.claim("not", asks_for(one, "11Gi"))
    one.claim("never", asks_for(one, "41Gi"))
    assert one.filter(one.pod("fits", name="p")) == {}
    assert one.filter(one.pod("not", name="p")) == {"n1": NO}
    assert one.filter(one.pod("never", name="p")) == {"n1": NO}


def test_one_claim_cannot_take_more_shares_than_there_are(one: Any) -> None:
    one.slice(shared(one))
    share = {"requests": {"memory": "15Gi"}}
    one.claim("two", one.request("a", capacity=share), one.request("b", capacity=share))
    one.claim("three", *(one.request(name, capacity=share) for name in "abc"))
    assert one.filter(one.pod("two")) == {}
    assert one.filter(one.pod("three")) == {"n1": NO}


def test_without_an_amount_a_share_is_everything(one: Any) -> None:
    one.slice(shared(one))
    one.claim("x", one.request("a"), one.request("b"))
    assert one.filter(one.pod("x")) == {"n1": NO}


def test_capacity_that_a_device_lacks(one: Any) -> None:
    one.slice("plain")
    one.claim("x", asks_for(one, "1Gi"))
    assert one.filter(one.pod("x")) == {"n1": NO}


async def test_devices_of_the_network(cluster: Any) -> None:
    labels = {"n1": {"rack": "a"}, "n2": {"rack": "b"}, "n3": {"rack": "a"}}
    net = cluster("n1", "n2", "n3", labels=labels)
    net.device_class()
    in_rack = {"key": "rack", "operator": "In", "values": ["a"]}
    net.slice(
        "shared-1",
        node="",
        pool="net",
        name="net",
        nodeSelector={"nodeSelectorTerms": [{"matchExpressions": [in_rack]}]},
    )
    net.slice("own", node="n1", driver="z.example.com")
    net.claim("x")
    assert net.filter(net.pod("x")) == {"n2": NO}
    assert await net.devices_given(net.pod("x"), "n3") == ["r=shared-1"]
    selector = net.claim_now("x").status.allocation.node_selector
    assert selector.node_selector_terms[0].match_expressions[0].key == "rack"
    # The device of the rack is gone, the one that n1 has of its own is not.
    net.claim("y")
    assert net.filter(net.pod("y", name="other")) == {"n2": NO, "n3": NO}
    assert await net.devices_given(net.pod("y", name="other"), "n1") == ["r=own"]


@pytest.mark.parametrize(("node", "first"), [("n1", "own"), ("n2", "shared")])
async def test_local_and_network_pools_are_ordered_by_name(
    cluster: Any, node: str, first: str
) -> None:
    net = cluster("n1", "n2")
    net.device_class()
    net.slice("own", node="n1", pool="a-before")
    net.slice("own", node="n2", pool="z-after")
    net.slice("shared", node="", pool="net", name="net", allNodes=True)
    net.claim("x")
    assert await net.devices_given(net.pod("x"), node) == [f"r={first}"]


def test_devices_with_a_node_selection_of_their_own(cluster: Any) -> None:
    net = cluster("n1", "n2")
    net.device_class()
    net.slice(
        net.device("here", nodeName="n1"),
        net.device("everywhere", allNodes=True),
        node="",
        pool="net",
        name="net",
        perDeviceNodeSelection=True,
    )
    net.claim("x", net.request(count=2))
    assert net.filter(net.pod("x")) == {"n2": NO}


def test_devices_for_all_nodes_leave_no_node_selector(cluster: Any) -> None:
    net = cluster("n1", "n2")
    net.device_class()
    net.slice("d", node="", pool="net", name="net", allNodes=True)
    net.claim("x")
    assert net.reserve(net.pod("x"), "n2") is None
    (flying,) = net.plugin.manager.allocated.in_flight.values()
    assert flying.allocation.node_selector is None


async def test_configuration_of_classes_and_claims(one: Any) -> None:
    def config(**parameters: str) -> dict[str, Any]:
        return {"opaque": {"driver": "gpu.example.com", "parameters": parameters}}

    one.device_class("tuned", config=[config(of="class")])
    one.slice("a", "b")
    one.claim(
        "x",
        one.request("r1", "tuned"),
        one.request("r2", "tuned"),
        config=[config(of="all"), config(of="both") | {"requests": ["r1", "r2"]}],
    )
    await one.devices_given(one.pod("x"))
    found = one.claim_now("x").status.allocation.devices.config
    assert [
        (c.source, c.requests, msgspec.json.decode(c.opaque.parameters)["of"]) for c in found
    ] == [
        ("FromClass", ("r1", "r2"), "class"),
        ("FromClaim", (), "all"),
        ("FromClaim", ("r1", "r2"), "both"),
        ("FromClaim", ("r1", "r2"), "both"),
    ]


@pytest.mark.parametrize("gates", [(), ("DRANodeAllocatableResources=true",)])
def test_the_search_ends_when_its_time_is_over(cluster: Any, gates: tuple[str, ...]) -> None:
    two = cluster("n1", "n2", gates=gates)
    two.device_class()
    for node, devices in (("n1", 30), ("n2", 29)):
        two.slice(*(two.device(f"d{n}", odd=n) for n in range(devices)), node=node)
    requests = (two.request(f"r{n}") for n in range(20))
    two.claim("x", *requests, two.request("last", cel="false"))
    clock = two.handle.clock
    now = clock.now

    def running() -> float:
        clock.advance(1.0)
        return float(now())

    clock.now = running
    # The error ends the attempt: the other node is not searched.
    assert two.filter(two.pod("x")) == {"n1": "!node n1: timed out trying to allocate devices"}


def test_where_filter_is_configured_out_nothing_is_scored(gpus: Any) -> None:
    gpus.claim("x", gpus.first_available("g", gpus.sub("first")))
    pod = gpus.pod("x")
    assert gpus.pre_filter(pod) is None
    assert gpus.scores(pod) == {"n1": 0, "n2": 0}
    assert gpus.filter(pod) == {}
    assert gpus.scores(pod) == {"n1": 100, "n2": 100}


@pytest.mark.parametrize("version", ["1.36", "1.37"])
def test_several_shares_of_a_device_are_given_back(cluster: Any, version: str) -> None:
    shared = cluster("n1", kubernetes_version=version)
    shared.device_class()
    shared.slice(shared.device("d", allowMultipleAllocations=True))
    shared.claim("x", shared.request("a"), shared.request("b"), shared.request("c", cel="false"))
    assert shared.filter(shared.pod("x")) == {"n1": NO}


def test_taint_rules(cluster: Any) -> None:
    ruled = cluster("n1", gates=["DRADeviceTaintRules=true"])
    ruled.device_class()
    ruled.slice("a")
    ruled.claim("x")
    assert ruled.filter(ruled.pod("x")) == {}
    rule = {"deviceSelector": {"device": "a"}, "taint": {"key": "k", "effect": "NoExecute"}}
    ruled.handle.add({"kind": "DeviceTaintRule", "metadata": {"name": "rule"}, "spec": rule})
    assert ruled.filter(ruled.pod("x")) == {"n1": NO}
    ruled.handle.remove("DeviceTaintRule", "rule")
    assert ruled.filter(ruled.pod("x")) == {}


def test_kinds_of_devices_that_are_gone_are_forgotten(cluster: Any) -> None:
    one = cluster("n1")
    one.device_class()
    one.slice("d", node="n1")
    one.claim("x")
    pools = one.plugin.manager.pools
    for number in range(6):
        devices = [one.device(f"d{n}", serial=1_000 * number + n) for n in range(128)]
        one.slice(*devices, node="", name="many", allNodes=True)
        assert one.filter(one.pod("x")) == {}
    assert len(pools.kinds) > 6 * 128
    one.plugin.manager.availability_index.age()
    assert len(pools.kinds) == 129
    assert one.filter(one.pod("x")) == {}
    one.handle.remove("ResourceSlice", "many")
    one.plugin.manager.availability_index.age()
    assert len(pools.kinds) == 129, "some are kept: the same devices come back"
    assert one.filter(one.pod("x")) == {}
