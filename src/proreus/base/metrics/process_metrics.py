"""The metrics of any Kubernetes component: API client, Lease, HTTPS server, process.

The second half of the table in ``scheduler_metrics``; names, types, labels and buckets are those
of Kubernetes 1.36.
"""

from __future__ import annotations

import math
import platform
import resource
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from proreus.base.metrics import exposition
from proreus.base.metrics.declarations import Declarations, describe
from proreus.base.metrics.families import MetricsRegistry, exponential

# See ``exposition``.
if TYPE_CHECKING:
    from prometheus_client import Metric

_BETA = Declarations("", "BETA")
_ALPHA = Declarations("", "ALPHA")
_PROREUS_ALPHA = Declarations("proreus_", "ALPHA")

_ATTEMPT = exponential(0.001, 2, 15)
_REST = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0)
_SIZE = (
    *(64.0, 256.0, 512.0, 1024.0, 4096.0, 16384.0, 65536.0, 262144.0),
    *(1048576.0, 4194304.0, 16777216.0),
)
_ROTATION_AGE = (
    *(600.0, 1800.0, 3600.0, 14400.0, 86400.0, 604800.0, 2592000.0),
    *(7776000.0, 15552000.0, 31104000.0, 124416000.0),
)
_CLIENT_CERTIFICATE = (
    *(0.0, 1800.0, 3600.0, 7200.0, 21600.0, 43200.0, 86400.0, 172800.0, 345600.0),
    *(604800.0, 2592000.0, 7776000.0, 15552000.0, 31104000.0),
)


