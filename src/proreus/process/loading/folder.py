"""Imports a folder of .py files, each a module of its own; they may import each other.

All files are read first and imported from memory, under module names that no other load uses.
Hence a reload shares nothing with earlier loads, writes no byte code, and does not mix two versions
of a ConfigMap that is replaced meanwhile.
"""

from __future__ import annotations

import builtins
import itertools
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

from proreus.process.loading.import_anew import content_hash

_CONFIG_MAP_DATA_LINK = "..data"
"""The symbolic link by which the kubelet replaces a mounted ConfigMap atomically."""

_TRIES = 3
_numbers = itertools.count(1)


class PluginFolder:
    """The modules of one folder, for one load.

    Imports in these modules find files of the folder first, except for names in the standard
    library. Raises ``OSError`` if the folder cannot be read.
    """

    def __init__(self, path: str) -> None:
        self.path = Path(path)
        self.sources, self.unreadable = _read(self.path)
        """Contents of readable files, and errors of the others, by module name."""
        self.package = f"proreus_plugin_folder_{next(_numbers)}"
        self._failed: dict[str, BaseException] = {}
        self._builtins = {**vars(builtins), "__import__": self._import}
        package = ModuleType(self.package)
        package.__path__ = []
        package.__spec__ = ModuleSpec(self.package, None, is_package=True)
        sys.modules[self.package] = package

    @property
    def plugin_modules(self) -> list[str]:
        """The names of the modules to search for plugins, which have no leading ``_``."""
        return sorted(name for name in self.sources if not name.startswith("_"))

    @property
    def hashes(self) -> dict[str, str]:
        """The content hashes of the files, by path."""
        return {self.file(name): content_hash(source) for name, source in self.sources.items()}

    @property
    def modules(self) -> Iterator[str]:
        """The names of this folder's modules in ``sys.modules``."""
        return iter([name for name in sys.modules if name.partition(".")[0] == self.package])

    def file(self, name: str) -> str:
        """Return the file of a module."""
        return str(self.path / f"{name}.py")

    def owns(self, file: str) -> bool:
        """Return whether a file is in this folder."""
        return Path(file).parent == self.path

    def module(self, name: str) -> ModuleType:
        """Return an imported module; raises the exception of its import, each time the same."""
        full = f"{self.package}.{name}"
        if full in sys.modules:
            return sys.modules[full]
        if name in self._failed:
            raise self._failed[name]
        file = self.file(name)
        module = ModuleType(full)
        module.__file__ = file
        module.__package__ = self.package
        module.__spec__ = ModuleSpec(full, None, origin=file)
        module.__dict__["__builtins__"] = self._builtins
        sys.modules[full] = module
        try:
            exec(compile(self.sources[name], file, "exec", dont_inherit=True), module.__dict__)
        except BaseException as error:
            del sys.modules[full]
            self._failed[name] = error
            raise
        setattr(sys.modules[self.package], name, module)
        return module

    def _import(
        self,
        name: str,
        globals: Mapping[str, Any] | None = None,
        locals: Mapping[str, Any] | None = None,
        fromlist: Sequence[str] = (),
        level: int = 0,
    ) -> ModuleType:
        """Replace ``__import__`` in these modules."""
        if level == 0 and name in self.sources and name not in sys.stdlib_module_names:
            return self.module(name)
        if level == 1:
            for sibling in (name,) if name else fromlist:
                if sibling in self.sources:
                    self.module(sibling)
        return builtins.__import__(name, globals, locals, fromlist, level)


def module_files(folder: Path) -> list[Path]:
    """Return the paths of a folder that may be modules, by name; raises ``OSError``."""
    # Names that begin with a dot belong to editors. Not by ``glob``, for which a folder that cannot
    # be read is an empty one.
    return sorted(
        path for path in folder.iterdir() if path.suffix == ".py" and not path.name.startswith(".")
    )


def _read(folder: Path) -> tuple[dict[str, bytes], dict[str, OSError]]:
    """Return the contents of readable files, and the errors of the others, by module name.

    All are of one version of a mounted ConfigMap. Files that are deleted meanwhile are ignored.
    """
    for attempt in itertools.count(1):
        version = _version(folder)
        sources: dict[str, bytes] = {}
        unreadable: dict[str, OSError] = {}
        for path in module_files(folder):
            try:
                if path.is_file():
                    sources[path.stem] = path.read_bytes()
            except FileNotFoundError:
                continue
            except OSError as error:
                unreadable[path.stem] = error
        if attempt == _TRIES or _version(folder) == version:
            return sources, unreadable
    raise AssertionError("unreachable")


def _version(folder: Path) -> Path | None:
    link = folder / _CONFIG_MAP_DATA_LINK
    return link.readlink() if link.is_symlink() else None
