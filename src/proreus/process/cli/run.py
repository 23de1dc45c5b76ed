"""``proreus run``: turn kube-scheduler's flags into ``RunOptions``, and run the scheduler."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import uvloop
import yaml

import proreus
from proreus.base import yaml_limits
from proreus.base.errors import ConfigError, ProreusError, explained
from proreus.base.feature_gates import FeatureGates
from proreus.base.known_faults import KnownFault, parse_corrections
from proreus.base.kubernetes_version import (
    DEFAULT_VERSION,
    SUPPORTED_VERSIONS,
    KubernetesVersion,
    parse_emulated_version,
)
from proreus.base.logs import Format, parse_vmodule
from proreus.engine.guards.avoided_nodes import AvoidanceRules
from proreus.engine.runtime.plugin_health import FailureRules
from proreus.process import gc_tuning
from proreus.process import run as process
from proreus.process.cli.go_flags import FlagError, ParsedFlags, parse_flags
from proreus.process.cli.run_flags import FLAGS, LEADER_ELECTION
from proreus.process.cli.shadow_flags import shadow_options
from proreus.process.loading import PluginSources
from proreus.process.options import RunOptions
from proreus.process.stopping import end_within_time
from proreus.server.options import (
    AuthenticationOptions,
    AuthorizationOptions,
    RequestHeaderOptions,
    ServingOptions,
    SniCertificate,
)


def main(arguments: Sequence[str]) -> int | None:
    """Run the subcommand, and return its exit code; None where its help is asked for.

    ``run_command.command`` is the same for click, which has the help.
    """
    try:
        values = parse_flags({flag.name: flag for flag in FLAGS}, arguments, "proreus run")
        return None if values is None else run(values)
    except ProreusError as error:
        print(f"Error: {explained(error)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def run(values: ParsedFlags) -> int:
    """Run a scheduler until it ends, or print its version; return the exit code."""
    if values["version"] != "false":
        print(version_text(raw=values["version"] == "raw"))
        return 0
    gc_tuning.use_one_heap()
    options = run_options(values)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(process.run(options, end_within_time))


def version_text(*, raw: bool = False) -> str:
    """Return the output of ``--version``: the version of Kubernetes and of proreus."""
    if raw:
        major, minor = DEFAULT_VERSION
        return f'{{Major:"{major}", Minor:"{minor}", GitVersion:"{git_version()}"}}'
    return f"Kubernetes {git_version()}"


def git_version(version: KubernetesVersion = DEFAULT_VERSION) -> str:
    """Return the version of a kube-scheduler that is emulated, in the form of its own."""
    return f"v{version}.0+proreus.{proreus.__version__}"


def run_options(values: ParsedFlags) -> RunOptions:
    """Return the flags as options; raises ``FlagError`` if they are invalid or contradictory."""
    gates = _feature_gates(values)
    serving = _serving(values)
    problems = [
        *serving.problems(),
        *_log_problems(values),
        *_plugin_problems(values),
        *_hidden_metrics_problems(values, gates.emulation_version),
        *_record_problems(values),
    ]
    if problems:
        raise FlagError("; ".join(problems))
    explicit = values.explicit
    # qps and burst also have a place in the configuration file: None lets that decide.
    return RunOptions(
        config=values["config"],
        write_config_to=values["write-config-to"],
        master=values["master"],
        kubeconfig=values["kubeconfig"],
        profiling=values["profiling"],
        kube_api_qps=values["kube-api-qps"] if "kube-api-qps" in explicit else None,
        kube_api_burst=values["kube-api-burst"] if "kube-api-burst" in explicit else None,
        max_unschedulable_seconds=values["pod-max-in-unschedulable-pods-duration"],
        assumed_pod_expiration_seconds=values["assumed-pod-expiration"] or None,
        leader_election=_leader_election(values),
        serving=serving,
        feature_gates=gates,
        gate_settings=values["feature-gates"],
        emulates_given_version="emulated-version" in explicit,
        disabled_metrics=values["disabled-metrics"],
        show_hidden_metrics=bool(values["show-hidden-metrics-for-version"]),
        allow_metric_labels=_allowed_labels(values),
        verbosity=values["v"],
        vmodule=values["vmodule"],
        logging_format=cast("Format", values["logging-format"]),
        flags=values.texts(),
        flags_without_effect=tuple(values.without_effect()),
        version=git_version(gates.emulation_version).removeprefix("v"),
        plugins=PluginSources(values["plugin"], values["plugin-dir"]),
        plugin_rules=FailureRules(
            values["plugin-failure-policy"],
            values["plugin-time-budget"],
            end_at_budget=True,
            attempt_seconds=values["attempt-time-budget"],
            await_seconds=values["plugin-await-timeout"],
            bind_seconds=values["plugin-bind-timeout"],
        ),
        loop_blocked_threshold_seconds=values["loop-blocked-threshold"],
        cycle_stuck_threshold_seconds=values["cycle-stuck-threshold"],
        cache_compare_interval_seconds=values["cache-compare-interval"],
        avoidance_rules=AvoidanceRules(
            values["kubelet-rejection-threshold"], values["kubelet-rejection-max-duration"]
        ),
        delete_overcommitting_pods=values["delete-overcommitting-pods"],
        plugin_blocked_exit_seconds=values["plugin-blocked-exit-timeout"],
        blocked_plugins_file=values["blocked-plugins-file"],
        decision_record_bytes=values["decision-record-bytes"],
        dry_runs=values["enable-dry-run"],
        dashboard=values["dashboard"] or bool(values["dashboard-insecure-local"]),
        dashboard_address=_dashboard_address(values["dashboard-insecure-local"]),
        follow_files=values["follow-files"],
        plugin_endpoints=values["plugin-endpoint"],
        plugin_slots=values["plugin-slot"],
        shadow=shadow_options(values),
        record_arrivals=values["record-arrivals"],
    )


def _feature_gates(values: ParsedFlags) -> FeatureGates:
    """Return the gates for the emulated version, which the apiserver's version has to confirm."""
    explicit = values.explicit
    least = None
    if "min-compatibility-version" in explicit:
        least = _version(values, "min-compatibility-version")
    # Without the flag an older apiserver's version decides, which is not known yet: a gate of an
    # older version is no error before that.
    versions = [version for version in reversed(SUPPORTED_VERSIONS) if version <= DEFAULT_VERSION]
    if "emulated-version" in explicit:
        versions = [_version(values, "emulated-version")]
    corrections = _corrections(values)
    errors = []
    for version in versions:
        if least is not None and least > version:
            raise FlagError(
                f"minCompatibilityVersion version {least} is not between "
                f"[{SUPPORTED_VERSIONS[0].previous()}, {version}]"
            )
        try:
            return FeatureGates.from_list(values["feature-gates"], version, least, corrections)
        except ConfigError as error:
            errors.append(error)
    raise FlagError(f'invalid argument for "--feature-gates" flag: {errors[0]}') from errors[0]


