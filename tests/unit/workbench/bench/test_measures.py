"""Figures: percentiles, histograms between two scrapes, medians and ratios."""

import pytest

from proreus.workbench.bench.measures import Pass, Period, histogram_between, percentile
from proreus.workbench.bench.report import failure_lines, medians, ratios


def scrape(*, fast: int, slow: int) -> str:
    """Return a histogram with these numbers of observations of 1 ms and of 3 ms."""
    return (
        "# TYPE wait_seconds histogram\n"
        f'wait_seconds_bucket{{le="0.001"}} {fast}\n'
        f'wait_seconds_bucket{{le="0.002"}} {fast}\n'
        f'wait_seconds_bucket{{le="0.004"}} {fast + slow}\n'
        f'wait_seconds_bucket{{le="+Inf"}} {fast + slow}\n'
        f"wait_seconds_count {fast + slow}\n"
        f"wait_seconds_sum {0.001 * fast + 0.003 * slow}\n"
    )


def test_a_histogram_between_two_scrapes() -> None:
    before, after = scrape(fast=1000, slow=0), scrape(fast=1050, slow=50)
    mean, p99 = histogram_between("wait_seconds", before, after)
    assert mean == pytest.approx(0.002)
    # 99 of 100: 49 of the 50 between 2 and 4 ms
    assert p99 == pytest.approx(0.002 + 0.002 * 49 / 50)


def test_nothing_observed_has_no_mean() -> None:
    assert histogram_between("wait_seconds", scrape(fast=5, slow=0), scrape(fast=5, slow=0)) == (
        None,
        None,
    )
    assert histogram_between("wait_seconds", "", "") == (None, None)


@pytest.mark.parametrize(("part", "value"), [(0.5, 50), (0.9, 90), (0.99, 99), (1.0, 100)])
def test_percentiles(part: float, value: float) -> None:
    assert percentile(range(100, 0, -1), part) == value


def test_the_percentile_of_nothing() -> None:
    assert percentile([], 0.99) == 0.0


def one(scheduler: str, number: int, rate: float, failure: str = "") -> Pass:
    period = Period(
        name="p",
        pods=100,
        seconds=100 / rate,
        pods_per_second=rate,
        each_second=[100],
        latency_p50=0.1,
        latency_p90=0.2,
        latency_p99=0.3,
        algorithm_mean_ms=None if scheduler == "bare" else 1.0,
        algorithm_p99_ms=None,
        cpu_seconds={"scheduler": 0.5},
    )
    return Pass(scheduler, number, [period], {"scheduler": 2**20}, failure=failure)


def test_ratios_are_of_medians_without_failed_passes() -> None:
    passes = [
        *(one("kube-scheduler", number, rate) for number, rate in enumerate((100, 300, 200))),
        *(one("proreus", number, rate) for number, rate in enumerate((900, 1000, 700))),
        one("proreus", 3, 1.0, failure="stuck"),
        one("bare", 0, 2000),
    ]
    middle = medians(passes)
    assert middle["kube-scheduler"]["pods_per_second"] == 200
    assert middle["proreus"]["pods_per_second"] == 900
    assert middle["proreus"]["scheduler_cpu_ms_a_pod"] == 5.0
    assert middle["bare"]["algorithm_mean_ms"] is None
    share = ratios(middle)
    assert share["pods_per_second"] == 4.5
    assert share["algorithm_p99_ms"] is None
    assert failure_lines(passes) == ["round 4, proreus: stuck"]


def test_one_scheduler_has_no_ratio() -> None:
    assert ratios(medians([one("proreus", 0, 900), one("bare", 0, 2000)])) == {}
