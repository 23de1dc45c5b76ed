"""The configuration file and the plugin files, watched for changes of their content.

A mounted ConfigMap changes by one renamed link (``..data``); editors write a new file and rename
it. So folders are watched rather than files, and digests are compared. All files are also read
every few seconds: some file systems report no events, and none are reported before a watch begins.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import watchfiles

from proreus.base import logs
from proreus.process.loading.folder import module_files
from proreus.process.loading.import_anew import content_hash
from proreus.process.loading.load import PluginSources
from proreus.process.loading.loaded_plugins import LoadedPlugins

log = logs.logger(__name__)

_QUIET_MILLISECONDS, _BUSY_MILLISECONDS = 50, 200
"""A change counts once nothing else has changed for the first time, or after the second at most:
several files belong together."""

_LOOK_AGAIN_MILLISECONDS = 5000

_MISSING_FOLDER_SECONDS = 5.0

_NOT_READ = "not read"
"""Prefix of the stand-in for the content of an unreadable file."""

_OWN_FAULTS = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOMEM))
"""Errors that say nothing about the file."""


class WatchedFiles:
    """The files of one configuration. Make it before they are read, so that no change is missed."""

    def __init__(self, config: str, sources: PluginSources) -> None:
        self._config = [Path(config)] if config else []
        self._folders = [Path(folder) for folder in sources.folders]
        self._modules: list[Path] = []
        self._seen: dict[Path, str] = {}
        self.has_changed()

    def set_loaded(self, loaded_plugins: LoadedPlugins) -> None:
        """Remember what was loaded: a file whose content differs from that has changed.

        What an earlier look found does not count: a file may change after the look and before it is
        loaded, and change back later. Files of plugins that were given as modules are watched from
        now on. Those that were found earlier stay watched: a module that is broken now may be
        repaired.
        """
        given = {
            Path(one.origin.file)
            for one in loaded_plugins.out_of_tree.values()
            if one.origin.way == "module"
        }
        self._modules = sorted(given.union(self._modules))
        loaded = {Path(file): content for file, content in loaded_plugins.hashes.items()}
        fixed = {*self._config, *self._modules}
        # A file that could not be read has not been loaded, and is no reason to try again. One that
        # could be read, and has not been loaded, came after that.
        self._seen = {
            file: content
            for file, content in self._seen.items()
            if file in fixed or content.startswith(_NOT_READ)
        }
        for file, content in loaded.items():
            if file in fixed or file.parent in self._folders:
                self._seen[file] = content
        for file in fixed - self._seen.keys():
            with suppress(OSError):
                self._seen[file] = _digest(file)

    def set_loaded_config(self, content: bytes) -> None:
        """Remember the content of the configuration file that was loaded."""
        self._seen |= dict.fromkeys(self._config, content_hash(content))

    @property
    def folders(self) -> list[Path]:
        """The folders to watch, as far as they exist."""
        parents = [file.absolute().parent for file in (*self._config, *self._modules)]
        return [folder for folder in dict.fromkeys((*parents, *self._folders)) if folder.is_dir()]

    def has_changed(self) -> bool:
        """Read all files; return whether any content differs from the last call."""
        try:
            found = {file: _digest(file) for file in self._files()}
        except OSError as error:
            # Nothing is known of the files, while this process has no file descriptor left for
            # example. That is no change, least of all one to a configuration without plugins.
            log.v(2).info("Cannot read the files", err=error)
            return False
        before, self._seen = self._seen, found
        return found != before

    def _files(self) -> Iterator[Path]:
        yield from self._config
        yield from self._modules
        for folder in self._folders:
            with suppress(FileNotFoundError, NotADirectoryError):
                yield from module_files(folder)

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


def _digest(file: Path) -> str:
    try:
        # Anything but a file may block, and is not loaded either.
        return content_hash(file.read_bytes()) if file.is_file() else _NOT_READ
    except OSError as error:
        if error.errno in _OWN_FAULTS:
            raise
        return f"{_NOT_READ}: {error.errno}"
