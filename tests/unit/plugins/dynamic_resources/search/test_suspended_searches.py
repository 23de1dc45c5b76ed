"""A long search for devices is cut into parts, with the result of a search in one piece."""

from __future__ import annotations

import random
from itertools import count
from time import thread_time
from typing import Any

import pytest

from proreus.framework.attempt_budget import AttemptBudget
from proreus.plugins.dynamic_resources import dra_manager
from proreus.plugins.dynamic_resources.search import allocator
from proreus.plugins.dynamic_resources.search.allocator import Solution
from proreus.plugins.dynamic_resources.search.search_time import SearchSuspended, SearchTime

CHECKS_A_SLICE = 20


@pytest.fixture
def one(cluster: Any) -> Any:
    """One node, and a class of devices."""
    made = cluster("n1")
    made.device_class()
    return made


def hard_problem(net: Any, rng: random.Random) -> None:
    """Create devices and a claim that takes hundreds of steps, with or without a solution."""
    net.slice(*(net.device(f"d{n}", odd=n % 2, third=n % 3) for n in range(rng.randint(5, 8))))
    requests = []
    for number in range(rng.randint(3, 5)):
        name = f"r{number}"
        which = f'device.attributes["{net.driver}"].odd == {rng.randint(0, 1)}'
        kind = rng.random()
        if kind < 0.4:
            requests.append(net.request(name, count=rng.randint(1, 2)))
        elif kind < 0.6:
            requests.append(net.request(name, cel=which))
        else:
            many = net.sub("many", count=rng.randint(2, 4))
            requests.append(net.first_available(name, many, net.sub("few", cel=which)))
    constraints = [
        {"requests": rng.sample([r["name"] for r in requests], 2), "matchAttribute": attribute}
        for attribute in rng.sample([f"{net.driver}/odd", f"{net.driver}/third"], 2)
    ]
    net.claim("x", *requests, constraints=constraints)


def found(net: Any) -> list[Any]:
    """Return the results of all searches, in plain values."""
    results = []
    for cache in net.state.read(net.plugin.name).claims_by_resources.values():
        for result in cache.allocation_cache.results.values():
            if isinstance(result, Solution):
                devices = [[(d.pool, d.device) for d in c] for c in result.device_assignments]
                results.append((devices, result.choices, result.score))
            else:
                results.append(repr(result))
    return results


def search_in_parts(net: Any) -> tuple[dict[str, str], int]:
    """Return the reasons of Filter, and how many attempts were suspended before."""
    pod = net.pod("x")
    for suspended in range(2000):
        assert net.pre_filter(pod) is None
        ticks = count()
        # two readings of the clock a check
        budget = AttemptBudget(1e9, lambda ticks=ticks: next(ticks) * 0.052 / CHECKS_A_SLICE / 2)
        net.state.budget = budget
        budget.resume()
        try:
            return net.filter_again(pod), suspended
        except SearchSuspended:
            continue
    raise AssertionError("the search makes no progress")


def test_the_result_is_that_of_one_search(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allocator, "_STEPS_PER_DEADLINE_CHECK", 1)
    suspensions, solved = 0, 0
    for seed in range(150):
        version = ("1.36", "1.37")[seed % 2]
        whole, parts = (cluster("n1", kubernetes_version=version) for _ in range(2))
        for net in (whole, parts):
            net.driver = "gpu.example.com"
            net.device_class()
            hard_problem(net, random.Random(seed))
        reasons = whole.filter(whole.pod("x"))
        in_parts, suspended = search_in_parts(parts)
        assert in_parts == reasons, seed
        assert found(parts) == found(whole), seed
        suspensions += suspended
        solved += not reasons
    assert suspensions > 100
    assert 20 < solved < 130


def test_no_part_is_long_however_long_the_search(one: Any) -> None:
    # devices that can be shared are not counted before the search
    one.slice(*(one.device(f"d{n}", allowMultipleAllocations=True, id=n) for n in range(24)))
    one.claim(
        "x",
        *(one.request(f"r{n}") for n in range(12)),
        constraints=[{"distinctAttribute": "gpu.example.com/id"}],
    )
    one.claim("y", one.request("last", cel="false"))
    pod, longest, places = one.pod("x", "y"), 0.0, []
    for _ in range(3):
        assert one.pre_filter(pod) is None
        one.state.budget = AttemptBudget(10.0)
        one.state.budget.resume()
        began = thread_time()
        with pytest.raises(SearchSuspended):
            one.filter_again(pod)
        longest = max(longest, thread_time() - began)
        [cache] = one.state.read(one.plugin.name).claims_by_resources.values()
        [checkpoint] = cache.allocation_cache.checkpoints.values()
        places.append(checkpoint.devices)
    # a tenth of a second is allowed; of CPU, since the machine may do other things
    assert longest < 1.0
    assert places == sorted(places)
    assert len(set(places)) == 3
    assert checkpoint.slices == 3


def test_a_change_of_the_devices_starts_anew(one: Any) -> None:
    one.slice(*(one.device(f"d{n}", allowMultipleAllocations=True, id=n) for n in range(24)))
    one.claim("x", *(one.request(f"r{n}") for n in range(6)))
    one.claim("y", one.request("last", cel="false"))
    pod = one.pod("x", "y")
    assert one.pre_filter(pod) is None
    one.state.budget = AttemptBudget(10.0)
    one.state.budget.resume()
    with pytest.raises(SearchSuspended):
        one.filter_again(pod)
    one.handle.remove("ResourceSlice", "n1")
    one.slice("d0")
    assert one.filter(pod) == {"n1": "cannot allocate all claims"}


def test_many_quick_searches_are_not_suspended() -> None:
    now = [0.0]
    budget = AttemptBudget(1.0, lambda: now[0])
    budget.resume()
    time = SearchTime(budget, "DynamicResources", lambda: 0.0, None)
    for _ in range(400):
        time.begin(0)
        now[0] += 0.0019
        assert not time.exceeded()
        time.end()
    # long ones add up
    for spent in (0.03, 0.02):
        time.begin(0)
        now[0] += spent
        assert not time.exceeded()
        time.end()
    time.begin(0)
    now[0] += 0.01
    with pytest.raises(SearchSuspended):
        time.exceeded()
    assert not budget.exceeded


def test_expressions_of_a_class_are_compiled_before_a_search(
    cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first one of the process loads cel-cpp, which takes longer than a search may."""
    compiled: list[str] = []
    monkeypatch.setattr(dra_manager, "compile_selector", compiled.append)
    cluster("n1").device_class("gpu", "device.driver == 'a'")
    assert "device.driver == 'a'" in compiled


def test_the_pod_waits_longer_once_its_parts_took_the_whole_budget() -> None:
    now = [0.0]
    budget = AttemptBudget(1.0, lambda: now[0])
    budget.resume()
    time = SearchTime(budget, "DynamicResources", lambda: 0.0, None)
    time.begin(19)
    now[0] += 0.06
    with pytest.raises(SearchSuspended, match="has taken 1s so far"):
        time.exceeded()
    assert budget.exceeded
