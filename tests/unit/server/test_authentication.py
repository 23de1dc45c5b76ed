import pytest
from msgspec.structs import replace
from multidict import CIMultiDict, CIMultiDictProxy

from proreus.base.errors import ApiError
from proreus.base.metrics import SchedulerMetrics
from proreus.server import delegation
from proreus.server.authentication import Authenticator, NotAuthenticated, User
from proreus.server.client_ca import CABundle, ClientCAs
from proreus.server.options import AuthenticationOptions

PROMETHEUS = {
    "username": "system:serviceaccount:monitoring:prometheus",
    "uid": "7",
    "groups": ["system:serviceaccounts"],
    "extra": {"pod": ["p"]},
}


def headers(*pairs):
    return CIMultiDictProxy(CIMultiDict(pairs))


def bearer(token):
    return headers(("Authorization", f"Bearer {token}"))


@pytest.fixture
def trusted():
    return ClientCAs(AuthenticationOptions(), None)


@pytest.fixture
def metrics():
    return SchedulerMetrics()


async def test_a_caller_without_credentials_is_anonymous(trusted, FakeApi):
    user = await Authenticator(trusted, FakeApi()).authenticate(headers())
    assert user == User("system:anonymous", groups=("system:unauthenticated",))


async def test_a_token_is_reviewed_once_within_the_ttl(trusted, FakeApi):
    api = FakeApi(tokens={"t": PROMETHEUS})
    authenticator = Authenticator(trusted, api)
    for _ in range(3):
        user = await authenticator.authenticate(bearer("t"))
    assert user == User(
        PROMETHEUS["username"],
        "7",
        ("system:serviceaccounts", "system:authenticated"),
        {"pod": ("p",)},
    )
    ((path, body),) = api.posted
    assert path == "/apis/authentication.k8s.io/v1/tokenreviews"
    assert body["spec"] == {"token": "t"}


async def test_an_invalid_token_is_refused_and_cached(trusted, FakeApi, metrics):
    api = FakeApi()
    authenticator = Authenticator(trusted, api, metrics=metrics)
    for _ in range(2):
        with pytest.raises(NotAuthenticated, match="bad"):
            await authenticator.authenticate(bearer("t"))
    assert len(api.posted) == 1
    assert dict(metrics.authentication_attempts.values()) == {("failure",): 2}


async def test_a_failed_token_review_is_not_cached(trusted, FakeApi, metrics, monkeypatch):
    monkeypatch.setattr(delegation, "_FIRST_PAUSE_SECONDS", 0)
    api = FakeApi(tokens={"t": PROMETHEUS})
    api.failures = [ApiError(403, "Forbidden", "tokenreviews is forbidden")]
    authenticator = Authenticator(trusted, api, metrics=metrics)
    with pytest.raises(NotAuthenticated, match="tokenreviews is forbidden"):
        await authenticator.authenticate(bearer("t"))
    assert (await authenticator.authenticate(bearer("t"))).name == PROMETHEUS["username"]
    assert dict(metrics.authentication_attempts.values()) == {("error",): 1, ("success",): 1}


async def test_without_an_apiserver_tokens_are_ignored(trusted):
    user = await Authenticator(trusted, None).authenticate(bearer("t"))
    assert user.name == "system:anonymous"


async def test_a_client_certificate_names_user_and_groups(trusted, issue, authority, metrics):
    trusted.clients = CABundle.parse(authority.pem, "test")
    certificate = issue("admin", ["system:masters", "ops"], authority)
    authenticator = Authenticator(trusted, None, metrics=metrics)
    user = await authenticator.authenticate(headers(), [certificate.der])
    assert user == User("admin", groups=("system:masters", "ops", "system:authenticated"))
    assert metrics.apiserver_client_certificate_expiration_seconds.count == 1
    assert dict(metrics.authenticated_user_requests.values()) == {("admin",): 1}


async def test_a_certificate_of_an_unknown_ca_is_ignored(trusted, issue, authority):
    trusted.clients = CABundle.parse(authority.pem, "test")
    stranger = issue("admin", ["system:masters"], issue("other-ca"))
    # one key serves all test certificates: the issuer's name alone decides here
    user = await Authenticator(trusted, None).authenticate(headers(), [stranger.der])
    assert user.name == "system:anonymous"


async def test_the_chain_decides_for_whom_a_certificate_counts(trusted, issue, authority):
    front = issue("front-ca")
    trusted.clients = CABundle.parse(authority.pem, "test")
    trusted.proxies = CABundle.parse(front.pem, "test")
    trusted.request_header = AuthenticationOptions().request_header
    teams = issue("teams-ca", issuer=authority, ca=True)
    admin = issue("admin", issuer=teams)
    authenticator = Authenticator(trusted, None)
    chain = [admin.der, teams.der, authority.der]
    assert (await authenticator.authenticate(PROXY_HEADERS, chain)).name == "admin"
    assert (await authenticator.authenticate(headers(), [admin.der])).name == "system:anonymous"
    # The handshake verifies against both bundles; the chain of another one says nothing here.
    trusted.clients = CABundle.parse(issue("renamed-ca").pem, "test")
    assert (await authenticator.authenticate(headers(), chain)).name == "system:anonymous"


async def test_a_certificate_ends_on_an_open_connection(trusted, issue, authority):
    trusted.clients = CABundle.parse(authority.pem, "test")
    teams = issue("teams-ca", issuer=authority, ca=True, hours=0)
    for chain in (
        [issue("admin", issuer=authority, hours=0)],
        [issue("admin", issuer=teams), teams, authority],
    ):
        user = await Authenticator(trusted, None).authenticate(
            headers(), [certificate.der for certificate in chain]
        )
        assert user.name == "system:anonymous"


@pytest.fixture
def behind_proxy(trusted, authority):
    trusted.proxies = CABundle.parse(authority.pem, "test")
    trusted.request_header = AuthenticationOptions().request_header
    return trusted


PROXY_HEADERS = headers(
    ("X-Remote-User", "jane"),
    ("X-Remote-Group", "a"),
    ("X-Remote-Group", "b"),
    ("X-Remote-Extra-Scopes%2fx", "s"),
)


async def test_a_front_proxy_authenticates_users(behind_proxy, issue, authority):
    proxy = issue("front-proxy", issuer=authority)
    user = await Authenticator(behind_proxy, None).authenticate(PROXY_HEADERS, [proxy.der])
    assert user == User("jane", "", ("a", "b", "system:authenticated"), {"scopes/x": ("s",)})


async def test_proxy_headers_without_its_certificate_are_ignored(behind_proxy):
    user = await Authenticator(behind_proxy, None).authenticate(PROXY_HEADERS)
    assert user.name == "system:anonymous"


async def test_only_allowed_names_of_proxies_count(behind_proxy, issue, authority):
    behind_proxy.request_header = replace(behind_proxy.request_header, allowed_names=("good",))
    authenticator = Authenticator(behind_proxy, None)
    bad = await authenticator.authenticate(PROXY_HEADERS, [issue("bad", issuer=authority).der])
    good = await authenticator.authenticate(PROXY_HEADERS, [issue("good", issuer=authority).der])
    assert (bad.name, good.name) == ("system:anonymous", "jane")
