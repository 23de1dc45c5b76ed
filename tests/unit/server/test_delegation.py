import pytest

from proreus.base.errors import ApiError
from proreus.server.delegation import TtlCache, review


class Scripted:
    def __init__(self, *answers):
        self.answers = list(answers)

    async def post(self, path, body):
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def get(self, path):
        raise NotImplementedError


@pytest.fixture
def pauses():
    return []


@pytest.fixture
def sleep(pauses):
    async def note(seconds):
        pauses.append(seconds)

    return note


async def test_transient_errors_are_retried_with_growing_delays(pauses, sleep):
    api = Scripted(
        ApiError(0, "", "reset"),
        ApiError(500, "InternalError", "oops"),
        ApiError(429, "TooManyRequests", "wait"),
        {"status": {"allowed": True}},
    )
    assert await review(api, "/x", {}, sleep) == {"allowed": True}
    for pause, least in zip(pauses, (0.5, 0.75, 1.125), strict=True):
        assert least <= pause <= least * 1.2


async def test_reviews_end_after_five_attempts(pauses, sleep):
    api = Scripted(*(ApiError(503, "", f"try {n}") for n in range(1, 7)))
    with pytest.raises(ApiError, match="try 5"):
        await review(api, "/x", {}, sleep)
    assert len(pauses) == 4


async def test_a_refusal_is_final(pauses, sleep):
    api = Scripted(ApiError(403, "Forbidden", "no"))
    with pytest.raises(ApiError, match="no"):
        await review(api, "/x", {}, sleep)
    assert pauses == []


async def test_a_missing_status_is_empty(sleep):
    assert await review(Scripted({}), "/x", {}, sleep) == {}


def test_cached_results_expire():
    now = 100.0
    cache = TtlCache(lambda: now)
    cache.put("a", 1, 10)
    cache.put("never", 1, 0)
    now = 109.9
    assert cache.get("a") == 1
    assert cache.get("never") is None
    now = 110.0
    assert cache.get("a") is None


def test_the_cache_is_bounded_and_drops_the_oldest():
    cache = TtlCache(lambda: 0.0)
    for number in range(5000):
        cache.put(number, number, 10)
    assert cache.get(0) is None
    assert cache.get(4999) == 4999
    assert len(cache._entries) == 4096
