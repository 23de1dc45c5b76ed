"""Effective requests, by kube-scheduler's worked examples."""

from __future__ import annotations

import random
from time import thread_time
from typing import Any

import pytest

from proreus.framework.pod_info import PodInfo
from proreus.objects.codec import decoder_for
from proreus.objects.pod import Pod
from proreus.objects.requests import PodResourcesOptions, non_zero_requests

MI, GI = 2**20, 2**30


def container(name: str = "", policy: str | None = None, **requests: str) -> dict[str, Any]:
    return {"name": name, "restartPolicy": policy, "resources": {"requests": requests}}


def pod(*containers: dict[str, Any], status: Any = None, **spec: Any) -> PodInfo:
    raw = {"spec": {"containers": containers, **spec}, "status": status or {}}
    return PodInfo(decoder_for(Pod).convert(raw))


INIT_AND_SIDECAR = pod(
    container("A", cpu="500m", memory="1Gi"),
    container("B", cpu="250m"),
    initContainers=[
        container("I1", cpu="1", memory="512Mi"),
        container("S1", "Always", cpu="200m", memory="256Mi"),
        container("I2", cpu="900m", memory="2Gi"),
    ],
    overhead={"cpu": "100m", "memory": "64Mi"},
)
POD_LEVEL = {"requests": {"cpu": "2"}}


@pytest.mark.parametrize(
    ("info", "amounts", "scoring", "nonzero"),
    [
        (
            INIT_AND_SIDECAR,
            {"cpu": 1200, "memory": 2368 * MI},
            {"cpu": 1200, "memory": 2368 * MI},
            (1200, 2368 * MI),
        ),
        (
            pod(container(), container(), initContainers=[container()]),
            {},
            {"cpu": 200, "memory": 400 * MI},
            (200, 400 * MI),
        ),
        (pod(container(cpu="0")), {"cpu": 0}, {"cpu": 0, "memory": 200 * MI}, (0, 200 * MI)),
        (
            pod(container(cpu="500m"), resources=POD_LEVEL),
            {"cpu": 2000},
            {"cpu": 500, "memory": 200 * MI},
            (2000, 200 * MI),
        ),
        (
            pod(container(cpu="0.0005"), container(cpu="0.0005")),
            {"cpu": 1},
            {"cpu": 1, "memory": 400 * MI},
            (1, 400 * MI),
        ),
    ],
)
def test_the_three_forms_of_requests(
    info: PodInfo,
    amounts: dict[str, int],
    scoring: dict[str, int],
    nonzero: tuple[int, int],
) -> None:
    assert info.requests.amounts == amounts
    assert info.requests.scoring == scoring
    assert info.requests.nonzero == nonzero


def test_overhead_comes_on_top_of_pod_level_requests() -> None:
    info = pod(container(cpu="1"), resources=POD_LEVEL, overhead={"cpu": "250m"})

    assert info.requests.amounts == {"cpu": 2250}


def test_pod_level_requests_replace_only_what_can_be_asked_that_way() -> None:
    level = {"requests": {"memory": "1Gi", "hugepages-2Mi": "4Mi", "example.com/gpu": "9"}}
    info = pod(container(cpu="1", memory="2Gi", **{"example.com/gpu": "1"}), resources=level)

    assert info.requests.amounts == {
        "cpu": 1000,
        "memory": GI,
        "hugepages-2Mi": 4 * MI,
        "example.com/gpu": 1,
    }


def test_without_the_gate_pod_level_requests_do_not_count() -> None:
    raw = {"containers": [container(cpu="1")], "resources": POD_LEVEL}
    info = PodInfo(decoder_for(Pod).convert({"spec": raw}), PodResourcesOptions(pod_level=False))

    assert info.requests.amounts == {"cpu": 1000}
    assert info.requests.nonzero == (1000, 200 * MI)


def test_the_peak_is_that_of_the_sum_of_all_containers_that_run_at_once() -> None:
    rng = random.Random(0)
    for _ in range(200):
        init = [
            container(
                f"i{number}",
                rng.choice([None, "Always"]),
                **{name: str(rng.randrange(5)) for name in rng.sample(["cpu", "memory"], 1)},
            )
            for number in range(rng.randrange(6))
        ]
        found = pod(container("A", cpu="2", memory="2"), initContainers=init).requests.amounts
        for name, scale in (("cpu", 1000), ("memory", 1)):
            amounts = [int(one["resources"]["requests"].get(name, 0)) for one in init]
            sidecars = [one["restartPolicy"] == "Always" for one in init]
            running = [
                sum(a for a, s in zip(amounts[:i], sidecars, strict=False) if s)
                for i in range(len(init) + 1)
            ]
            peaks = [before + own for before, own in zip(running, amounts, strict=False)]
            assert found[name] == scale * max([*peaks, running[-1] + 2])


