"""The flags of ``proreus run``: kube-scheduler's, and a few of our own.

A table; ``run`` turns it into ``RunOptions``. Flags for features that proreus does not have are
accepted, so that an existing manifest starts, and marked ``has_effect=False``.
"""

from __future__ import annotations

from proreus.base.kubernetes_version import DEFAULT_VERSION
from proreus.process.cli.go_flags import Flag, Kind
from proreus.process.cli.shadow_flags import SHADOW_FLAGS

_MISC, _DEPRECATED, _LEASE = "Misc", "Deprecated", "Leader election"
_SERVING, _AUTHN, _AUTHZ = "Secure serving", "Authentication", "Authorization"
_GATES, _METRICS, _LOGS, _OURS = "Feature gate", "Metrics", "Logs", "Proreus"

LEADER_ELECTION = (
    "leader-elect",
    "leader-elect-lease-duration",
    "leader-elect-renew-deadline",
    "leader-elect-retry-period",
    "leader-elect-resource-lock",
    "leader-elect-resource-name",
    "leader-elect-resource-namespace",
)
"""The flags that override the configuration file where they are given."""


def _flags(group: str, *rows: tuple[str, Kind, str, str]) -> tuple[Flag, ...]:
    return tuple(Flag(name, kind, default, group, text) for name, kind, default, text in rows)


def _ignored(group: str, *rows: tuple[str, Kind, str, str]) -> tuple[Flag, ...]:
    return tuple(
        Flag(name, kind, default, group, text, has_effect=False)
        for name, kind, default, text in rows
    )


