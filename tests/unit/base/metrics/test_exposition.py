import math

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from proreus.base.metrics import MetricsRegistry, expose
from proreus.base.metrics.exposition import bound_text

OPENMETRICS = "application/openmetrics-text; version=1.0.0"


@pytest.mark.parametrize(
    ("bound", "text"),
    [
        (0.0001, "0.0001"),
        (0.00001, "1e-05"),
        (1.5000000000000002e-05, "1.5000000000000002e-05"),
        (1e-08, "1e-08"),
        (0.0, "0"),
        (0.25, "0.25"),
        (1.0, "1"),
        (16.384, "16.384"),
        (64.0, "64"),
        (262144.0, "262144"),
        (100000.0, "100000"),
        (1000000.0, "1e+06"),
        (2592000.0, "2.592e+06"),
        (124416000.0, "1.24416e+08"),
        (1e22, "1e+22"),
        (-2.5, "-2.5"),
        (math.inf, "+Inf"),
    ],
)
def test_bounds_are_spelled_as_go_spells_them(bound, text):
    assert bound_text(bound) == text


def test_openmetrics_wants_a_decimal_point():
    assert bound_text(1.0, openmetrics=True) == "1.0"
    assert bound_text(0.5, openmetrics=True) == "0.5"


@pytest.fixture
def registry():
    made = MetricsRegistry()
    made.counter("c_total", "STABLE", "Counted.", "b", "a").labels("2", "1").inc(3)
    made.counter("attempts", "ALPHA", "Named without a suffix.").labels().inc()
    made.gauge("g_total", "ALPHA", "A gauge in spite of its name.").labels().set(4)
    made.histogram("h_seconds", "BETA", "Sized.", (0.5, 1.0)).labels().observe(0.7)
    made.counter("unused_total", "ALPHA", "Nobody touched it.", "x")
    return made


def test_the_text_format(registry):
    body, content_type = expose(registry)
    assert content_type == "text/plain; version=0.0.4; charset=utf-8"
    assert body.decode() == (
        "# HELP attempts [ALPHA] Named without a suffix.\n"
        "# TYPE attempts counter\n"
        "attempts 1.0\n"
        "# HELP c_total [STABLE] Counted.\n"
        "# TYPE c_total counter\n"
        'c_total{a="1",b="2"} 3.0\n'
        "# HELP g_total [ALPHA] A gauge in spite of its name.\n"
        "# TYPE g_total gauge\n"
        "g_total 4.0\n"
        "# HELP h_seconds [BETA] Sized.\n"
        "# TYPE h_seconds histogram\n"
        'h_seconds_bucket{le="0.5"} 0.0\n'
        'h_seconds_bucket{le="1"} 1.0\n'
        'h_seconds_bucket{le="+Inf"} 1.0\n'
        "h_seconds_sum 0.7\n"
        "h_seconds_count 1.0\n"
    )


def test_both_formats_say_the_same(registry):
    text, _ = expose(registry)
    openmetrics, content_type = expose(registry, OPENMETRICS)
    assert content_type.startswith("application/openmetrics-text; version=1.0.0")

    def values(families):
        return {
            (
                sample.name.removesuffix("_total"),
                tuple(
                    (key, float(value) if key == "le" else value)
                    for key, value in sorted(sample.labels.items())
                ),
            ): sample.value
            for family in families
            for sample in family.samples
        }

    assert values(parse_openmetrics(openmetrics.decode())) == values(parse_text(text.decode()))


def test_label_values_are_escaped():
    registry = MetricsRegistry()
    registry.counter("c_total", "ALPHA", "Text.", "a").labels('q"\\\n').inc()
    body, _ = expose(registry)
    (family,) = parse_text(body.decode())
    assert family.samples[0].labels == {"a": 'q"\\\n'}
