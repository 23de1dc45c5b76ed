"""Outer rooms (add-ons, commands, the dashboard) register here the parts that the core uses.

They do so as packages of others do, by entry points (pyproject.toml). The core imports none of them
otherwise and runs without their folders.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import EntryPoint, PackageNotFoundError, distribution
from typing import TYPE_CHECKING

from proreus.base.errors import ConfigError

if TYPE_CHECKING:
    # It imports aiohttp, of which --help has no need.
    from proreus.server.section import Section

PACKAGE = "proreus"
COMMANDS = "proreus.commands"
SECTIONS = "proreus.sections"


def registered(group: str) -> dict[str, EntryPoint]:
    """Return the entry points of this package in a group, by name; none if it is not installed."""
    try:
        found = distribution(PACKAGE).entry_points
    except PackageNotFoundError:
        return {}
    return {one.name: one for one in found.select(group=group)}


def registered_section(name: str) -> Callable[..., Section]:
    """Return the class of a section of the server; raises ``ConfigError`` if there is none."""
    found = registered(SECTIONS).get(name)
    if found is None:
        raise ConfigError(f"this installation of proreus has no {name}")
    section: Callable[..., Section] = found.load()
    return section
