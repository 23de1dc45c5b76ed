"""The phase of a process, the parts that it runs with, and those that its server reads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from msgspec import Struct, field

from proreus.client.watching.informer_factory import InformerFactory
from proreus.config.types import SchedulerConfiguration
from proreus.engine.assembly import Assembly
from proreus.insight.decisions import DecisionRecorder
from proreus.process.blocked_plugins import BlockedPlugins
from proreus.process.clients import Clients
from proreus.process.loading import PluginFile
from proreus.process.loop_watchdog import StuckCycle
from proreus.process.options import RunOptions
from proreus.process.remote_plugins import RemotePlugins


class ProcessState(Struct):
    """The phase of a process. ``config`` is the configuration in force.

    ``synced``: all informers have their first list. ``leads``: scheduling has begun. ``stopping``:
    the process is about to end. ``last_reload``: result of the latest reload, for /configz.
    ``plugin_files``: the out-of-tree plugin files in force, for /pluginz and /configz. ``shadow``:
    returns the body of /shadowz.
    """

    config: SchedulerConfiguration
    synced: bool = False
    leads: bool = False
    stopping: bool = False
    last_reload: dict[str, Any] | None = None
    plugin_files: list[PluginFile] = field(default_factory=list)
    shadow: Callable[[], dict[str, Any]] = dict


@dataclass(frozen=True)
class ServedParts:
    """The parts of a process that its server reads from. ``recorder``: None records nothing."""

    options: RunOptions
    state: ProcessState
    stores: InformerFactory
    clients: Clients
    remote_plugins: RemotePlugins
    stuck_cycle: StuckCycle
    blocked_plugins: BlockedPlugins
    recorder: DecisionRecorder | None
    assembly: Assembly