def test_thousands_of_sidecars_with_a_resource_each_are_added_up_one_by_one() -> None:
    number = 5_000
    init = [container(f"i{n}", "Always", **{f"example.com/{n}": "1"}) for n in range(number)]
    started = thread_time()

    amounts = pod(container("A"), initContainers=init).requests.amounts

    assert [amounts[f"example.com/{n}"] for n in range(number)] == [1] * number
    # 0.1 s; in the square of the number it was 5 s.
    assert thread_time() - started < 2


def test_sidecars_that_come_later_do_not_burden_earlier_init_containers() -> None:
    info = pod(
        container(cpu="100m"),
        initContainers=[container(cpu="1"), container(policy="Always", cpu="500m")],
    )

    assert info.requests.amounts == {"cpu": 1000}


def test_untracked_resources_are_ignored() -> None:
    info = pod(container(cpu="1", storage="1Gi", foo="7", **{"requests.x/y": "1"}))

    assert info.requests.amounts == {"cpu": 1000}


def test_an_infeasible_resize_counts_nothing_of_a_container_without_status() -> None:
    condition = {"type": "PodResizePending", "status": "True", "reason": "Infeasible"}
    raw = {
        "spec": {"containers": [container(cpu="2", memory="1Gi")]},
        "status": {"conditions": [condition]},
    }
    made = decoder_for(Pod).convert(raw)
    since = PodInfo(made, PodResourcesOptions(resized_by_sum=True)).accounted_requests
    assert since.amounts == {}
    assert since.nonzero == (100, 200 * MI)
    before = PodInfo(made, PodResourcesOptions()).accounted_requests
    assert before.amounts == {"cpu": 2000, "memory": 1024 * MI}


@pytest.mark.parametrize("by_sum", [False, True])
def test_the_status_of_the_whole_pod_counts_with_its_gate(by_sum: bool) -> None:
    raw = {
        "spec": {
            "containers": [container(cpu="500m")],
            "resources": {"requests": {"cpu": "1"}},
        },
        "status": {
            "resources": {"requests": {"cpu": "3"}},
            "allocatedResources": {"cpu": "2"},
        },
    }
    made = decoder_for(Pod).convert(raw)

    def amounts(gate: bool) -> Any:
        options = PodResourcesOptions(resized_by_sum=by_sum, pod_level_resize=gate)
        return PodInfo(made, options).resized.amounts

    assert amounts(True) == {"cpu": 3000}
    assert amounts(False) == {"cpu": 1000}


def resized(asked: str, actual: str, allocated: str | None = None, reason: str = "") -> PodInfo:
    status: dict[str, Any] = {
        "containerStatuses": [
            {
                "name": "c",
                "resources": {"requests": {"cpu": actual}},
                "allocatedResources": {"cpu": allocated} if allocated else {},
            }
        ]
    }
    if reason:
        status["conditions"] = [{"type": "PodResizePending", "status": "True", "reason": reason}]
    return pod(container("c", cpu=asked), status=status)


@pytest.mark.parametrize(
    ("info", "accounted_requests"),
    [
        (resized("2", "1"), 2000),
        (resized("1", "2"), 2000),
        (resized("1", "1", "3"), 3000),
        (resized("4", "1", reason="Infeasible"), 1000),
        (resized("4", "1", "2", reason="Infeasible"), 2000),
        (resized("4", "1", reason="Deferred"), 4000),
    ],
)
def test_while_it_is_resized_a_pod_counts_with_the_larger(
    info: PodInfo, accounted_requests: int
) -> None:
    assert info.accounted_requests.amounts == {"cpu": accounted_requests}


def test_allocations_of_init_containers_count_for_sidecars_only() -> None:
    statuses = [
        {"name": name, "resources": {"requests": {"cpu": "3"}}} for name in ("init", "side")
    ]
    init, side = container("init", cpu="1"), container("side", "Always", cpu="1")

    ordinary = pod(container(cpu="1"), initContainers=[init])
    sidecar = pod(
        container(cpu="1"), initContainers=[side], status={"initContainerStatuses": statuses}
    )

    assert ordinary.accounted_requests.amounts == {"cpu": 1000}
    assert sidecar.accounted_requests.amounts == {"cpu": 4000}
    assert sidecar.requests.amounts == {"cpu": 2000}


