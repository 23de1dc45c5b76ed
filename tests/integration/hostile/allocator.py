"""The allocator of the image, where its library is installed."""

from __future__ import annotations

import ctypes.util
import os
import sys
from pathlib import Path

from image.dockerfile import environment

_DOCKERFILE = Path(__file__).parents[3] / "Dockerfile"
_NAMES = ("LD_PRELOAD", "PYTHONMALLOC", "MALLOC_CONF")


def allocator_environment() -> dict[str, str]:
    """Return the variables by which the image allocates, or none without Debian's libjemalloc2."""
    if ctypes.util.find_library("jemalloc") is None:
        return {}
    settings = environment(_DOCKERFILE.read_text())
    return {name: settings[name] for name in _NAMES}


def run_with_jemalloc() -> None:
    """Run this program anew with the image's allocator, where the library is installed."""
    allocator = allocator_environment()
    if any(os.environ.get(name) != value for name, value in allocator.items()):
        sys.stdout.flush()
        program = [sys.executable, *sys.orig_argv[1:]]
        os.execve(sys.executable, program, {**os.environ, **allocator})
