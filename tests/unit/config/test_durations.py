import pytest
from hypothesis import given
from hypothesis import strategies as st

from proreus.config.durations import DurationError, format_duration, parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1m30s", 90),
        ("1.5h", 5400),
        ("-2s", -2),
        ("+2s", 2),
        ("0", 0),
        (".5s", 0.5),
        ("1.s", 1),
        ("3us", 3e-6),
        ("3µs", 3e-6),
        ("3μs", 3e-6),
        ("1h2m3s4ms5ns", 3723.004000005),
        ("9223372036s", 9223372036),
    ],
)
def test_parses_go_durations(text, seconds):
    assert parse_duration(text) == pytest.approx(seconds, rel=1e-12)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("fifteen", 'time: invalid duration "fifteen"'),
        ("15", 'time: missing unit in duration "15"'),
        ("1d", 'time: unknown unit "d" in duration "1d"'),
        ("", 'time: invalid duration ""'),
        (".", 'time: invalid duration "."'),
        ("-", 'time: invalid duration "-"'),
        ("1.5.5s", 'time: missing unit in duration "1.5.5s"'),
        ("9223372037s", 'time: invalid duration "9223372037s"'),
        ('"s', 'time: invalid duration "\\"s"'),
    ],
)
def test_refuses_in_go_words(text, error):
    with pytest.raises(DurationError) as caught:
        parse_duration(text)
    assert str(caught.value) == error


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (90, "1m30s"),
        (3600, "1h0m0s"),
        (1.5, "1.5s"),
        (0.02, "20ms"),
        (1.5e-6, "1.5µs"),
        (5e-9, "5ns"),
        (-61, "-1m1s"),
        (599.9, "9m59.9s"),
    ],
)
def test_writes_as_go_does(seconds, text):
    assert format_duration(seconds) == text


@given(st.integers(min_value=-(10**15), max_value=10**15))
def test_what_is_written_can_be_read(nanoseconds):
    seconds = nanoseconds / 1e9
    assert parse_duration(format_duration(seconds)) == pytest.approx(seconds, abs=1e-9, rel=1e-15)
