"""Runs a program with the allocator of the image, where it is installed."""

from __future__ import annotations

import ctypes.util
import os
import sys
from pathlib import Path

from image.dockerfile import environment

_DOCKERFILE = Path(__file__).parents[3] / "Dockerfile"


def run_with_jemalloc() -> None:
    """Run this program anew with the image's allocator, where the library is installed."""
    settings = environment(_DOCKERFILE.read_text())
    allocator = {name: settings[name] for name in ("LD_PRELOAD", "PYTHONMALLOC", "MALLOC_CONF")}
    runs_with_it = all(os.environ.get(name) == value for name, value in allocator.items())
    if not runs_with_it and ctypes.util.find_library("jemalloc") is not None:
        sys.stdout.flush()
        program = [sys.executable, *sys.orig_argv[1:]]
        os.execve(sys.executable, program, {**os.environ, **allocator})
