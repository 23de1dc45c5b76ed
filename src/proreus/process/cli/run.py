"""``proreus run``: turn kube-scheduler's flags into ``RunOptions``, and run the scheduler."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

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
from proreus.base.logs import parse_vmodule
from proreus.engine.guards.avoided_nodes import AvoidanceRules
from proreus.engine.runtime.plugin_health import FailureRules
from proreus.process import gc_tuning
from proreus.process import run as process
from proreus.process.cli.go_flags import FlagError, ParsedFlags, parse_flags
from proreus.process.cli.run_flags import FLAGS
from proreus.process.loading.load import PluginSources
from proreus.process.options import RunOptions, ShadowOptions
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
        *values.problems(),
        *_vmodule_problems(values),
        *_shadow_problems(values),
        *_hidden_metrics_problems(values, gates.emulation_version),
    ]
    if problems:
        raise FlagError("; ".join(problems))
    explicit = values.explicit
    return values.options(
        RunOptions,
        # qps and burst also have a place in the configuration file: None lets that decide.
        kube_api_qps=values["kube-api-qps"] if "kube-api-qps" in explicit else None,
        kube_api_burst=values["kube-api-burst"] if "kube-api-burst" in explicit else None,
        max_unschedulable_seconds=values["pod-max-in-unschedulable-pods-duration"],
        assumed_pod_expiration_seconds=values["assumed-pod-expiration"] or None,
        leader_election=_leader_election(values),
        serving=serving,
        feature_gates=gates,
        gate_settings=values["feature-gates"],
        emulates_given_version="emulated-version" in explicit,
        show_hidden_metrics=bool(values["show-hidden-metrics-for-version"]),
        allow_metric_labels=_allowed_labels(values),
        verbosity=values["v"],
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
        avoidance_rules=AvoidanceRules(
            values["kubelet-rejection-threshold"], values["kubelet-rejection-max-duration"]
        ),
        plugin_blocked_exit_seconds=values["plugin-blocked-exit-timeout"],
        dry_runs=values["enable-dry-run"],
        dashboard=values["dashboard"] or bool(values["dashboard-insecure-local"]),
        dashboard_address=_dashboard_address(values["dashboard-insecure-local"]),
        plugin_endpoints=values["plugin-endpoint"],
        plugin_slots=values["plugin-slot"],
        shadow=_shadow(values),
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


def _has_candidate(values: ParsedFlags) -> bool:
    return bool(values["shadow-config"] or values["shadow-plugin-dir"])


def _shadow_problems(values: ParsedFlags) -> Iterator[str]:
    given = [name for name in values.explicit if name.startswith("shadow-")]
    if given and not _has_candidate(values):
        yield f"--{min(given)}: needs --shadow-config or --shadow-plugin-dir"
    if not (values["shadow-pods"] or values["shadow-duration"]):
        yield "--shadow-pods, --shadow-duration: one of them must be greater than zero"
    if not 0 < values["shadow-sample"] <= 1:
        yield "--shadow-sample: must be greater than zero and at most 1"
    if not 0 <= values["shadow-max-differences"] <= 1:
        yield "--shadow-max-differences: must be between zero and 1"


def _shadow(values: ParsedFlags) -> ShadowOptions | None:
    """Return the candidate to try in the shadow, or None without one."""
    if not _has_candidate(values):
        return None
    return values.options(
        ShadowOptions,
        "shadow-",
        plugin_folders=values["shadow-plugin-dir"],
        adopt=values["shadow-on-success"] == "adopt",
    )


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
    ttl = "authorization-webhook-cache-{}-ttl"
    return values.options(
        ServingOptions,
        tls_sni_cert_keys=tuple(map(_sni, values.given.get("tls-sni-cert-key", ()))),
        authentication=values.options(
            AuthenticationOptions,
            "authentication-",
            token_cache_ttl_seconds=values["authentication-token-webhook-cache-ttl"],
            client_ca_file=values["client-ca-file"],
            request_header=values.options(
                RequestHeaderOptions,
                "requestheader-",
                ca_file=values["requestheader-client-ca-file"],
            ),
        ),
        authorization=values.options(
            AuthorizationOptions,
            "authorization-",
            authorized_ttl_seconds=values[ttl.format("authorized")],
            unauthorized_ttl_seconds=values[ttl.format("unauthorized")],
        ),
    )


def _leader_election(values: ParsedFlags) -> dict[str, Any]:
    """Return the given flags by the field names of ``config.types.LeaderElection``.

    They override the configuration file.
    """
    found = {}
    for flag in values.explicit:
        if flag.startswith("leader-elect"):
            name = flag.removeprefix("leader-elect-").replace("-", "_")
            suffix = "_seconds" if values.flags[flag].kind == "duration" else ""
            found[name + suffix] = values[flag]
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


def _vmodule_problems(values: ParsedFlags) -> Iterator[str]:
    try:
        if parse_vmodule(values["vmodule"]) and values["logging-format"] == "json":
            yield "--vmodule: only allowed for the text logging format"
    except ValueError as error:
        yield str(error)


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
