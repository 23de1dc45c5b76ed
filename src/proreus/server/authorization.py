"""Authorization of requests: always-allowed paths, system:masters, and SubjectAccessReviews."""

from __future__ import annotations

import time
from dataclasses import dataclass

from proreus.base.errors import ApiError
from proreus.base.metrics import SchedulerMetrics
from proreus.server.authentication import User
from proreus.server.delegation import ApiAccess, TtlCache, review
from proreus.server.options import AuthorizationOptions

SUBJECT_ACCESS_REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"

_PRIVILEGED_GROUP = "system:masters"


@dataclass(frozen=True)
class AuthorizerDecision:
    """Whether a request is allowed; ``reason`` is the authorizer's, often empty."""

    allowed: bool
    reason: str = ""


class Authorizer:
    """Authorizes paths. Without ``api`` only open paths and system:masters are allowed."""

    def __init__(
        self,
        options: AuthorizationOptions,
        api: ApiAccess | None,
        *,
        metrics: SchedulerMetrics | None = None,
    ) -> None:
        self._options = options
        self._api = api
        self._metrics = metrics or SchedulerMetrics()
        self._decisions: TtlCache[AuthorizerDecision] = TtlCache()
        self._open = frozenset(path.removeprefix("/") for path in options.always_allow_paths)
        self._open_prefixes = tuple(
            path.removesuffix("*").removeprefix("/")
            for path in options.always_allow_paths
            if path.endswith("*")
        )

    def is_open(self, path: str) -> bool:
        """Return whether a path is always allowed: listed, or below an entry that ends in ``*``."""
        path = path.removeprefix("/")
        return path in self._open or path.startswith(self._open_prefixes)

    async def authorize(self, user: User, verb: str, path: str) -> AuthorizerDecision:
        """Return the decision; ``verb`` is the HTTP method in lower case. Raises ``ApiError``."""
        started = time.perf_counter()
        result = "error"
        try:
            decision = await self._authorize(user, verb, path)
            result = "allowed" if decision.allowed else "no-opinion"
            return decision
        finally:
            seconds = time.perf_counter() - started
            self._metrics.authorization_attempts_total.labels(result).inc()
            self._metrics.authorization_duration_seconds.labels(result).observe(seconds)

    async def _authorize(self, user: User, verb: str, path: str) -> AuthorizerDecision:
        if _PRIVILEGED_GROUP in user.groups or self.is_open(path):
            return AuthorizerDecision(True)
        if self._api is None:
            return AuthorizerDecision(False)
        key = (user.name, user.uid, user.groups, tuple(sorted(user.extra.items())), verb, path)
        decision = self._decisions.get(key)
        if decision is None:
            decision = await _review_access(self._api, user, verb, path)
            options = self._options
            ttl = options.authorized_ttl_seconds
            self._decisions.put(
                key, decision, ttl if decision.allowed else options.unauthorized_ttl_seconds
            )
        return decision


async def _review_access(api: ApiAccess, user: User, verb: str, path: str) -> AuthorizerDecision:
    spec = {
        "user": user.name,
        "uid": user.uid,
        "groups": list(user.groups),
        "extra": {key: list(values) for key, values in user.extra.items()},
        "nonResourceAttributes": {"path": path, "verb": verb},
    }
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {key: value for key, value in spec.items() if value},
    }
    status = await review(api, SUBJECT_ACCESS_REVIEWS, body)
    allowed = bool(status.get("allowed")) and not status.get("denied")
    evaluation_error = status.get("evaluationError")
    # Neither allowed nor denied, and an authorizer failed: it might have allowed the request. That
    # is an error (500), and must not be cached as a refusal.
    if evaluation_error and not allowed and not status.get("denied"):
        raise ApiError(500, "InternalError", evaluation_error)
    return AuthorizerDecision(allowed, status.get("reason") or "")
