"""Imports modules by name as if for the first time, and records the contents of their files."""

from __future__ import annotations

import hashlib
import importlib
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import CodeType, ModuleType

_OURS = "proreus"


def content_hash(content: bytes) -> str:
    """Return the SHA-256 of a file's content in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


def import_anew(name: str, hashes: dict[str, str]) -> ModuleType:
    """Import a module and the other modules of its package as if for the first time.

    ``hashes`` receives the content hash of each file that is imported, by path. Code that already
    uses earlier versions of the modules keeps those. Raises the exception of the import, after
    restoring ``sys.modules``.
    """
    _append_working_directory()
    if name.partition(".")[0] in (_OURS, *sys.stdlib_module_names):
        return importlib.import_module(name)
    importlib.invalidate_caches()
    package = name.rpartition(".")[0] or name
    with _without(package), _hashing(package, hashes):
        return importlib.import_module(name)


def _append_working_directory() -> None:
    """Make modules in the working directory importable, as ``python -m`` does, but last."""
    here = os.getcwd()
    if "" not in sys.path and here not in sys.path:
        sys.path.append(here)


@contextmanager
def _without(package: str) -> Iterator[None]:
    """Remove the modules of a package; restore them if an import fails."""
    known = {name: module for name, module in sys.modules.items() if _is_in(package, name)}
    for name in known:
        del sys.modules[name]
    try:
        yield
    except BaseException:
        _drop([name for name in sys.modules if _is_in(package, name)])
        sys.modules.update(known)
        raise


def _is_in(package: str, name: str) -> bool:
    return name == package or name.startswith(f"{package}.")


def _drop(names: Sequence[str]) -> None:
    for name in names:
        del sys.modules[name]


@contextmanager
def _hashing(package: str, hashes: dict[str, str]) -> Iterator[None]:
    """Import the modules of a package from bytes that are read, and hashed, once."""
    finder = _HashingFinder(package, hashes)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


class _HashingFinder:
    """Finds modules of a package as Python does, and has them loaded by ``_HashingLoader``."""

    def __init__(self, package: str, hashes: dict[str, str]) -> None:
        self._package = package
        self._hashes = hashes

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of a module of the package that is a source file, else None."""
        if not _is_in(self._package, fullname):
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        # Anything else (an archive, a C extension) is left to the finders that follow.
        if spec is None or type(spec.loader) is not SourceFileLoader:
            return None
        spec.loader = _HashingLoader(fullname, spec.loader.path, self._hashes)
        return spec


class _HashingLoader(SourceFileLoader):
    """Compiles a source file from the very bytes that it hashes."""

    def __init__(self, fullname: str, path: str, hashes: dict[str, str]) -> None:
        super().__init__(fullname, path)
        self._hashes = hashes

    def get_code(self, fullname: str) -> CodeType:
        """Return the module's code, never from byte code.

        The time stamp in a .pyc file has whole seconds, so that a quick change would be missed; for
        the same reason none is written.
        """
        source = self.get_data(self.path)
        self._hashes[self.path] = content_hash(source)
        code: CodeType = self.source_to_code(source, self.path)
        return code
