"""Serves over HTTPS the health, metrics, configuration and plugins of the process."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
from aiohttp import web

from proreus import __version__
from proreus.base.clock import RealClock
from proreus.base.errors import ConfigError, UnknownPluginSlot
from proreus.base.kubernetes_version import Change
from proreus.client.watching.informer_factory import InformerFactory
from proreus.config.durations import format_duration
from proreus.config.write import to_data
from proreus.engine.assembly import Assembly
from proreus.engine.scheduler import Scheduler
from proreus.insight.decisions.recorder import DecisionRecorder
from proreus.insight.dry_run.pages import add_dry_run_pages
from proreus.insight.dry_run.service import DryRunService
from proreus.insight.explain import Explainer
from proreus.insight.explain.pages import add_explain_pages
from proreus.insight.page_sources import PageSources
from proreus.objects.codec import DecodeError, decode_strictly
from proreus.objects.kinds import PODS
from proreus.objects.pod import Pod
from proreus.process.loop_watchdog import StuckCycle
from proreus.process.options import RunOptions
from proreus.process.outer_rooms import registered_section
from proreus.process.process import Foundation
from proreus.process.process_state import ProcessState
from proreus.process.remote_plugins import RemotePlugins
from proreus.server.health import HealthCheck
from proreus.server.responses import json_body, method_not_allowed
from proreus.server.server import EndpointSources, Server

_BINDINGS_SHOWN = 100
_REGISTRATION = "/plugins/v1/register"
"""Out-of-process plugins take a slot here at run time, and leave it. Requests are authorized before
(nonResourceURL, verbs get, post and delete)."""


def make_server(
    on: Foundation,
    state: ProcessState,
    stores: InformerFactory,
    assembly: Assembly,
    recorder: DecisionRecorder | None,
    stuck_cycle: StuckCycle,
) -> Server:
    """Return the server of a process; it reads ``state`` anew for each request.

    ``recorder``: None records nothing.
    """
    options, clients, scheduler = on.options, on.clients, assembly.scheduler

    def why_not_synced() -> str | None:
        return None if state.synced else "handlers are not fully synchronized"

    def leader_pods() -> Iterable[Pod] | None:
        return stores.store(PODS).values() if state.leads else None

    def why_not_authenticated() -> str | None:
        # For shorter, the apiserver may only be busy with a rotation of its own.
        lease = state.config.leader_election
        return clients.authentication_problem(lease.lease_duration_seconds)

    # Always healthy: a lost Lease ends the process at once. kube-scheduler lists this check, and
    # probes of its manifests may name it.
    elects = state.config.leader_election.leader_elect
    authenticated = HealthCheck("authentication", why_not_authenticated)
    election = (HealthCheck("leaderElection", lambda: None),) if elects else ()
    server = Server(
        options.serving,
        EndpointSources(
            binary_version=str(options.feature_gates.emulation_version),
            emulation_version=str(options.feature_gates.emulation_version),
            metrics=scheduler.metrics,
            healthz=election,
            livez=(HealthCheck("scheduling-cycle", stuck_cycle.problem), authenticated),
            readyz=(
                *election,
                authenticated,
                HealthCheck("shutdown", lambda: "shutting down" if state.stopping else None),
                HealthCheck("sched-handler-sync", why_not_synced),
            ),
            configz=lambda: to_data(state.config, options.feature_gates),
            last_reload=lambda: state.last_reload,
            plugin_files=lambda: state.plugin_files,
            flags=options.flags,
            leader_pods=leader_pods,
            partial_limits=not options.feature_gates.includes(Change.PARTIAL_LIMITS_OMITTED),
            profiling=state.config.enable_profiling,
        ),
        authentication_api=clients.authentication,
        authorization_api=clients.authorization,
    )
    if options.plugin_slots:
        server.add_page(
            _REGISTRATION, lambda request: _registration_page(on.remote_plugins, request)
        )
    if options.shadow is not None:
        server.add_page("/shadowz", lambda _: json_body(state.shadow()))
    explainer = Explainer(scheduler, recorder, stores.store(PODS), RealClock())
    add_explain_pages(server, explainer, state.standby)
    if options.dry_runs or options.dashboard:
        # One for all: its limits are those of the process.
        dry_runs = DryRunService(assembly)
        if options.dry_runs:
            add_dry_run_pages(server, dry_runs, state.standby)

    def plugin_health() -> dict[str, Any]:
        return {
            **_plugin_health(options, scheduler, state),
            "blockedPlugins": on.watchdog.blocked_plugins.describe(),
        }

    server.add_page("/pluginz", lambda _: json_body(plugin_health()))
    if options.dashboard:
        sources = PageSources(
            scheduler,
            explainer,
            stores.store(PODS),
            standby=state.standby,
            synced=lambda: state.synced,
            last_reload=lambda: state.last_reload,
            plugin_health=plugin_health,
            dry_runs=lambda: dry_runs,
            version=f"{__version__}, as kube-scheduler {options.feature_gates.emulation_version}",
        )
        server.add_section(registered_section("dashboard")(sources, options.dashboard_address))
    return server


def _plugin_health(
    options: RunOptions, scheduler: Scheduler, state: ProcessState
) -> dict[str, Any]:
    """Return the body of /pluginz: out-of-tree plugins, their files, and the pods being bound."""
    rules = options.plugin_rules
    health_monitors = [
        health for profile in scheduler.profiles.values() for health in profile.health_monitors
    ]
    return {
        "failurePolicy": rules.policy,
        "timeBudget": format_duration(rules.budget_seconds),
        "failuresInARowAllowed": rules.failures - 1,
        "awaitTimeout": format_duration(rules.await_seconds),
        "bindTimeout": format_duration(rules.bind_seconds),
        "blockedExitTimeout": format_duration(options.plugin_blocked_exit_seconds),
        "plugins": [health.describe() for health in health_monitors],
        "bindings": scheduler.describe_bindings(_BINDINGS_SHOWN),
        "files": state.plugin_files,
    }


class Registration(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of a POST."""

    endpoint: str
    descriptor: msgspec.Raw = msgspec.Raw()  # empty: not posted


class Withdrawal(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of a DELETE."""

    name: str


async def _registration_page(plugins: RemotePlugins, request: web.BaseRequest) -> web.Response:
    """Return the response to a request for ``_REGISTRATION``."""
    if request.method == "GET":
        return json_body({"slots": list(plugins.slots())})
    if request.method not in ("POST", "DELETE"):
        return method_not_allowed("GET", "POST", "DELETE")
    body = await request.read()
    try:
        if request.method == "POST":
            wanted = decode_strictly(body, Registration)
            posted = bytes(wanted.descriptor)
            return json_body(await plugins.register(wanted.endpoint, posted))
        named = decode_strictly(body, Withdrawal)
        return json_body(await plugins.withdraw(named.name))
    except UnknownPluginSlot as error:
        return json_body({"error": str(error)}, status=404)
    except (ConfigError, DecodeError) as error:
        return json_body({"error": str(error)}, status=400)
