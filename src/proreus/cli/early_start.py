"""What a start of ``proreus run`` requests before it imports the scheduler.

The flags and the configuration file are read here just far enough to know where the apiserver is;
``app`` reads, checks and reports on both.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

import yaml

from proreus import yaml_limits
from proreus.cli.go_flags import ParsedFlags
from proreus.client.credential_loading import load_plain
from proreus.client.early_lists import EarlyList, request_early_lists
from proreus.errors import ConfigError


def request_lists(values: ParsedFlags) -> dict[str, EarlyList]:
    """Request the longest lists, by kind; {} where it is not certain that they will be needed."""
    if values["write-config-to"]:
        return {}
    kubeconfig = values["kubeconfig"]
    if values["config"]:
        try:
            kubeconfig = _kubeconfig(values["config"])
        # The file is not checked yet: what is not as expected may raise anything.
        except (OSError, ValueError, LookupError, TypeError, AttributeError, yaml.YAMLError):
            return {}
        if kubeconfig is None:
            return {}
    with suppress(ConfigError, OSError):
        if credentials := asyncio.run(load_plain(kubeconfig, values["master"])):
            return request_early_lists(credentials)
    return {}


def _kubeconfig(path: str) -> str | None:
    """Return the path that a configuration file names, "" for none; None: lists come later."""
    with open(path, "rb") as file:
        content = file.read()
    config = yaml_limits.load(content)
    if config.get("delayCacheUntilActive"):
        return None
    return str((config.get("clientConnection") or {}).get("kubeconfig") or "")