def _corrections(values: ParsedFlags) -> frozenset[KnownFault]:
    try:
        return parse_corrections(values["corrections"], 'invalid argument for "--corrections" flag')
    except ConfigError as error:
        raise FlagError(str(error)) from error


def _hidden_metrics_problems(values: ParsedFlags, version: KubernetesVersion) -> Iterator[str]:
    asked, valid = values["show-hidden-metrics-for-version"], str(version.previous())
    if asked not in ("", valid):
        yield (
            f'showHiddenMetricsForVersion: Invalid value: "{asked}": must be omitted or have the '
            f"value '{valid}'; only the previous minor version is allowed"
        )


def _record_problems(values: ParsedFlags) -> Iterator[str]:
    if values["decision-record-bytes"] < 0:
        yield "--decision-record-bytes: must be zero or greater"


def _dashboard_address(text: str) -> tuple[str, int] | None:
    if not text:
        return None
    from proreus.server.local_server import parse_local_address

    try:
        return parse_local_address(text)
    except ConfigError as error:
        raise FlagError(str(error)) from error


def _version(values: ParsedFlags, flag: str) -> KubernetesVersion:
    """Return the version of a flag: ``1.36`` or ``kube=1.36``."""
    found = None
    for text in values[flag]:
        component, equals, version = text.rpartition("=")
        if equals and component != "kube":
            raise FlagError(
                f'invalid argument for "--{flag}" flag: component not registered: {component}'
            )
        try:
            if flag == "emulated-version":
                found = parse_emulated_version(version, f'invalid argument for "--{flag}" flag')
            else:
                found = KubernetesVersion.parse(version)
        except (ConfigError, ValueError) as error:
            raise FlagError(str(error)) from error
    if found is None:
        raise FlagError(f'invalid argument for "--{flag}" flag: a version is missing')
    return found


