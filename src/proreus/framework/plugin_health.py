"""PluginHealth: where failures of a plugin are recorded.

This base class ignores them; plugins outside a profile have it. That of the runtime
(``engine.runtime.plugin_health``) logs, counts and reports failures, and may disable the plugin.
"""

from __future__ import annotations

from typing import Literal

Reason = Literal["raised", "error", "invalid_answer", "slow", "timeout"]
"""An exception; an Error status; a result that the point does not allow; the time budget exceeded;
no result by the deadline."""


class PluginHealth:
    """Records the failures of one plugin. ``disabled``: the plugin is not called at present."""

    disabled: bool = False

    def note(self, point: str, reason: Reason, error: BaseException | None = None) -> None:
        """Record a failure at an extension point; ``error`` is the exception, if any."""

    def log(self, point: str, error: BaseException) -> None:
        """Log and count an exception that is no reason to disable the plugin."""
