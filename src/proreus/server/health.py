"""/healthz, /livez and /readyz with kube-scheduler's texts, and their metrics for /metrics/slis.

A check is a name and a function that returns None when all is well, else a description of the
problem. The bodies of the three roots withhold it, as they need no authorization; the log has it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from aiohttp import web

from proreus.base import logs
from proreus.base.metrics import MetricsRegistry
from proreus.base.metrics.declarations import Declarations, describe
from proreus.server.responses import plain

log = logs.logger(__name__)

_STABLE = Declarations("kubernetes_", "STABLE")


@dataclass(frozen=True)
class HealthCheck:
    """A health check. ``problem()`` must not block; it returns None or one sentence."""

    name: str
    problem: Callable[[], str | None]


PING = HealthCheck("ping", lambda: None)


class HealthMetrics(MetricsRegistry):
    """The metrics of /metrics/slis; they are on no other page."""

    healthcheck = _STABLE.gauge(
        "What a health check said last: 1 for well, 0 for not.", "name", "type"
    )
    healthchecks_total = _STABLE.counter(
        "Health checks made, by outcome.", "name", "type", "status"
    )

    def __init__(self) -> None:
        super().__init__()
        describe(self)

    def observe(self, name: str, kind: str, healthy: bool) -> None:
        """Record the result of one check."""
        self.healthcheck.labels(name, kind).set(1 if healthy else 0)
        self.healthchecks_total.labels(name, kind, "success" if healthy else "error").inc()


class HealthEndpoint:
    """One of the three roots, with its checks in the order of its body."""

    def __init__(self, name: str, checks: Sequence[HealthCheck], metrics: HealthMetrics) -> None:
        self.name = name
        self.checks = tuple(checks)
        self._metrics = metrics

    def root(self, query: Sequence[tuple[str, str]]) -> web.Response:
        """Return the response to ``/<name>?verbose&exclude=a&exclude=b``."""
        excluded = dict.fromkeys(value for key, value in query if key == "exclude")
        unmatched = dict(excluded)
        lines, failed = [], []
        for check in self.checks:
            if check.name in excluded:
                unmatched.pop(check.name, None)
                lines.append(f"[+]{check.name} excluded: ok")
                continue
            problem = check.problem()
            self._metrics.observe(check.name, self.name, problem is None)
            if problem is None:
                lines.append(f"[+]{check.name} ok")
            else:
                failed.append(f"{check.name}: {problem}")
                lines.append(f"[-]{check.name} failed: reason withheld")
        if unmatched:
            names = ",".join(f'"{name}"' for name in sorted(unmatched))
            lines.append(f"warn: some health checks cannot be excluded: no matches for {names}")
        if failed:
            log.v(2).info("Health check failed", endpoint=self.name, problems=failed)
            return plain("\n".join([*lines, f"{self.name} check failed\n"]), status=500)
        if any(key == "verbose" for key, _ in query):
            return plain("\n".join([*lines, f"{self.name} check passed\n"]))
        return plain("ok")

    def single(self, check_name: str) -> web.Response | None:
        """Return the response to ``/<name>/<check>``; None if there is no such check."""
        for check in self.checks:
            if check.name == check_name:
                problem = check.problem()
                if problem is None:
                    return plain("ok")
                return plain(f"internal server error: {problem}\n", status=500)
        return None
