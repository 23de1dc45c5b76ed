"""The phase of a process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import Struct, field

from proreus.config.types import SchedulerConfiguration
from proreus.process.loading.loaded_plugins import PluginFile


class ProcessState(Struct):
    """The phase of a process. ``config`` is the configuration in force.

    ``synced``: all informers have their first list. ``leads``: scheduling has begun. ``stopping``:
    the process is about to end. ``last_reload``: result of the latest reload, for /configz.
    ``plugin_files``: the out-of-tree plugin files in force, for /pluginz and /configz. ``shadow``:
    returns the body of /shadowz. ``leader``: returns the holder of the Lease, "" for none.
    """

    config: SchedulerConfiguration
    synced: bool = False
    leads: bool = False
    stopping: bool = False
    last_reload: dict[str, Any] | None = None
    plugin_files: list[PluginFile] = field(default_factory=list)
    shadow: Callable[[], dict[str, Any]] = dict
    leader: Callable[[], str] = str

    def standby(self) -> str:
        """Return whom to ask instead of this instance, as a sentence; "" while it leads."""
        if self.leads:
            return ""
        holder = self.leader()
        if not holder:
            return "this instance does not lead, and knows no other that does"
        pod = holder.partition("_")[0]
        return f"this instance does not lead; ask {pod}, which holds the Lease (as {holder})"