def _serving(values: ParsedFlags) -> ServingOptions:
    return ServingOptions(
        bind_address=values["bind-address"],
        secure_port=values["secure-port"],
        cert_dir=values["cert-dir"],
        tls_cert_file=values["tls-cert-file"],
        tls_private_key_file=values["tls-private-key-file"],
        tls_sni_cert_keys=tuple(map(_sni, values.given.get("tls-sni-cert-key", ()))),
        tls_cipher_suites=values["tls-cipher-suites"],
        tls_min_version=values["tls-min-version"],
        permit_port_sharing=values["permit-port-sharing"],
        permit_address_sharing=values["permit-address-sharing"],
        authentication=_authentication(values),
        authorization=AuthorizationOptions(
            kubeconfig=values["authorization-kubeconfig"],
            always_allow_paths=values["authorization-always-allow-paths"],
            authorized_ttl_seconds=values["authorization-webhook-cache-authorized-ttl"],
            unauthorized_ttl_seconds=values["authorization-webhook-cache-unauthorized-ttl"],
        ),
    )


def _authentication(values: ParsedFlags) -> AuthenticationOptions:
    return AuthenticationOptions(
        kubeconfig=values["authentication-kubeconfig"],
        skip_lookup=values["authentication-skip-lookup"],
        tolerate_lookup_failure=values["authentication-tolerate-lookup-failure"],
        token_cache_ttl_seconds=values["authentication-token-webhook-cache-ttl"],
        client_ca_file=values["client-ca-file"],
        request_header=RequestHeaderOptions(
            ca_file=values["requestheader-client-ca-file"],
            allowed_names=values["requestheader-allowed-names"],
            username_headers=values["requestheader-username-headers"],
            uid_headers=values["requestheader-uid-headers"],
            group_headers=values["requestheader-group-headers"],
            extra_headers_prefix=values["requestheader-extra-headers-prefix"],
        ),
    )


def _leader_election(values: ParsedFlags) -> dict[str, Any]:
    """Return the given flags by the field names of ``config.types.LeaderElection``."""
    suffix = {"lease_duration", "renew_deadline", "retry_period"}
    found = {}
    for flag in LEADER_ELECTION:
        if flag in values.explicit:
            name = flag.removeprefix("leader-elect-").replace("-", "_")
            found[f"{name}_seconds" if name in suffix else name] = values[flag]
    return found


def _sni(text: str) -> SniCertificate:
    files, _, names = text.partition(":")
    certificate, comma, key = files.partition(",")
    if not comma:
        raise FlagError(
            f'invalid argument "{text}" for "--tls-sni-cert-key" flag: '
            "expected comma separated certificate and key file paths"
        )
    return SniCertificate(certificate, key, tuple(filter(None, names.split(","))))


def _log_problems(values: ParsedFlags) -> list[str]:
    found = []
    if values["logging-format"] not in ("text", "json"):
        found.append(
            f'--logging-format: "{values["logging-format"]}" is not supported, '
            "allowed are text and json"
        )
    try:
        if parse_vmodule(values["vmodule"]) and values["logging-format"] == "json":
            found.append("--vmodule: only allowed for the text logging format")
    except ValueError as error:
        found.append(str(error))
    return found


def _plugin_problems(values: ParsedFlags) -> list[str]:
    found = []
    if (policy := values["plugin-failure-policy"]) not in ("fail", "skip"):
        found.append(
            f'--plugin-failure-policy: "{policy}" is not supported, allowed are fail and skip'
        )
    for flag in ("plugin-time-budget", "kubelet-rejection-max-duration"):
        if values[flag] <= 0:
            found.append(f"--{flag}: must be greater than zero")
    for flag in (
        "attempt-time-budget",
        "plugin-await-timeout",
        "plugin-bind-timeout",
        "plugin-blocked-exit-timeout",
        "loop-blocked-threshold",
        "cycle-stuck-threshold",
        "cache-compare-interval",
        "kubelet-rejection-threshold",
    ):
        if values[flag] < 0:
            found.append(f"--{flag}: must be zero or greater")
    return found


def _allowed_labels(values: ParsedFlags) -> dict[str, tuple[str, ...]]:
    allowed: dict[str, str] = dict(values["allow-metric-labels"])
    path = values["allow-metric-labels-manifest"]
    if path:
        flag = f"--allow-metric-labels-manifest {path}"
        try:
            manifest = yaml_limits.load(Path(path).read_bytes())
        except (OSError, ValueError, yaml.YAMLError) as error:
            raise FlagError(f"{flag}: {error}") from error
        if not isinstance(manifest, dict):
            raise FlagError(f"{flag}: it must be a mapping of metric,label to values")
        allowed = {**{str(key): str(value) for key, value in manifest.items()}, **allowed}
    return {key: tuple(item.strip() for item in text.split(",")) for key, text in allowed.items()}
