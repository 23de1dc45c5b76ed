"""What a Dockerfile's last stage sets for its processes."""

from __future__ import annotations

import shlex


def environment(text: str) -> dict[str, str]:
    """Return what the ENV instructions of the last stage set, variables unreplaced."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    settings: dict[str, str] = {}
    for line in "\n".join(lines).replace("\\\n", " ").splitlines():
        name, _, rest = line.strip().partition(" ")
        if name == "FROM":
            settings.clear()
        elif name == "ENV":
            pairs = (pair.partition("=") for pair in shlex.split(rest))
            settings |= {key: value for key, _, value in pairs}
    return settings
