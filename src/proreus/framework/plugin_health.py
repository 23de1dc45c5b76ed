"""Who is told when a plugin does what it must not.

The base, which plugins outside a profile have, does not mind. The runtime's (``runtime.conduct``)
logs, counts, reports, and takes out of a profile what fails again and again.
"""

from __future__ import annotations

from typing import Literal

Reason = Literal["raised", "error", "invalid_answer", "slow"]
"""An exception; an Error status; an answer that the point does not allow; the budget exceeded."""


class PluginHealth:
    """Is told of every failure of one plugin. ``disabled``: the plugin is left out at this time."""

    disabled: bool = False

    def note(self, point: str, reason: Reason, error: BaseException | None = None) -> None:
        """Take note of a failure at a point; ``error`` is what was raised."""
