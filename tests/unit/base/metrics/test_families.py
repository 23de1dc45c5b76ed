import pytest

from proreus.base.metrics import MetricsRegistry
from proreus.base.metrics.families import exponential, quantile


def test_an_observation_equal_to_a_bound_belongs_to_that_bucket():
    family = MetricsRegistry().histogram("h", "ALPHA", "Text.", (1.0, 2.0))
    child = family.labels()
    for value in (0.5, 1.0, 1.5, 2.0, 2.5):
        child.observe(value)
    assert child.counts == [2, 2, 1]
    assert child.count == 5
    assert child.sum == 7.5


def test_the_same_label_values_give_the_same_child():
    family = MetricsRegistry().counter("c_total", "ALPHA", "Text.", "a", "b")
    assert family.labels("1", "2") is family.labels("1", "2")
    assert family.labels("1", "2") is not family.labels("2", "1")


def test_a_wrong_number_of_labels_is_refused_with_the_metric_named():
    family = MetricsRegistry().counter("c_total", "ALPHA", "Text.", "a", "b")
    with pytest.raises(ValueError, match="c_total has the labels"):
        family.labels("1")


def test_a_name_is_described_once():
    registry = MetricsRegistry()
    registry.counter("c_total", "ALPHA", "Text.")
    with pytest.raises(ValueError, match="described twice"):
        registry.gauge("c_total", "ALPHA", "Text.")


def test_equal_descriptions_are_the_same_family():
    registry = MetricsRegistry()
    counters = [registry.counter("c_total", "ALPHA", "Text.", "a") for _ in range(2)]
    assert counters[0] is counters[1]


def test_reset_keeps_cached_children_alive_and_gauges_as_they_are():
    registry = MetricsRegistry()
    counter = registry.counter("c_total", "ALPHA", "Text.", "a")
    child = counter.labels("x")
    gauge = registry.gauge("g", "ALPHA", "Text.").labels()
    histogram = registry.histogram("h", "ALPHA", "Text.", (1.0,)).labels()
    child.inc()
    gauge.set(3)
    histogram.observe(0.5)
    registry.reset()
    child.inc(2)
    assert list(counter.values()) == [(("x",), 2.0)]
    assert gauge.value == 3
    assert (histogram.counts, histogram.sum) == ([0, 0], 0.0)


def test_a_computed_gauge_asks_at_each_scrape():
    family = MetricsRegistry().gauge("g", "ALPHA", "Text.", "queue")
    size = 1
    family.set_function(lambda: {("b",): size + 1, ("a",): size})
    assert list(family.values()) == [(("a",), 1), (("b",), 2)]
    size = 5
    assert list(family.values()) == [(("a",), 5), (("b",), 6)]


def test_a_histogram_cannot_be_computed():
    family = MetricsRegistry().histogram("h", "ALPHA", "Text.", (1.0,))
    with pytest.raises(ValueError, match="cannot be computed"):
        family.set_function(lambda: {(): 1.0})


def test_a_label_value_that_is_not_allowed_becomes_unexpected_and_is_counted():
    registry = MetricsRegistry(allow_labels={"c_total,user": ["admin"]})
    family = registry.counter("c_total", "ALPHA", "Text.", "user")
    family.labels("admin").inc()
    family.labels("eve").inc()
    family.labels("mallory").inc()
    assert dict(family.values()) == {("admin",): 1.0, ("unexpected",): 2.0}
    assert registry.unexpected_categorizations.value == 2


def test_a_disabled_metric_is_counted_but_not_listed():
    registry = MetricsRegistry(disabled=["c_total"])
    registry.counter("c_total", "ALPHA", "Text.").labels().inc()
    registry.gauge("g", "ALPHA", "Text.")
    assert [family.description.name for family in registry.families()] == ["g"]


def test_a_removed_series_is_gone():
    family = MetricsRegistry().gauge("g", "ALPHA", "Text.", "plugin")
    family.labels("a").set(1)
    family.remove("a")
    family.remove("never there")
    assert list(family.values()) == []


def test_bounds_are_multiplied_one_by_one():
    # a power would give 1e-05 here, and dashboards would see two series
    assert exponential(1e-8, 10, 4)[3] == 9.999999999999999e-06
    assert exponential(0.001, 2, 3) == (0.001, 0.002, 0.004)


@pytest.mark.parametrize(
    ("share", "counts", "value"),
    [
        (0.5, (0, 0, 0), None),
        (0.5, (10, 0, 0), 0.5),
        (0.5, (0, 10, 0), 1.5),
        (0.99, (50, 50, 0), 1.98),
        (0.99, (0, 0, 7), 2.0),
        (1.0, (1, 0, 0), 1.0),
    ],
)
def test_quantiles_are_interpolated(share, counts, value):
    assert quantile(share, (1.0, 2.0), counts) == pytest.approx(value)