class ProcessMetrics(MetricsRegistry):
    """The metrics of a component, of its process and of its Python."""

    # ---- rest client

    rest_client_requests_total = _ALPHA.counter(
        "Requests to the apiserver, by the status of the answer.", "code", "method", "host"
    )
    rest_client_request_duration_seconds = _ALPHA.histogram(
        "Seconds that a request to the apiserver took.", _REST, "verb", "host"
    )
    rest_client_rate_limiter_duration_seconds = _ALPHA.histogram(
        "Seconds that a request waited for the client-side rate limit.", _REST, "verb", "host"
    )
    rest_client_request_size_bytes = _ALPHA.histogram(
        "Bytes of a request's body.", _SIZE, "verb", "host"
    )
    rest_client_response_size_bytes = _ALPHA.histogram(
        "Bytes of an answer's body.", _SIZE, "verb", "host"
    )
    rest_client_request_retries_total = _ALPHA.counter(
        "Requests that were repeated because the apiserver asked for it.", "code", "verb", "host"
    )

    # ---- rest transport

    rest_client_dns_resolution_duration_seconds = _ALPHA.histogram(
        "Seconds that resolving the apiserver's name took.", _REST[:-1], "host"
    )
    rest_client_transport_cache_entries = _ALPHA.gauge("Transports in use.")
    rest_client_transport_create_calls_total = _ALPHA.counter(
        "Transports asked for, by where they came from.", "result"
    )
    rest_client_exec_plugin_ttl_seconds = _ALPHA.gauge(
        "Seconds until the shortest-lived client certificate of an exec plugin expires; +Inf "
        "when there is none."
    )
    rest_client_exec_plugin_certificate_rotation_age = _ALPHA.histogram(
        "Seconds that an exec plugin's client certificate lived when it was replaced.",
        _ROTATION_AGE,
    )

    # ---- objects

    objects_unreadable_total = _PROREUS_ALPHA.counter(
        "Times that an object of the apiserver was ignored because it could not be decoded.",
        "resource",
    )
    informer_handler_failures_total = _PROREUS_ALPHA.counter(
        "Times that an event handler raised at a change of an object.", "resource"
    )

    # ---- leader election

    leader_election_master_status = _ALPHA.gauge(
        "1 while this instance holds the Lease, else 0.", "name"
    )
    leader_election_slowpath_total = _ALPHA.counter(
        "Renewals of the Lease that had to read it first.", "name"
    )

    # ---- serving

    apiserver_client_certificate_expiration_seconds = _ALPHA.histogram(
        "Seconds that the certificates have left with which clients call this process.",
        _CLIENT_CERTIFICATE,
    )
    authentication_attempts = _ALPHA.counter("Requests authenticated, by outcome.", "result")
    authentication_duration_seconds = _ALPHA.histogram(
        "Seconds that authentication took.", _ATTEMPT, "result"
    )
    authenticated_user_requests = _ALPHA.counter("Authenticated requests, by user.", "username")
    authorization_attempts_total = _ALPHA.counter("Requests authorized, by outcome.", "result")
    authorization_duration_seconds = _ALPHA.histogram(
        "Seconds that authorization took.", _ATTEMPT, "result"
    )

    # ---- process

    kubernetes_build_info = _BETA.gauge(
        "What was built from what: constant 1.",
        *("build_date", "compiler", "git_commit", "git_tree_state", "git_version"),
        *("go_version", "major", "minor", "platform"),
    )
    version_info = _ALPHA.gauge(
        "The versions in effect: constant 1.", "component", "binary", "emulation", "min_compat"
    )
    kubernetes_feature_enabled = _BETA.gauge("1 if a feature gate is on.", "name", "stage")
    registered_metrics_total = _BETA.counter(
        "Metrics that this process knows, by stability.", "stability_level", "deprecated_version"
    )
    disabled_metrics_total = _BETA.counter("Metrics disabled by a flag.")
    hidden_metrics_total = _BETA.counter("Metrics hidden by deprecation.")

    def __init__(
        self,
        disabled: Iterable[str] = (),
        allow_labels: Mapping[str, Iterable[str]] | None = None,
    ) -> None:
        super().__init__(disabled, allow_labels)
        self._describe()
        self._count_registered()

    @cached_property
    def _sources(self) -> list[exposition.Source]:
        from prometheus_client.gc_collector import GCCollector
        from prometheus_client.platform_collector import PlatformCollector
        from prometheus_client.process_collector import ProcessCollector
        from prometheus_client.registry import CollectorRegistry

        unused_registry = CollectorRegistry()
        return [
            ProcessCollector(registry=unused_registry).collect,
            PlatformCollector(registry=unused_registry).collect,
            GCCollector(registry=unused_registry).collect,
            _collect_process_metrics,
        ]

    def expose(self, accept: str = "") -> tuple[bytes, str]:
        """Return body and content type of ``/metrics``, with the process_* and python_* metrics."""
        return exposition.expose(self, accept, self._sources)

    def _describe(self) -> None:
        """Describe all metrics, and set those that begin with another value than 0."""
        describe(self)
        self.rest_client_exec_plugin_ttl_seconds.set(math.inf)
        self.disabled_metrics_total.inc(len(self.disabled))
        self.counter(
            "cardinality_enforcement_unexpected_categorizations_total",
            "ALPHA",
            "Label values that the flags' lists of allowed values do not name.",
        ).set_function(lambda: {(): self.unexpected_categorizations.value})

    def _count_registered(self) -> None:
        described = [family.description for family in self.families()]
        counts = Counter((one.stability, one.deprecated_version) for one in described)
        for series, count in counts.items():
            self.registered_metrics_total.labels(*series).value = count

    def set_features(self, features: Iterable[tuple[str, str, bool]]) -> None:
        """Set gates: name, stage ("ALPHA", "BETA", "GA", "DEPRECATED") and value."""
        for name, stage, enabled in features:
            shown = "" if stage == "GA" else stage
            self.kubernetes_feature_enabled.labels(name, shown).set(1 if enabled else 0)

    def set_versions(self, version: str, emulated: str, min_compatibility: str) -> None:
        """Set versions: ``version`` like "1.36.0+proreus", the others like "1.36" and "1.35"."""
        major, _, rest = version.partition(".")
        minor = rest.partition(".")[0]
        python = f"{platform.python_implementation().lower()}{platform.python_version()}"
        machine = {"x86_64": "amd64", "aarch64": "arm64"}.get(
            platform.machine(), platform.machine()
        )
        self.kubernetes_build_info.labels(
            *("", platform.python_implementation().lower(), "", "", f"v{version}"),
            *(python, major, minor, f"{platform.system().lower()}/{machine}"),
        ).set(1)
        binary = f"{major}.{minor}"
        self.version_info.labels("kube", binary, emulated, min_compatibility).set(1)


def _collect_process_metrics() -> Iterator[Metric]:
    """Yield the metrics of Go's process collector that prometheus-client's lacks."""
    from prometheus_client import Metric

    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    most = Metric(
        "process_virtual_memory_max_bytes", "Maximum amount of virtual memory in bytes.", "gauge"
    )
    most.add_sample(most.name, {}, 2.0**64 if limit == resource.RLIM_INFINITY else limit)
    yield most
    traffic = _network_bytes()
    for way, octets in (("receive", "InOctets"), ("transmit", "OutOctets")):
        if octets in traffic:
            name = f"process_network_{way}_bytes"
            metric = Metric(name, f"Bytes that the process's network namespace {way}s.", "counter")
            metric.add_sample(f"{name}_total", {}, traffic[octets])
            yield metric


def _network_bytes() -> dict[str, int]:
    try:
        lines = Path("/proc/self/net/netstat").read_text().splitlines()
    except OSError:
        return {}
    names, values = (line.split()[1:] for line in lines if line.startswith("IpExt:"))
    return dict(zip(names, map(int, values), strict=True))
