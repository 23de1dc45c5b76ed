import pytest

from proreus.base.errors import ApiError
from proreus.base.metrics import SchedulerMetrics
from proreus.server import delegation
from proreus.server.authentication import User
from proreus.server.authorization import Authorizer, AuthorizerDecision
from proreus.server.options import AuthorizationOptions

JANE = User("jane", "7", ("ops",), {"scope": ("a",)})


@pytest.mark.parametrize(
    ("allowed", "path", "open_"),
    [
        (("/healthz",), "/healthz", True),
        (("/healthz",), "/healthz/ping", False),
        (("/healthz*",), "/healthz/ping", True),
        (("/a/*",), "/a/b", True),
        (("/a/*",), "/ab", False),
        (("*",), "/metrics", True),
        ((), "/healthz", False),
    ],
)
def test_open_paths_match_exactly_or_by_prefix(allowed, path, open_):
    authorizer = Authorizer(AuthorizationOptions(always_allow_paths=allowed), None)
    assert authorizer.is_open(path) is open_


async def test_system_masters_need_no_review(FakeApi):
    api = FakeApi()
    user = User("root", groups=("system:masters",))
    assert (await Authorizer(AuthorizationOptions(), api).authorize(user, "get", "/x")).allowed
    assert api.posted == []


async def test_without_an_apiserver_other_paths_are_forbidden():
    decision = await Authorizer(AuthorizationOptions(), None).authorize(JANE, "get", "/metrics")
    assert decision == AuthorizerDecision(False)


async def test_a_review_is_cached(FakeApi):
    api = FakeApi(allowed=[("jane", "get", "/metrics")])
    metrics = SchedulerMetrics()
    authorizer = Authorizer(AuthorizationOptions(), api, metrics=metrics)
    for _ in range(2):
        assert (await authorizer.authorize(JANE, "get", "/metrics")).allowed
        assert not (await authorizer.authorize(JANE, "delete", "/metrics")).allowed
    (path, body), _ = api.posted
    assert path == "/apis/authorization.k8s.io/v1/subjectaccessreviews"
    assert body["spec"] == {
        "user": "jane",
        "uid": "7",
        "groups": ["ops"],
        "extra": {"scope": ["a"]},
        "nonResourceAttributes": {"path": "/metrics", "verb": "get"},
    }
    assert dict(metrics.authorization_attempts_total.values()) == {
        ("allowed",): 2,
        ("no-opinion",): 2,
    }


async def test_refusals_have_a_ttl_of_their_own(FakeApi):
    api = FakeApi(allowed=[("jane", "get", "/metrics")])
    authorizer = Authorizer(AuthorizationOptions(unauthorized_ttl_seconds=0), api)
    for _ in range(2):
        await authorizer.authorize(JANE, "get", "/metrics")
        await authorizer.authorize(JANE, "get", "/configz")
    assert len(api.posted) == 3


async def test_a_failed_review_is_an_error_and_not_a_refusal(FakeApi, monkeypatch):
    monkeypatch.setattr(delegation, "_FIRST_PAUSE_SECONDS", 0)
    api = FakeApi()
    api.failures = [ApiError(0, "", "connection refused")] * 5
    with pytest.raises(ApiError, match="connection refused"):
        await Authorizer(AuthorizationOptions(), api).authorize(JANE, "get", "/metrics")
