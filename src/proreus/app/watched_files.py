"""The files that say how to schedule: the configuration, and those of plugins.

A ConfigMap that is mounted changes by one renamed link (``..data``); editors write a new file and
rename it. So folders are watched rather than files, and what counts is whether the content is
another than before. All files are looked at every few seconds besides: nothing is heard of a change
before the watch was set up, nor on some file systems.
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
"""A change is looked at once nothing else has happened for so long, or it has gone on for so long:
several files belong together."""

_LOOK_AGAIN_MILLISECONDS = 5000

_MISSING_FOLDER_SECONDS = 5.0

_GRAIN_NANOSECONDS = 10_000_000
"""By how much the times of files may lag behind the clock."""


class WatchedFiles:
    """The files of one configuration. ``has_changed`` says whether they have changed since it last
    did.

    To be made before they are read: what changes after that is a change.
    """

    def __init__(self, config: str, sources: PluginSources) -> None:
        self._config = [Path(config)] if config else []
        self._folders = [Path(folder) for folder in sources.folders]
        self._modules: list[Path] = []
        self._seen: dict[Path, bytes] = {}
        self._looked_at_nanoseconds = 0
        self.has_changed()

    def add_modules_of(self, loaded_plugins: LoadedPlugins) -> None:
        """Follow also the files of plugins that were given as modules, as far as they were found.

        Those that were found earlier are followed on: what is broken now may be mended.
        """
        given = {
            Path(one.origin.file)
            for one in loaded_plugins.out_of_tree.values()
            if one.origin.way == "module"
        }
        for file in given.difference(self._modules):
            self._seen[file] = b"" if self._touched(file) else _digest(file)
        self._modules = sorted(given.union(self._modules))

    def _touched(self, file: Path) -> bool:
        """Tell whether a file may have changed since the latest look: perhaps after it was read."""
        try:
            return file.stat().st_ctime_ns >= self._looked_at_nanoseconds - _GRAIN_NANOSECONDS
        except OSError:
            return True

    @property
    def folders(self) -> list[Path]:
        """The folders to watch; those that are not there are left out."""
        parents = [file.absolute().parent for file in (*self._config, *self._modules)]
        return [folder for folder in dict.fromkeys((*parents, *self._folders)) if folder.is_dir()]

    def has_changed(self) -> bool:
        """Read all files; return whether anything is different from last time."""
        self._looked_at_nanoseconds = time.time_ns()
        before, self._seen = self._seen, {file: _digest(file) for file in self._files()}
        return self._seen != before

    def _files(self) -> Iterator[Path]:
        yield from self._config
        yield from self._modules
        for folder in self._folders:
            # What begins with a dot is an editor's, and is not loaded either.
            yield from sorted(folder.glob("[!.]*.py"))

    async def changes(self) -> AsyncIterator[None]:
        """Yield when something happened to a file, or to one beside it, and every few seconds."""
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
