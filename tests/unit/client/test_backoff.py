"""Delays between retries."""

import random

from proreus.client.http.backoff import Backoff


def test_delays_double_up_to_the_limit_with_jitter_on_top():
    backoff = Backoff(0.2, 3.0, jitter=1.0, rng=random.Random(3))
    for least in (0.2, 0.4, 0.8, 1.6, 3.0, 3.0):
        assert least <= backoff.next() <= 2 * least


def test_reset_starts_with_the_initial_delay():
    backoff = Backoff(0.01, 10, factor=5, jitter=0)
    assert [backoff.next() for _ in range(3)] == [0.01, 0.05, 0.25]
    backoff.reset()
    assert backoff.next() == 0.01


def test_two_clients_do_not_retry_together():
    one, other = (Backoff(1, 30, rng=random.Random(seed)) for seed in (1, 2))
    assert one.next() != other.next()