SINCE_1_37 = PodResourcesOptions(resized_by_sum=True)


def since_1_37(info: PodInfo) -> PodInfo:
    return PodInfo(info.pod, SINCE_1_37)


@pytest.mark.parametrize(
    ("info", "accounted_requests"),
    [
        (resized("2", "1"), 2000),
        (resized("1", "2"), 2000),
        (resized("1", "1", "3"), 3000),
        (resized("4", "1", reason="Infeasible"), 1000),
        (resized("4", "1", "2", reason="Infeasible"), 2000),
        (resized("4", "1", reason="Deferred"), 4000),
    ],
)
def test_since_1_37_one_container_counts_as_before(info: PodInfo, accounted_requests: int) -> None:
    assert since_1_37(info).accounted_requests.amounts == {"cpu": accounted_requests}


def test_since_1_37_the_larger_sum_counts_for_containers_resized_both_ways() -> None:
    # One goes from 1 to 500m, the other from 1 to 1500m; neither has been done yet.
    statuses = [{"name": name, "resources": {"requests": {"cpu": "1"}}} for name in ("c1", "c2")]
    info = pod(
        container("c1", cpu="500m"),
        container("c2", cpu="1500m"),
        status={"containerStatuses": statuses},
    )
    assert info.accounted_requests.amounts == {"cpu": 2500}
    assert since_1_37(info).accounted_requests.amounts == {"cpu": 2000}


def test_since_1_37_init_containers_and_allocations_alone_count() -> None:
    init = [{"name": "init", "resources": {"requests": {"cpu": "3"}}}]
    allocated = [{"name": "c", "allocatedResources": {"cpu": "2"}}]
    info = pod(
        container("c", cpu="1"),
        initContainers=[container("init", cpu="1")],
        status={"initContainerStatuses": init, "containerStatuses": allocated},
    )
    assert info.accounted_requests.amounts == {"cpu": 1000}
    assert since_1_37(info).accounted_requests.amounts == {"cpu": 3000}


def test_since_1_37_a_status_without_requests_says_nothing() -> None:
    limits = {"limits": {"cpu": "1"}}
    status = {"name": "c", "resources": limits, "allocatedResources": {"cpu": "10m"}}
    info = pod(container("c", cpu="10m"), status={"containerStatuses": [status]})
    # With a sum for what is actuated, the 100m for a container without requests would count.
    assert non_zero_requests(info.pod, SINCE_1_37, use_status=True)[0] == 10


def test_since_1_37_the_status_of_the_pod_may_name_more_than_its_spec() -> None:
    status = {
        "resources": {"requests": {"cpu": "2", "memory": "3Gi"}},
        "allocatedResources": {"cpu": "2", "memory": "1Gi"},
    }
    info = pod(container(cpu="1"), resources={"requests": {"cpu": "1"}}, status=status)
    assert info.accounted_requests.amounts["cpu"] == 2000
    assert since_1_37(info).accounted_requests.amounts == {"cpu": 2000, "memory": 3 * 2**30}


def test_pods_that_are_not_resized_hold_what_they_ask_for() -> None:
    info = pod(container(cpu="1"))

    assert info.accounted_requests is info.requests


def test_replicas_share_their_requests() -> None:
    assert pod(container(cpu="1")).requests is pod(container(cpu="1")).requests
    assert pod(container(cpu="1")).requests is not pod(container(cpu="2")).requests
    with_init = pod(container(cpu="1"), initContainers=[container(cpu="5")])
    assert with_init.requests.amounts == {"cpu": 5000}
    assert pod(container(cpu="1"), overhead={"cpu": "1"}).requests.amounts == {"cpu": 2000}
    level = pod(container(cpu="1"), resources=POD_LEVEL)
    assert level.requests.amounts == {"cpu": 2000}


def test_different_requests_have_different_keys() -> None:
    assert pod(container(cpu="1")).requests.key == pod(container(cpu="1000m")).requests.key
    # nothing named and zero named count differently when nodes are scored
    assert pod(container()).requests.key != pod(container(cpu="0")).requests.key


def test_thousands_of_resources_are_counted_as_few_are() -> None:
    names = [f"example.com/r{number}" for number in range(3_000)]
    amounts = {"cpu": "1500m", "pods": "1", **dict.fromkeys(names, "2"), "example.com/most": "9e18"}
    found = pod({"name": "c", "resources": {"requests": amounts}}).requests.amounts
    assert found == {"cpu": 1500, **dict.fromkeys(names, 2), "example.com/most": 9 * 10**18}
