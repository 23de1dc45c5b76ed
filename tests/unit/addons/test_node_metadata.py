from __future__ import annotations

from datetime import UTC, datetime

import pytest

from proreus.addons.node_metadata import NodeMetadata
from proreus.addons.node_metadata.timestamps import python_format, seconds_of
from proreus.framework import ConfigError
from proreus.testing import Harness, make_node, make_pod

NAME, KEY = "NodeMetadata", "example.com/value"


def scores(values: dict[str, str | None], source: str = "Label", **args: str) -> dict[str, int]:
    nodes = []
    for name, value in values.items():
        node = make_node(name, labels={KEY: value} if value and source == "Label" else {})
        if value is not None and source == "Annotation":
            node.metadata.annotations[KEY] = value
        nodes.append(node)
    given = {"metadataKey": KEY, "metadataSource": source, **args}
    outcome = Harness([NodeMetadata], nodes, args={NAME: given}).schedule(make_pod("p"))
    return {name: outcome.score(name, NAME) for name in values}


def test_the_lowest_number_is_the_best_and_a_node_without_one_the_worst() -> None:
    values = {"a": "0.5", "b": "1", "c": "2.5", "none": None, "text": "cheap", "nan": "nan"}
    expected = {"a": 100, "b": 75, "c": 1, "none": 0, "text": 0, "nan": 0}
    assert scores(values, "Annotation", scoringStrategy="Lowest") == expected
    assert scores(values, scoringStrategy="Lowest") == expected


def test_the_highest_number_is_the_best_and_a_default_counts_for_nodes_without_one() -> None:
    values = {"a": "10", "b": "20", "none": None}
    assert scores(values, defaultValue="15") == {"a": 1, "b": 100, "none": 50}


def test_equal_values_are_all_the_best() -> None:
    assert scores({"a": "7", "b": "7.0", "none": None}) == {"a": 100, "b": 100, "none": 0}
    assert scores({"a": None, "b": None}) == {"a": 0, "b": 0}


def test_numbers_beyond_all_bounds() -> None:
    for most in ("1e300", "1e308"):
        assert scores({"a": most, "b": "-" + most, "c": "0"}) == {"a": 100, "b": 1, "c": 50}


@pytest.mark.parametrize(("strategy", "expected"), [("Newest", [1, 100]), ("Oldest", [100, 1])])
def test_times(strategy: str, expected: list[int]) -> None:
    values = {"a": "2025-01-01T00:00:00Z", "b": "2026-01-01T00:00:00+01:00", "bad": "2026-01-01"}
    args = {"metadataType": "Timestamp", "scoringStrategy": strategy}
    assert list(scores(values, "Annotation", **args).values()) == [*expected, 0]


@pytest.mark.parametrize(
    ("text", "layout"),
    [
        ("2026-02-03", "2006-01-02"),
        ("20260203", "%Y%m%d"),
        ("03 Feb 26 00:00 +0000", "02 Jan 06 15:04 -0700"),
        ("2026-02-03T00:00:00Z", ""),
        ("2026-2-3 0:00", "2006-1-2 15:04"),
        ("03.02.2026 00:00:00,000", "02.01.2006 15:04:05,000"),
        ("2026-02-03T00:00:00.000000000Z", "2006-01-02T15:04:05Z0700"),
        ("Tue Feb  3 12:00:00 am 2026", "Mon Jan _2 3:04:05 pm 2006"),
    ],
)
def test_layouts_of_go_and_formats_of_python(text: str, layout: str) -> None:
    assert seconds_of(text, layout) == datetime(2026, 2, 3, tzinfo=UTC).timestamp()
    assert python_format("Monday, 02-Jan-06 15:04:05 MST") == "%A, %d-%b-%y %H:%M:%S %Z"


def test_fractions_of_seconds_count() -> None:
    layout = "2006-01-02 15:04:05"
    found = seconds_of("2026-02-03 00:00:00.250", layout) - seconds_of(
        "2026-02-03 00:00:00", layout
    )
    assert found == 0.25
    with pytest.raises(ValueError, match="does not match"):
        seconds_of("2026-02-03 00:00.250", layout)
    values = {"a": "2026-01-01T00:00:00.123456789Z", "b": "2026-01-01T00:00:00Z"}
    args = {"metadataType": "Timestamp", "scoringStrategy": "Newest"}
    for name in ("RFC3339Nano", "2006-01-02T15:04:05.999999999Z07:00"):
        assert scores(values, "Annotation", **args, timestampFormat=name) == {"a": 100, "b": 1}


@pytest.mark.parametrize("text", ["1_000", " 5", "\u0665", "infinity", "0b1"])
def test_numbers_that_not_everybody_reads_are_not_valid(text: str) -> None:
    assert scores({"a": text, "b": "1", "c": "2"}, "Annotation") == {"a": 0, "b": 1, "c": 100}


@pytest.mark.parametrize(
    "args",
    [
        {"metadataKey": ""},
        {"scoringStrategy": "Newest"},
        {"metadataType": "Timestamp"},
        {"timestampFormat": "when"},
    ],
)
def test_arguments_that_make_no_sense_are_refused(args: dict[str, str]) -> None:
    with pytest.raises(ConfigError):
        Harness([NodeMetadata], ["a"], args={NAME: {"metadataKey": KEY, **args}})


def test_a_node_whose_value_becomes_invalid_is_scored_by_itself() -> None:
    nodes = [make_node(f"n{number}", labels={KEY: "1"}) for number in range(20)]
    cluster = Harness([NodeMetadata], nodes, args={NAME: {"metadataKey": KEY}})
    assert cluster.schedule(make_pod("p", "1")).node
    # The results of the others are kept.
    cluster.patch("Node", "n0", {"metadata": {"labels": {KEY: "cheap"}}}, namespace="")
    outcome = cluster.schedule(make_pod("q", "1"))
    assert (outcome.score("n0", NAME), outcome.score("n1", NAME)) == (0, 100)
