"""The entry points of installed packages that name plugins."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

ENTRY_POINTS = "proreus.plugins"
"""The group of entry points of packages with plugins."""


def plugin_entry_points() -> Iterable[EntryPoint]:
    """Return the entry points of all installed packages in the group of plugins."""
    # The library, with what it needs, is a fiftieth of a start, and mostly there are none.
    if not any(map(_may_have_plugins, dict.fromkeys(sys.path))):
        return ()
    from importlib.metadata import entry_points

    return entry_points(group=ENTRY_POINTS)


def _may_have_plugins(path: str) -> bool:
    """Return whether an element of the module search path may have an entry point of a plugin."""
    try:
        with os.scandir(path or ".") as entries:
            installed = [entry.path for entry in entries if _is_metadata(entry.name)]
    except NotADirectoryError:
        return True  # an archive, into which the library can look
    except OSError:
        return False
    return any(map(_names_group, installed))


def _is_metadata(name: str) -> bool:
    return name.lower().endswith((".dist-info", ".egg-info", ".egg"))


def _names_group(folder: str) -> bool:
    if folder.lower().endswith(".egg"):
        return True
    try:
        return ENTRY_POINTS.encode() in Path(folder, "entry_points.txt").read_bytes()
    except OSError:
        return False
