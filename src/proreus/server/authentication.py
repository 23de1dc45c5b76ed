"""Authentication of requests: front proxy, client certificate, bearer token, or anonymous.

Order and results are those of Kubernetes' delegating authenticator: invalid credentials are an
error (401), a request without credentials is anonymous.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any
from urllib.parse import unquote

from cryptography import x509
from cryptography.x509.oid import NameOID
from multidict import CIMultiDictProxy

from proreus.base.errors import ApiError
from proreus.base.metrics import SchedulerMetrics
from proreus.server.client_ca import ClientCAs
from proreus.server.delegation import ApiAccess, TtlCache, review
from proreus.server.options import FORWARDED_AUTHORIZATION, RequestHeaderOptions

TOKEN_REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"

AUTHENTICATED = "system:authenticated"

# As in k8s.io/apiserver these users have time series of their own, and all others share one: their
# number must not depend on who calls.
_COUNTED_USERS = {"admin", "client", "kube_proxy", "kubelet"}


@dataclass(frozen=True)
class User:
    """The user of a request, with the fields of a SubjectAccessReview."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


ANONYMOUS = User("system:anonymous", groups=("system:unauthenticated",))


class NotAuthenticated(Exception):
    """The credentials of a request are invalid, or (``check_failed``) could not be checked."""

    def __init__(self, message: str, *, check_failed: bool = False) -> None:
        self.check_failed = check_failed
        super().__init__(message)


class Authenticator:
    """Authenticates requests. Without ``api`` bearer tokens cannot be checked and are ignored."""

    def __init__(
        self,
        trusted: ClientCAs,
        api: ApiAccess | None,
        *,
        token_cache_ttl_seconds: float = 10.0,
        metrics: SchedulerMetrics | None = None,
    ) -> None:
        self._trusted = trusted
        self._api = api
        self._ttl = token_cache_ttl_seconds
        self._metrics = metrics or SchedulerMetrics()
        # Tokens are not kept, not even in memory: the cache has their HMAC with a random key, so
        # that a core dump does not leak credentials.
        self._key = secrets.token_bytes(32)
        self._token_cache: TtlCache[User | NotAuthenticated] = TtlCache()

    async def authenticate(
        self, headers: CIMultiDictProxy[str], certificates: Sequence[bytes] = ()
    ) -> User:
        """Return the user by headers and TLS client certificates; raises ``NotAuthenticated``.

        ``certificates``: the chain that the handshake verified (DER), the client's own first.
        """
        started = time.perf_counter()
        result = "error"
        try:
            user = await self._authenticate(headers, certificates)
            result = "success"
            self._count_user(user)
            return user
        except NotAuthenticated as error:
            result = "error" if error.check_failed else "failure"
            raise
        finally:
            seconds = time.perf_counter() - started
            self._metrics.authentication_attempts.labels(result).inc()
            self._metrics.authentication_duration_seconds.labels(result).observe(seconds)

    async def _authenticate(
        self, headers: CIMultiDictProxy[str], certificates: Sequence[bytes]
    ) -> User:
        # A certificate of an unknown CA is no error: the caller may have a token as well.
        if certificates:
            chain = [x509.load_der_x509_certificate(one) for one in certificates]
            user = self._by_certificate(headers, chain)
            if user is not None:
                return _with_authenticated_group(user)
        # The apiserver's proxy removes Authorization; our own commands send it twice.
        value = headers.get("Authorization") or headers.get(FORWARDED_AUTHORIZATION) or ""
        scheme, _, token = value.partition(" ")
        token = token.strip()
        if scheme.lower() == "bearer" and token and self._api is not None:
            return _with_authenticated_group(await self._by_token(self._api, token))
        return ANONYMOUS

    def _by_certificate(
        self, headers: CIMultiDictProxy[str], chain: Sequence[x509.Certificate]
    ) -> User | None:
        certificate = chain[0]
        name = _first(certificate, NameOID.COMMON_NAME)
        proxy = self._trusted.request_header
        # X-Remote-* headers count only with a front proxy's certificate: anybody can send headers.
        if (
            proxy is not None
            and (not proxy.allowed_names or name in proxy.allowed_names)
            and self._trusted.proxies.trusts(chain)
        ):
            user = _by_request_headers(headers, proxy)
            if user is not None:
                return user
        if not self._trusted.clients.trusts(chain):
            return None
        left = certificate.not_valid_after_utc - datetime.now(UTC)
        self._metrics.apiserver_client_certificate_expiration_seconds.observe(left.total_seconds())
        return User(name, groups=_all(certificate, NameOID.ORGANIZATION_NAME))

    async def _by_token(self, api: ApiAccess, token: str) -> User:
        key = hmac.digest(self._key, token.encode(), hashlib.sha256)
        result = self._token_cache.get(key)
        # Rejections are cached too, or a client with an expired token would cause a TokenReview a
        # request. A review that failed raises and is not cached.
        if result is None:
            result = await _review_token(api, token)
            self._token_cache.put(key, result, self._ttl)
        if isinstance(result, NotAuthenticated):
            raise result
        return result

    def _count_user(self, user: User) -> None:
        name = user.name if user.name in _COUNTED_USERS else "other"
        if "@" in user.name:
            name = "email_id"
        self._metrics.authenticated_user_requests.labels(name).inc()


async def _review_token(api: ApiAccess, token: str) -> User | NotAuthenticated:
    """Return the token's user, or the reason why it has none; raises if the review failed."""
    body = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenReview",
        "spec": {"token": token},
    }
    try:
        status = await review(api, TOKEN_REVIEWS, body)
    except ApiError as error:
        raise NotAuthenticated(f"TokenReview failed: {error}", check_failed=True) from error
    if not status.get("authenticated"):
        return NotAuthenticated(status.get("error") or "invalid bearer token")
    user: dict[str, Any] = status.get("user") or {}
    return User(
        user.get("username", ""),
        user.get("uid", ""),
        tuple(user.get("groups") or ()),
        {key: tuple(values) for key, values in (user.get("extra") or {}).items()},
    )


def _by_request_headers(headers: CIMultiDictProxy[str], proxy: RequestHeaderOptions) -> User | None:
    name = next((headers[key] for key in proxy.username_headers if headers.get(key)), "")
    if not name:
        return None
    groups = [value for key in proxy.group_headers for value in headers.getall(key, ())]
    extra: dict[str, tuple[str, ...]] = {}
    for prefix in map(str.lower, proxy.extra_headers_prefix):
        for header in headers:
            if header.lower().startswith(prefix):
                key = unquote(header.lower().removeprefix(prefix))
                extra[key] = tuple(headers.getall(header))
    uid = next((headers[key] for key in proxy.uid_headers if headers.get(key)), "")
    return User(name, uid, tuple(groups), extra)


def _with_authenticated_group(user: User) -> User:
    """Return the user as a member of system:authenticated, unless it is anonymous."""
    if AUTHENTICATED in user.groups or ANONYMOUS.groups[0] in user.groups:
        return user
    return replace(user, groups=(*user.groups, AUTHENTICATED))


def _all(certificate: x509.Certificate, oid: x509.ObjectIdentifier) -> tuple[str, ...]:
    return tuple(str(entry.value) for entry in certificate.subject.get_attributes_for_oid(oid))


def _first(certificate: x509.Certificate, oid: x509.ObjectIdentifier) -> str:
    return next(iter(_all(certificate, oid)), "")
