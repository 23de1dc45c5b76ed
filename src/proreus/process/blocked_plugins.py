"""Notes the plugins that blocked the event loop until the process ended.

    process 1   a plugin blocks ─► ``record`` (from the watchdog's thread) ─► the process ends
    process 2   plugins are loaded ─► ``apply``: with the policy ``skip`` the plugin is left out

An entry holds for the very content that blocked (``LoadedPlugins.content_of``), so that a version
that was repaired is called again.
"""

from __future__ import annotations

import os
import stat
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import msgspec
from msgspec import Struct

from proreus.base import logs
from proreus.engine.runtime.plugin_health import FailurePolicy, PluginCall
from proreus.framework.plugin import Plugin
from proreus.process.loading.loaded_plugins import LoadedPlugins

log = logs.logger(__name__)


class BlockedCall(Struct, frozen=True):
    """The call in which a plugin blocked. ``content``: ``content_of``; ``time``: RFC 3339."""

    content: str
    point: str
    time: str


def default_path() -> Path:
    """Return the note's place where no flag states one: a folder of this user's own."""
    return Path(tempfile.gettempdir()) / f"proreus-{os.getuid()}" / "blocked-plugins.json"


class BlockedPlugins:
    """The note, by plugin, and the contents of the plugins that were loaded."""

    def __init__(self, path: Path, policy: FailurePolicy) -> None:
        self.path = path
        self._policy = policy
        # By class, not by name: an older version may still bind pods that it assumed. Weakly, since
        # a class keeps all that its module has.
        self._contents: WeakKeyDictionary[type[Plugin], str] = WeakKeyDictionary()

    def apply(self, loaded_plugins: LoadedPlugins) -> None:
        """Disable the plugins that blocked, if the policy is ``skip``; log them otherwise."""
        entries = self._read()
        for name, one in loaded_plugins.out_of_tree.items():
            content = self._contents[one.plugin] = loaded_plugins.content_of(name)
            entry = entries.get(name)
            if entry is None or entry.content != content:
                continue
            because = f"it blocked the event loop at {entry.point}, {entry.time}"
            if self._policy == "skip":
                loaded_plugins.disable(name, because)
                log.warning("Plugin is disabled until it is changed", plugin=name, because=because)
            else:
                log.warning("Plugin ended the last process", plugin=name, because=because)

    def record(self, call: PluginCall) -> bool:
        """Add a plugin to the note; return whether that was possible. From any thread."""
        content = self._contents.get(call.owner, "") if call.owner else ""
        if call.owner is None or not content:
            return False
        now = datetime.now(UTC).isoformat(timespec="seconds")
        entry = BlockedCall(content, call.point, now)
        try:
            self._write({**self._read(), call.owner.name: entry})
        except OSError as error:
            log.error("Cannot record a blocked plugin", err=error, file=str(self.path))
            return False
        return True

    def describe(self) -> dict[str, Any]:
        """Return the note as JSON-compatible data, for /pluginz."""
        return {"file": str(self.path), "entries": msgspec.to_builtins(self._read())}

    def _read(self) -> dict[str, BlockedCall]:
        try:
            # The default place is in a folder that everybody may write to.
            if self.path.stat().st_uid not in (os.getuid(), 0):
                raise PermissionError("it belongs to another user")
            return msgspec.json.decode(self.path.read_bytes(), type=dict[str, BlockedCall])
        except FileNotFoundError:
            return {}
        except (OSError, msgspec.DecodeError) as error:
            log.error("Cannot read the blocked plugins", err=error, file=str(self.path))
            return {}

    def _write(self, entries: dict[str, BlockedCall]) -> None:
        """Replace the file as a whole, since the process may be killed at any moment."""
        folder = self.path.parent
        folder.mkdir(mode=stat.S_IRWXU, parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=folder, delete=False) as file:
            file.write(msgspec.json.format(msgspec.json.encode(entries)))
        os.replace(file.name, self.path)
