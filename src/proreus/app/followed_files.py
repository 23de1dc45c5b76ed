"""The files that say how to schedule: the configuration, and those of plugins.

A ConfigMap that is mounted changes by one renamed link (``..data``); editors write a new file and
rename it. So folders are watched rather than files, and what counts is whether the content is
another than before.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Iterable, Iterator
from pathlib import Path

import watchfiles

from proreus import logs
from proreus.loading import Catalogue, PluginSources

log = logs.logger(__name__)

_SETTLING_MILLISECONDS = 200
"""A change is looked at once so long nothing else has happened: several files belong together."""

_MISSING_FOLDER_SECONDS = 5.0


class FollowedFiles:
    """The files of one configuration. ``look`` says whether they have changed since it last did."""

    def __init__(self, config: str, sources: PluginSources) -> None:
        self._config = [Path(config)] if config else []
        self._folders = [Path(folder) for folder in sources.folders]
        self._modules: list[Path] = []
        self._seen: dict[Path, bytes] = {}

    def add_modules_of(self, catalogue: Catalogue) -> None:
        """Follow also the files of plugins that were given as modules, as far as they were found.

        Those that were found earlier are followed on: what is broken now may be mended.
        """
        given = {
            Path(one.origin.file)
            for one in catalogue.brought.values()
            if one.origin.way == "module"
        }
        self._modules = sorted({*self._modules, *given})

    @property
    def places(self) -> list[Path]:
        """The folders to watch; those that are not there are left out."""
        parents = [file.absolute().parent for file in (*self._config, *self._modules)]
        return [place for place in dict.fromkeys((*parents, *self._folders)) if place.is_dir()]

    def look(self) -> bool:
        """Read all files; return whether anything is different from last time."""
        before, self._seen = self._seen, {file: _digest(file) for file in self._files()}
        return self._seen != before

    def _files(self) -> Iterator[Path]:
        yield from self._config
        yield from self._modules
        for folder in self._folders:
            yield from sorted(folder.glob("*.py"))

    async def changes(self) -> AsyncIterator[None]:
        """Yield whenever something happened to a file, or to one beside it."""
        while True:
            places = self.places
            if not places:
                await asyncio.sleep(_MISSING_FOLDER_SECONDS)
                yield
                continue
            try:
                async for _ in _happenings(places):
                    yield
                    if self.places != places:
                        break
            except OSError as error:
                log.error("Cannot watch files", err=error)
                await asyncio.sleep(_MISSING_FOLDER_SECONDS)
                yield


def _happenings(places: Iterable[Path]) -> AsyncIterator[object]:
    return watchfiles.awatch(
        *places, recursive=False, watch_filter=None, debounce=_SETTLING_MILLISECONDS, step=50
    )


def _digest(file: Path) -> bytes:
    try:
        return hashlib.sha256(file.read_bytes()).digest()
    except OSError as error:
        return repr(error.errno).encode()
