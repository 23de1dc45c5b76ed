"""The record of plugins that blocked the event loop and could not be interrupted.

    process 1   a plugin blocks ─► ``record`` (from the watchdog's thread) ─► the process ends
    process 2   plugins are loaded ─► ``apply``: by policy the plugin is disabled, or refused

The file outlasts the process: without it, the next one would block at the same plugin, and so on.
An entry holds for the very content that blocked (``LoadedPlugins.content_of``), so that a version
that was repaired is called again.
"""

from __future__ import annotations

import json
import os
import stat
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from time import time
from typing import Any, TypedDict
from weakref import WeakKeyDictionary

from proreus import logs
from proreus.app.stack_dump import PluginInUse, StackDump
from proreus.framework.plugin import Plugin
from proreus.loading import LoadedPlugins
from proreus.runtime.calls import POINT_OF_METHOD
from proreus.runtime.plugin_health import FailurePolicy

log = logs.logger(__name__)

_FILE_NAME = "blocked-plugins.json"
_MOST_ENTRIES = 100


class BlockedCall(TypedDict):
    """An entry of the record. ``content``: ``LoadedPlugins.content_of``; ``time``: RFC 3339."""

    plugin: str
    file: str
    content: str
    point: str
    place: str
    time: str


def default_path() -> Path:
    """Return the record's place where no flag states one: a folder of this user's own."""
    return Path(tempfile.gettempdir()) / f"proreus-{os.getuid()}" / _FILE_NAME


class BlockedPlugins:
    """The record, and what is known of the plugins in use. ``entries``: as of the latest load."""

    def __init__(self, path: Path, policy: FailurePolicy) -> None:
        self.path = path
        self.entries: list[BlockedCall] = []
        self.stack_dump = StackDump(path)
        self._policy = policy
        # By class, not by name: an older version may still bind pods that it assumed. Weakly, since
        # a class keeps all that its module has.
        self._contents: WeakKeyDictionary[type[Plugin], tuple[str, str]] = WeakKeyDictionary()

    def apply(self, loaded_plugins: LoadedPlugins) -> None:
        """Disable the plugins that are recorded, or reject them, as the policy has it."""
        self._record_earlier()
        self.entries = self._read()
        recorded = {(entry["plugin"], entry["content"]): entry for entry in self.entries}
        for name, one in loaded_plugins.out_of_tree.items():
            content = loaded_plugins.content_of(name)
            self._contents[one.plugin] = (one.origin.file, content)
            entry = recorded.get((name, content))
            if entry is None:
                continue
            because = (
                f"it blocked the event loop at {entry['point']} ({entry['place']}) and could not "
                f"be interrupted, {entry['time']}"
            )
            if self._policy == "skip":
                loaded_plugins.disable(name, because)
                log.warning("Plugin is disabled until it is changed", plugin=name, because=because)
            else:
                source = f"--blocked-plugins-file {self.path}"
                remedy = "change the plugin, or delete this record"
                loaded_plugins.reject(name, source, f"{because}; {remedy}")

    def _record_earlier(self) -> None:
        """Record the plugins that made earlier processes end in C code."""
        for call in self.stack_dump.take_earlier():
            plugin, function, place = call["plugin"], call["function"], call["place"]
            point = POINT_OF_METHOD.get(function, function)
            log.error(
                "The process before this one ended",
                err="a plugin held the interpreter lock for too long",
                plugin=plugin["plugin"],
                point=point,
                place=place,
            )
            self._add(
                BlockedCall(
                    plugin=plugin["plugin"],
                    file=plugin["file"],
                    content=plugin["content"],
                    point=point,
                    place=place,
                    time=_rfc3339(call["seconds"]),
                )
            )

    def set_in_use(self, loaded_plugins: LoadedPlugins) -> None:
        """Note which plugins are in use, for the process after one that C code made end."""
        plugins = [
            PluginInUse(
                plugin=name,
                file=one.origin.file,
                line=one.origin.line,
                content=loaded_plugins.content_of(name),
            )
            for name, one in loaded_plugins.out_of_tree.items()
            if one.origin.way != "endpoint"
        ]
        if not plugins:
            return
        try:
            self.path.parent.mkdir(mode=stat.S_IRWXU, parents=True, exist_ok=True)
            self.stack_dump.prepare(plugins)
        except OSError as error:
            log.error("Plugins that block cannot be recorded", err=error, file=str(self.path))

    def record(self, plugin: type[Plugin] | None, point: str, place: str) -> bool:
        """Add a plugin to the record; return whether that was possible. From any thread."""
        file, content = ("", "") if plugin is None else self._contents.get(plugin, ("", ""))
        if plugin is None or not content:
            return False
        entry = BlockedCall(
            plugin=plugin.name,
            file=file,
            content=content,
            point=point,
            place=place,
            time=_rfc3339(time()),
        )
        return self._add(entry)

    def _add(self, entry: BlockedCall) -> bool:
        try:
            self._write([*self._read(), entry][-_MOST_ENTRIES:])
        except OSError as error:
            log.error("Cannot record a plugin that blocks", err=error, file=str(self.path))
            return False
        return True

    def describe(self) -> dict[str, Any]:
        """Return the record as JSON-compatible data, for /pluginz."""
        return {"file": str(self.path), "entries": self.entries}

    def _read(self) -> list[BlockedCall]:
        try:
            with self.path.open() as file:
                # The default place is in a folder that everybody may write to.
                if os.fstat(file.fileno()).st_uid not in (os.getuid(), 0):
                    raise PermissionError("it belongs to another user")
                entries = json.load(file)["blockedPlugins"]
            return [_entry(one) for one in entries]
        except FileNotFoundError:
            return []
        except (OSError, ValueError, KeyError, TypeError) as error:
            log.error("Cannot read the record of blocked plugins", err=error, file=str(self.path))
            return []

    def _write(self, entries: list[BlockedCall]) -> None:
        """Replace the file as a whole: the process may be killed at any moment."""
        self.path.parent.mkdir(mode=stat.S_IRWXU, parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(dir=self.path.parent, prefix=f".{self.path.name}")
        try:
            with open(descriptor, "w") as file:
                json.dump({"blockedPlugins": entries}, file, indent=2)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, self.path)
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary)
            raise


def _rfc3339(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


def _entry(given: Mapping[str, Any]) -> BlockedCall:
    """Return an entry as read; raises ``KeyError``, ``TypeError`` or ``ValueError``."""
    return BlockedCall(
        plugin=str(given["plugin"]),
        file=str(given["file"]),
        content=str(given["content"]),
        point=str(given["point"]),
        place=str(given["place"]),
        time=str(given["time"]),
    )
