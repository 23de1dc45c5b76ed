"""The configuration file and the plugin files, watched for changes of their content.

A mounted ConfigMap changes by one renamed link (``..data``); editors write a new file and rename
it. So folders are watched rather than files, and digests are compared. All files are also read
every few seconds: some file systems report no events, and none are reported before a watch begins.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from pathlib import Path

import watchfiles

from proreus import logs
from proreus.loading import LoadedPlugins, PluginSources

log = logs.logger(__name__)

_QUIET_MILLISECONDS, _BUSY_MILLISECONDS = 50, 200
"""A change counts once nothing else has changed for the first time, or after the second at most:
several files belong together."""

_LOOK_AGAIN_MILLISECONDS = 5000

_MISSING_FOLDER_SECONDS = 5.0

_GRAIN_NANOSECONDS = 10_000_000
"""By how much the time stamps of files may lag behind the clock."""


class WatchedFiles:
    """The files of one configuration. Make it before they are read, so that no change is missed."""

    def __init__(self, config: str, sources: PluginSources) -> None:
        self._config = [Path(config)] if config else []
        self._folders = [Path(folder) for folder in sources.folders]
        self._modules: list[Path] = []
        self._seen: dict[Path, bytes] = {}
        self._looked_at_nanoseconds = 0
        self.has_changed()

    def add_modules_of(self, loaded_plugins: LoadedPlugins) -> None:
        """Watch the files of plugins that were given as modules, too.

        Files that were found earlier stay watched: a module that is broken now may be repaired.
        """
        given = {
            Path(one.origin.file)
            for one in loaded_plugins.out_of_tree.values()
            if one.origin.way == "module"
        }
        # A file that changed between its import and now must count as changed: no digest fits it.
        for file in given.difference(self._modules):
            self._seen[file] = b"" if self._touched(file) else _digest(file)
        self._modules = sorted(given.union(self._modules))

    def _touched(self, file: Path) -> bool:
        """Return whether a file may have changed since the last ``has_changed``."""
        try:
            return file.stat().st_ctime_ns >= self._looked_at_nanoseconds - _GRAIN_NANOSECONDS
        except OSError:
            return True

    @property
    def folders(self) -> list[Path]:
        """The folders to watch, as far as they exist."""
        parents = [file.absolute().parent for file in (*self._config, *self._modules)]
        return [folder for folder in dict.fromkeys((*parents, *self._folders)) if folder.is_dir()]

    def has_changed(self) -> bool:
        """Read all files; return whether any content differs from the last call."""
        self._looked_at_nanoseconds = time.time_ns()
        before, self._seen = self._seen, {file: _digest(file) for file in self._files()}
        return self._seen != before

    def _files(self) -> Iterator[Path]:
        yield from self._config
        yield from self._modules
        for folder in self._folders:
            # Files that begin with a dot belong to editors, and are not loaded either.
            yield from sorted(folder.glob("[!.]*.py"))

    async def changes(self) -> AsyncIterator[None]:
        """Yield after each event in a watched folder, and every few seconds."""
        yield
        while True:
            folders = self.folders
            if not folders:
                await asyncio.sleep(_MISSING_FOLDER_SECONDS)
                yield
                continue
            try:
                async for _ in _file_events(folders):
                    yield
                    if self.folders != folders:
                        break
            except OSError as error:
                log.error("Cannot watch files", err=error)
                await asyncio.sleep(_MISSING_FOLDER_SECONDS)
                yield


def _file_events(folders: Iterable[Path]) -> AsyncIterator[object]:
    return watchfiles.awatch(
        *folders,
        recursive=False,
        watch_filter=None,
        debounce=_BUSY_MILLISECONDS,
        step=_QUIET_MILLISECONDS,
        rust_timeout=_LOOK_AGAIN_MILLISECONDS,
        yield_on_timeout=True,
    )


def _digest(file: Path) -> bytes:
    try:
        return hashlib.sha256(file.read_bytes()).digest()
    except OSError as error:
        return repr(error.errno).encode()