FLAGS: tuple[Flag, ...] = (
    *_flags(
        _MISC,
        ("config", "string", "", "File with a KubeSchedulerConfiguration."),
        ("write-config-to", "string", "", "Write the completed configuration there and exit."),
        ("master", "string", "", "Address of the apiserver; overrides the kubeconfig's."),
    ),
    Flag(
        "version",
        "string",
        "false",
        _MISC,
        "Print the version and exit; raw: as a Go struct.",
        no_opt_default="true",
    ),
    *_flags(
        _DEPRECATED,
        ("kubeconfig", "string", "", "Kubeconfig file; ignored with --config."),
        ("profiling", "bool", "true", "Serve /debug pages; ignored with --config."),
        (
            "kube-api-qps",
            "float",
            "-1",
            "Most requests a second; if negative, as many as the apiserver takes. Ignored with "
            "--config.",
        ),
        ("kube-api-burst", "int", "100", "Requests in one burst; ignored with --config."),
        (
            "pod-max-in-unschedulable-pods-duration",
            "duration",
            "5m0s",
            "Time after which an unschedulable pod is retried without an event.",
        ),
    ),
    *_ignored(
        _DEPRECATED,
        ("contention-profiling", "bool", "true", "Profiling of locks; there are none."),
        (
            "kube-api-content-type",
            "string",
            "application/vnd.kubernetes.protobuf",
            "Content type of requests; proreus speaks JSON.",
        ),
    ),
    *_flags(
        _LEASE,
        ("leader-elect", "bool", "true", "Hold a Lease while scheduling."),
        (
            "leader-elect-lease-duration",
            "duration",
            "15s",
            "Time for which other instances respect the Lease.",
        ),
        ("leader-elect-renew-deadline", "duration", "10s", "Time limit of a renewal of the Lease."),
        (
            "leader-elect-retry-period",
            "duration",
            "2s",
            "Time between two attempts to get the Lease.",
        ),
        ("leader-elect-resource-lock", "string", "leases", "Kind of lock; only leases."),
        ("leader-elect-resource-name", "string", "kube-scheduler", "Name of the Lease."),
        ("leader-elect-resource-namespace", "string", "kube-system", "Namespace of the Lease."),
    ),
    *_flags(
        _SERVING,
        ("bind-address", "string", "0.0.0.0", "Address to listen on."),
        ("secure-port", "int", "10259", "Port to serve HTTPS on; 0 to disable it."),
        ("cert-dir", "string", "", "Folder for a self-signed certificate; in memory if empty."),
        ("tls-cert-file", "string", "", "File with the serving certificate."),
        ("tls-private-key-file", "string", "", "File with its key."),
        (
            "tls-sni-cert-key",
            "string",
            "",
            "cert,key or cert,key:names, to use for these server names; may be repeated.",
        ),
        ("tls-cipher-suites", "list", "[]", "Cipher suites up to TLS 1.2."),
        ("tls-min-version", "string", "", "VersionTLS10 to VersionTLS13; 1.2 if empty."),
        ("permit-port-sharing", "bool", "false", "Listen with SO_REUSEPORT."),
        ("permit-address-sharing", "bool", "false", "Listen with SO_REUSEADDR."),
    ),
    *_ignored(
        _SERVING,
        ("tls-curve-preferences", "list", "[]", "Key exchanges; OpenSSL chooses."),
        ("http2-max-streams-per-connection", "int", "0", "proreus serves HTTP/1.1."),
        ("disable-http2-serving", "bool", "false", "proreus serves HTTP/1.1."),
    ),
    *_flags(
        _AUTHN,
        ("authentication-kubeconfig", "string", "", "Kubeconfig for TokenReviews."),
        (
            "authentication-skip-lookup",
            "bool",
            "false",
            "Do not read kube-system/extension-apiserver-authentication.",
        ),
        (
            "authentication-token-webhook-cache-ttl",
            "duration",
            "10s",
            "Time for which the result of a TokenReview is cached.",
        ),
        (
            "authentication-tolerate-lookup-failure",
            "bool",
            "true",
            "Start even if that ConfigMap cannot be read.",
        ),
        ("client-ca-file", "string", "", "CA of client certificates."),
        ("requestheader-client-ca-file", "string", "", "CA of front proxies."),
        ("requestheader-allowed-names", "list", "[]", "Names of front proxies; any if empty."),
        ("requestheader-username-headers", "list", "[x-remote-user]", "Headers with the user."),
        ("requestheader-uid-headers", "list", "[]", "Headers with the user's UID."),
        ("requestheader-group-headers", "list", "[x-remote-group]", "Headers with groups."),
        (
            "requestheader-extra-headers-prefix",
            "list",
            "[x-remote-extra-]",
            "Prefixes of headers with more about the user.",
        ),
    ),
    *_flags(
        _AUTHZ,
        ("authorization-kubeconfig", "string", "", "Kubeconfig for SubjectAccessReviews."),
        (
            "authorization-always-allow-paths",
            "list",
            "[/healthz,/readyz,/livez]",
            "Paths that need no authorization; a * at the end stands for all paths below.",
        ),
        (
            "authorization-webhook-cache-authorized-ttl",
            "duration",
            "10s",
            "Time for which an allowing SubjectAccessReview is cached.",
        ),
        (
            "authorization-webhook-cache-unauthorized-ttl",
            "duration",
            "10s",
            "Time for which a denying SubjectAccessReview is cached.",
        ),
    ),
    Flag("feature-gates", "list", "", _GATES, "Gates to set: A=true,B=false."),
    *_flags(
        _GATES,
        (
            "emulated-version",
            "list",
            f"[kube={DEFAULT_VERSION}]",
            "Kubernetes version to behave as, 1.36 or 1.37; not newer than the apiserver.",
        ),
        (
            "min-compatibility-version",
            "list",
            f"[kube={DEFAULT_VERSION.previous()}]",
            "Oldest version in the same cluster; some gates are on only without older ones.",
        ),
    ),
    *_flags(
        _METRICS,
        ("disabled-metrics", "list", "[]", "Metrics not to expose."),
        ("allow-metric-labels", "map", "", "metric,label='v1,v2': other values are unexpected."),
        ("allow-metric-labels-manifest", "string", "", "File with such a mapping."),
    ),
    *_flags(
        _METRICS,
        (
            "show-hidden-metrics-for-version",
            "string",
            "",
            "Show metrics that have been hidden since this version, the one before the emulated.",
        ),
    ),
    Flag("v", "int", "0", _LOGS, "Verbosity of logs.", short="v"),
    *_flags(
        _LOGS,
        ("vmodule", "string", "", "Verbosity of modules: pattern=N,…; text format only."),
        ("logging-format", "string", "text", "text or json."),
    ),
    *_ignored(
        _LOGS,
        ("log-flush-frequency", "duration", "5s", "Logs are written at once."),
        ("log-text-split-stream", "bool", "false", "All logs go to stderr."),
        ("log-json-split-stream", "bool", "false", "All logs go to stderr."),
        ("log-text-info-buffer-size", "string", "0", "Logs are written at once."),
        ("log-json-info-buffer-size", "string", "0", "Logs are written at once."),
    ),
    *_flags(
        _OURS,
        (
            "plugin",
            "list",
            "[]",
            "Plugin to load, as module:Class; may be repeated. Without --config it is enabled.",
        ),
        (
            "plugin-dir",
            "list",
            "[]",
            "Folder with .py files of plugins to load; may be repeated.",
        ),
        (
            "corrections",
            "list",
            "[]",
            "Faults of kube-scheduler to correct, by the names in docs/parity.md; none by default.",
        ),
        (
            "follow-files",
            "bool",
            "true",
            "Reload the configuration file and plugin files when they change. SIGHUP always does.",
        ),
        (
            "plugin-time-budget",
            "duration",
            "100ms",
            "Time limit of an out-of-tree plugin at one extension point for a pod.",
        ),
        (
            "plugin-failure-policy",
            "string",
            "fail",
            "What to do with an out-of-tree plugin that fails, or exceeds its time budget, 5 times "
            "in a row: fail (keep calling it) or skip (disable it for a while).",
        ),
        (
            "plugin-await-timeout",
            "duration",
            "30s",
            "Time limit of an out-of-tree plugin that waits in a call of the scheduling cycle, and "
            "of a reload that imports plugins; 0s: no limit.",
        ),
        (
            "plugin-bind-timeout",
            "duration",
            "10m0s",
            "Time limit of PreBind or Bind of an out-of-tree plugin for a pod; 0s: no limit.",
        ),
        (
            "plugin-blocked-exit-timeout",
            "duration",
            "15s",
            "Time for which an out-of-tree plugin may block the event loop before the process "
            "ends; 0s: no limit.",
        ),
        (
            "blocked-plugins-file",
            "string",
            "",
            "File that names plugins which ended the process in this way. The next start leaves "
            "them out if --plugin-failure-policy is skip. Default: "
            "proreus-UID/blocked-plugins.json in the folder for temporary files.",
        ),
        (
            "attempt-time-budget",
            "duration",
            "1s",
            "Time that the scheduler may compute in one attempt to schedule a pod; 0s: no limit.",
        ),
        (
            "loop-blocked-threshold",
            "duration",
            "250ms",
            "Log the plugin that blocks the event loop for this long; 0s: never.",
        ),
        (
            "cycle-stuck-threshold",
            "duration",
            "1m0s",
            "Release the Lease, and fail /livez, when a scheduling cycle takes this long or the "
            "event loop is blocked for this long; 0s: never.",
        ),
        (
            "cache-compare-interval",
            "duration",
            "5m0s",
            "Time between two comparisons of the scheduler's state with the apiserver, which "
            "correct it; 0s: on SIGUSR2 only.",
        ),
        (
            "kubelet-rejection-threshold",
            "int",
            "3",
            "Rejections by a kubelet after which the pods of a controller avoid that node for a "
            "while; 0: never.",
        ),
        (
            "kubelet-rejection-max-duration",
            "duration",
            "10m0s",
            "Longest time for which pods avoid such a node; 30s at first, doubled each time.",
        ),
        (
            "delete-overcommitting-pods",
            "bool",
            "false",
            "Delete pods of ours that have not started from nodes that another scheduler's binding "
            "has over-committed, if a controller creates them again.",
        ),
        (
            "decision-record-bytes",
            "int",
            "67108864",
            "Memory for the record of decisions that `proreus explain` reads; 0: record nothing.",
        ),
        (
            "enable-dry-run",
            "bool",
            "false",
            "Answer on the secure port where pods would be placed, with nodes added or removed; "
            "see docs/dry-run.md.",
        ),
        (
            "dashboard",
            "bool",
            "false",
            "Serve a page for browsers at /dashboard/, authenticated and authorized as /metrics "
            "is.",
        ),
        (
            "plugin-endpoint",
            "list",
            "[]",
            "Address of an out-of-process plugin: unix:///path/to/socket or http://127.0.0.1:port; "
            "may be repeated. Without --config it is enabled.",
        ),
        (
            "plugin-slot",
            "list",
            "[]",
            "Name of an out-of-process plugin that may register at run time; may be repeated.",
        ),
        (
            "record-arrivals",
            "string",
            "",
            "File for a recording of arriving and departing pods, for proreus simulate --replay; "
            "an existing file is replaced. Without env and Secrets, at most 1 GiB.",
        ),
        (
            "assumed-pod-expiration",
            "duration",
            "0s",
            "Forget an assumed pod that the apiserver has not confirmed after this time; 0s: "
            "never.",
        ),
    ),
    Flag(
        "dashboard-insecure-local",
        "string",
        "",
        _OURS,
        "Serve the dashboard over plain HTTP without authentication too, on this loopback address "
        "and port.",
        no_opt_default="127.0.0.1:10260",
    ),
    *SHADOW_FLAGS,
)
