"""Which measures of a soak run count as growing."""

import random

import pytest

from bench import flatness


def samples(value):
    """Samples of an hour in which one measure follows ``value(second)``, and the others are 1."""
    others = {measure.name: 1.0 for measure in flatness.MEASURES}
    return [
        flatness.Sample(float(second), {**others, "rss_mib": value(second)})
        for second in range(0, 3_600, 30)
    ]


def test_noise_and_single_peaks_are_flat():
    noise = random.Random(7)
    found = samples(lambda second: 200 + noise.uniform(-5, 5) + (300 if second == 3_000 else 0))
    assert flatness.report(found) == []


def test_the_warm_up_does_not_count():
    assert flatness.report(samples(lambda second: 100 + min(second, 800) / 10)) == []


@pytest.mark.parametrize("mib_an_hour", [8, 50])
def test_names_growing_measures(mib_an_hour, capsys):
    noise = random.Random(7)
    found = samples(lambda second: 200 + noise.uniform(-1, 1) + second / 3_600 * mib_an_hour)
    assert flatness.report(found) == ["rss_mib"]
    assert "grows" in capsys.readouterr().out


def test_growth_is_that_of_the_median_slope():
    points = [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (5, 100)]
    assert flatness.growth(points) == pytest.approx(5)
    assert flatness.growth([(0, 1)]) == 0


def test_the_plot_has_all_measures(tmp_path):
    pytest.importorskip("matplotlib")
    flatness.draw(tmp_path / "soak.svg", samples(lambda second: 100.0))
    assert "<svg" in (tmp_path / "soak.svg").read_text()
